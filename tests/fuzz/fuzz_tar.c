/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_tar.c: any bytes as a tar shard (fuzz_source.h); the first one chooses the column, or whole records. */
#include "fuzz_source.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const char *const columns[] = {NULL, "txt", "caption", "json"};
    if (n < 2 || n > 16384) return 0;
    fuzz_file("s.tar", columns[data[0] % 4], data[0] == 255, data + 1, n - 1);
    return 0;
}
