/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_fields.c: any bytes as a tar shard whose samples have fields of a name each (fuzz_source.h): captions, or
 * questions with answers; the first byte chooses where they are, and whether some samples are left out. */
#include "fuzz_source.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static bool some(const void *ctx, int64_t file, const char *key)
{
    (void)ctx;
    (void)file;
    return key[strlen(key) - 1] % 3 == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const struct source_fields fields[] = {
        {.image = "jpg;png", .caption = "txt"},
        {.image = "jpg;png", .caption = "json[caption],json[texts][0],txt"},
        {.image = "jpg;png", .context = "q.txt,json[q]", .answers = "json[answers],a.txt"},
        {.image = "jpg;png", .context = "json[0][q]", .answers = "json[0][a]"},
    };
    if (n < 2 || n > 16384) return 0;
    struct source_fields x = fields[data[0] % 4];
    if (data[0] & 4) x.excludes = some;
    fuzz_file_as("s.tar", (struct source_options){.whole_records = true, .pictures = true, .fields = &x}, data + 1,
                 n - 1);
    return 0;
}
