/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_rules.c: any bytes as RULES.yaml: an error says where, and what is accepted prints as rules with the same key.
 * What follows a NUL is a document that goes through them. Rules that name files are passed over: the fuzzer would have
 * to find one. */
#include <string.h>

#include "curate/rules.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check_document(const struct rules *r, const char *p, size_t n)
{
    struct document d = {.n_chars = -1};
    struct removals t;
    removals_init(&t, r->use, r->n);
    document_set(&d, p, n, &(struct origin){.source = "fuzz"});
    int use = rules_judge(r, &d, &t);
    CHECK(use >= FILTER_KEEPS && use < r->n, "use %d of %d", use, r->n);
    for (int i = 0; i < r->n; i++)
        CHECK(t.use[i].seen == (use < 0 || i <= use) && t.use[i].dropped == (i == use), "counts of filter %d", i);
    removals_fini(&t);
    document_free(&d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct rules *r, *again;
    struct err e = {0};
    const char *p = (const char *)data;
    const char *end = n ? memchr(p, 0, n) : NULL;
    size_t first = end ? (size_t)(end - p) : n;
    int code = rules_parse(&r, p, first, "fuzz.yaml", &e);
    CHECK((code == OK) == (*e.text == 0), "code %d with the text '%s'", code, e.text);
    if (code) return 0;
    struct str text = {0};
    rules_print(r, &text);
    code = rules_parse(&again, text.p, text.n, "printed.yaml", &e);
    CHECK(!code && again->key == r->key, "printed\n%s\n%s", text.p, e.text);
    if (end) check_document(r, end + 1, n - first - 1);
    str_free(&text);
    rules_free(again);
    rules_free(r);
    return 0;
}
