/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_values.c: any bytes as a .json file and as one without an ending: records one behind the other, in one list, or
 * none, where records are wanted. */
#include "fuzz_source.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n < 1 || n > 1 << 16) return 0;
    bool whole = data[0] & 2; /* with a column chosen what is plain text is none of ours */
    fuzz_file(data[0] & 1 ? "values.json" : "values", whole ? NULL : "text", whole, data + 1, n - 1);
    return 0;
}
