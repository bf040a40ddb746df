/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_synthesis.c: any bytes as the progress of `tutti data synthesise` (.synthesis.json), of a rules file with two
 * filters: it is taken, its numbers no less than 0, or refused with words that name it. */
#include <string.h>

#include "base/mem.h"
#include "curate/rules.h"
#include "decode/synthesis_parts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const char text[] = "rules: [{length: {min_chars: 10}}, symbols]\n";
    struct rules *rules;
    struct err e = {0};
    if (n > 1 << 16) return 0;
    CHECK(!rules_parse(&rules, text, strlen(text), "rules", &e), "%s", e.text);
    struct synthesis_parts p = {.folder = "folder", .key = {1, 2, 3, 4}};
    removals_init(&p.removals, rules->use, rules->n);
    char *copy = xmalloc(n + 1);
    if (n) memcpy(copy, data, n);
    copy[n] = 0;
    int code = parts_parse(&p, copy, n, "fuzz.json", &e);
    CHECK(!code || strstr(e.text, "fuzz.json") || strstr(e.text, "folder"), "an error without its place: %s", e.text);
    for (int64_t i = 0; !code && i < p.n; i++) CHECK(p.bytes_of[i] >= 0, "a part of fewer than no bytes");
    CHECK(code || (p.counts.prompts >= 0 && p.counts.kept_bytes >= 0 && p.files <= p.n), "counts below 0");
    xfree(copy);
    parts_fini(&p);
    rules_free(rules);
    return 0;
}
