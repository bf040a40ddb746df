/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_curated_text.c: any bytes as a text: what is found in it lies inside of it and in order, its normal forms are
 * their own, its spans cover what they say, a record written again reads as what was put in. */
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "curate/contamination.h"
#include "curate/normal.h"
#include "curate/personal.h"
#include "curate/rewrite.h"
#include "curate/shingles.h"
#include "curate/spans.h"
#include "text/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void personal(const char *p, size_t n)
{
    struct personal_scan s = {.private_ips = true};
    for (int i = 0; i < N_PERSONAL; i++) s.wanted[i] = true;
    size_t from, to, done = 0;
    enum personal kind;
    while (personal_next(&s, p, n, &from, &to, &kind)) {
        CHECK(from >= done && to > from && to <= n && to - from <= PERSONAL_LONGEST && kind < N_PERSONAL,
              "%zu to %zu of %zu", from, to, n);
        done = to;
    }
}

static void normal(const char *p, size_t n)
{
    for (int k = 0; k < N_NORMAL_KINDS; k++) {
        struct str once = {0}, twice = {0};
        normal_add((enum normal_kind)k, p, n, &once);
        normal_add((enum normal_kind)k, once.p, once.n, &twice);
        CHECK(once.n == twice.n && (!once.n || !memcmp(once.p, twice.p, once.n)), "form %s of itself is another",
              normal_name((enum normal_kind)k));
        str_free(&once);
        str_free(&twice);
    }
}

struct covered {
    size_t end, n;
    enum span_kind kind;
};
static int cover(void *ctx, struct hash128 h, size_t from, size_t to, struct err *e)
{
    struct covered *c = ctx;
    (void)h, (void)e;
    CHECK(from < to && to <= c->n && (c->kind == SPAN_PASSAGES ? to > c->end : from >= c->end), "span %zu to %zu", from,
          to);
    c->end = to;
    return OK;
}

static void spans(const char *p, size_t n)
{
    static const size_t least[] = {1, 1, 3, PASSAGE_LEAST};
    struct err e;
    for (int k = SPAN_ALL; k <= SPAN_PASSAGES; k++) {
        struct span_cutter c = {.kind = (enum span_kind)k, .normal = NORMAL_WORDS, .least = least[k]};
        struct covered seen = {.n = n, .kind = c.kind};
        spans_cut(&c, p, n, cover, &seen, &e);
        spans_fini(&c);
    }
}

static void grams(const char *p, size_t n)
{
    struct contamination c;
    struct gram_search s = {0};
    contamination_init(&c, 3, 1);
    contamination_add(&c, p, n / 2, 0, 0);
    contamination_find(&c, p, n, &s);
    for (size_t i = 0; i < s.n; i++)
        CHECK(s.found[i].from < s.found[i].to && s.found[i].to <= n && (!i || s.found[i].from >= s.found[i - 1].from),
              "gram %zu", i);
    gram_search_fini(&s);
    contamination_fini(&c);
    for (int chars = 0; chars < 2; chars++) {
        struct shingles h = {.chars = chars, .n = 4};
        shingles_of(&h, p, n);
        shingles_free(&h);
    }
}

static void records(const char *p, size_t n)
{
    struct str out = {0};
    struct json *j;
    struct err e;
    size_t got;
    if (rewrite_record(&out, p, n, "text", p, n) && utf8_run((const unsigned char *)p, n) == n) {
        struct json *was;
        if (!json_parse_published(&was, p, n, "", &e)) {
            CHECK(!json_parse_published(&j, out.p, out.n, "", &e), "a record that was changed is none: %s", e.text);
            const char *text = json_string(json_get(j, "text"), &got, NULL);
            CHECK(text && got == n && !memcmp(text, p, n), "%zu bytes of %zu", got, n);
            CHECK(json_size(j) == json_size(was), "members were lost");
            json_free(j);
            json_free(was);
        }
    }
    /* Its other members, with ours in front, are a record; none of ours is theirs. */
    static const char *const ours[] = {"source", NULL};
    struct json *was;
    str_clear(&out);
    str_puts(&out, "{\"source\": 1");
    rewrite_others(&out, p, n, "text", ours);
    str_putc(&out, '}');
    if (!json_parse_published(&was, p, n, "", &e)) {
        if (json_kind(was) == JSON_OBJECT) {
            CHECK(!json_parse_published(&j, out.p, out.n, "", &e), "other members are no record: %s", e.text);
            CHECK(json_int(json_get(j, "source"), 0) == 1 && !json_get(j, "text"), "a member of ours is theirs");
            json_free(j);
        }
        json_free(was);
    }
    str_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n > 8192) return 0;
    const char *p = (const char *)data;
    personal(p, n);
    normal(p, n);
    spans(p, n);
    grams(p, n);
    records(p, n);
    return 0;
}
