/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_energon.c: any text as one of the files in a .nv-meta folder, the first byte choosing which: shards below the
 * folder, or words; or, from 128 on, as a metadataset (energon_mix.h). */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/str.h"
#include "data/energon_mix.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void put(const char *name, const void *p, size_t n)
{
    char path[200];
    snprintf(path, sizeof path, "energon/.nv-meta/%s", name);
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(p, 1, n, f) == n && !fclose(f), "%s cannot be written", path);
}
#define PUT(name, text) put(name, text, strlen(text))

/* Beside two folders and a file that puts them together: refused with words, or leaves whose weights add up to 1. */
static void read_mix(const uint8_t *data, size_t n)
{
    static const char inner[] = "splits:\n  train: {datasets: [{path: a, weight: 2}, {path: b}]}\n";
    struct err e = {0};
    struct energon_mix m;
    CHECK(!fs_mkdirs("energon/a", &e) && !fs_mkdirs("energon/b", &e), "%s", e.text);
    put("../mix.yaml", data, n);
    PUT("../inner.yaml", inner);
    (void)energon_mix_is("energon/mix.yaml");
    if (energon_mix_read(&m, "energon/mix.yaml", "train", &e)) {
        CHECK(e.text[0], "refused without a word");
    } else {
        double sum = 0;
        CHECK(m.n > 0, "no leaf");
        for (int i = 0; i < m.n; i++) {
            const struct energon_leaf *l = &m.leaf[i];
            sum += l->weight;
            CHECK(l->n_refs > 0 && l->ref[0].folder && l->ref[0].part && l->name, "leaf %d", i);
            CHECK(l->repetitions >= 0 && l->subset.from >= 0 && l->subset.to <= 1 && l->subset.from <= l->subset.to,
                  "leaf %d: a subset of %g to %g", i, l->subset.from, l->subset.to);
        }
        CHECK(m.leaf[0].repetitions > 0 || fabs(sum - 1) < 1e-6, "weights of %g", sum);
    }
    energon_mix_free(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct err e = {0};
    if (n < 1 || n > 8192) return 0;
    CHECK(!fs_mkdirs("energon/.nv-meta", &e), "%s", e.text);
    PUT("dataset.yaml", "sample_type: {__class__: A}\nfield_map: {image: jpg, label: cls}\n");
    PUT("split.yaml", "split_parts: {train: ['a-{0..3}.tar']}\nexclude: [a-0.tar/s/0001, a-2.tar]\n");
    PUT(".info.json", "{\"shard_counts\": {\"a-0.tar\": 2, \"a-1.tar\": 2, \"a-2.tar\": 2, \"a-3.tar\": 2}}");
    if (data[0] >= 128) {
        read_mix(data + 1, n - 1);
        return 0;
    }
    static const char *const names[] = {"dataset.yaml", "split.yaml", ".info.json"};
    put(names[data[0] % 3], data + 1, n - 1);
    struct energon g;
    if (energon_read(&g, &(struct energon_ref){.folder = "energon", .part = "train"}, &e))
        CHECK(e.text[0], "refused without a word");
    else
        for (int64_t i = 0; i < g.n; i++)
            CHECK(str_starts(g.shards[i].path, "energon/") && !strstr(g.shards[i].path, "/../") &&
                      !str_ends(g.shards[i].path, "/..") && g.shards[i].samples >= 0,
                  "a shard outside: %s", g.shards[i].path);
    for (int64_t i = 0; i < g.n; i++)
        for (int64_t k = 0; k < g.shards[i].n_excluded; k++)
            CHECK(energon_excludes(&g.shards[i], g.shards[i].excluded[k]), "%s is not found", g.shards[i].excluded[k]);
    energon_free(&g);
    return 0;
}
