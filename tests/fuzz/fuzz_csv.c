/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_csv.c: any bytes as a table: records follow each other to the end, are the same where the bytes come in two
 * parts, and every column lies inside its record. */
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "source/csv_rows.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check_columns(const char *p, size_t n, char mark)
{
    int columns = csv_columns(p, n, mark);
    for (int i = 0; i <= columns; i++) {
        char *copy = xmalloc(n), *field;
        size_t length = 0;
        memcpy(copy, p, n);
        field = csv_field(copy, n, mark, i, &length);
        CHECK(!field == (i == columns), "column %d of %d", i, columns);
        CHECK(!field || (field >= copy && field + length <= copy + n), "a column outside its record");
        xfree(copy);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n < 2 || n > 4096) return 0;
    char mark = data[0] & 1 ? ',' : '\t';
    const char *p = (const char *)data + 1;
    n--;
    for (size_t at = 0; at < n;) {
        struct csv_scan whole = {0}, parts = {0};
        size_t length = csv_record(&whole, p + at, n - at, true, mark), part = data[0] % (n - at + 1);
        CHECK(length > 0 && length <= n - at, "a record of %zu bytes of %zu", length, n - at);
        size_t early = csv_record(&parts, p + at, part, false, mark);
        size_t again = early ? early : csv_record(&parts, p + at, n - at, true, mark);
        CHECK(again == length && parts.lines == whole.lines, "%zu bytes in two parts, %zu in one", again, length);
        check_columns(p + at, length, mark);
        at += length;
    }
    return 0;
}
