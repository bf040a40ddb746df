/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_energon.c: any text as one of the files in a .nv-meta folder, the first byte choosing which: shards below the
 * folder, or words. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/str.h"
#include "data/energon.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void put(const char *name, const void *p, size_t n)
{
    char path[200];
    snprintf(path, sizeof path, "energon/.nv-meta/%s", name);
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(p, 1, n, f) == n && !fclose(f), "%s cannot be written", path);
}
#define PUT(name, text) put(name, text, strlen(text))

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct err e = {0};
    if (n < 1 || n > 8192) return 0;
    CHECK(!fs_mkdirs("energon/.nv-meta", &e), "%s", e.text);
    PUT("dataset.yaml", "sample_type: {__class__: A}\nfield_map: {image: jpg, label: cls}\n");
    PUT("split.yaml", "split_parts: {train: ['a-{0..3}.tar']}\nexclude: [a-0.tar/1, a-2.tar]\n");
    PUT(".info.json", "{\"shard_counts\": {\"a-0.tar\": 2, \"a-1.tar\": 2, \"a-2.tar\": 2, \"a-3.tar\": 2}}");
    static const char *const names[] = {"dataset.yaml", "split.yaml", ".info.json"};
    put(names[data[0] % 3], data + 1, n - 1);
    struct energon g;
    if (energon_read(&g, "energon", "train", &e)) CHECK(e.text[0], "refused without a word");
    else
        for (int64_t i = 0; i < g.n; i++)
            CHECK(str_starts(g.shards[i].path, "energon/") && !strstr(g.shards[i].path, "/../") &&
                      g.shards[i].samples >= 0,
                  "a shard outside: %s", g.shards[i].path);
    energon_free(&g);
    return 0;
}
