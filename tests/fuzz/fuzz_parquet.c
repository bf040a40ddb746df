/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_parquet.c: any bytes as a Parquet table (fuzz_source.h); the first one chooses the column, or rows as records.
 */
#include "fuzz_source.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const char *const columns[] = {"text", "tags", "message.content", "id"};
    if (n < 2 || n > 16384) return 0;
    fuzz_file("t.parquet", columns[data[0] % 4], data[0] == 255, data + 1, n - 1);
    return 0;
}
