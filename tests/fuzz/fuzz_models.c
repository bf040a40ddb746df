/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_models.c: any bytes as a model of curation, or as the progress of a pass (by the first byte): an error or a
 * thing that can be asked. */
#include <string.h>

#include "curate/clean_progress.h"
#include "curate/language.h"
#include "curate/quality.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static int read_language(const uint8_t *p, size_t n, struct err *e)
{
    struct language_model *m;
    int code = language_parse(&m, p, n, "fuzz", e);
    if (code) return code;
    struct language_guess g = language_of(m, "some words of a text", 20);
    CHECK(g.label < language_n_labels(m) && g.probability >= 0 && g.probability <= 1, "label %d", g.label);
    language_free(m);
    return OK;
}

static int read_quality(const uint8_t *p, size_t n, struct err *e)
{
    struct quality_model *m;
    int code = quality_parse(&m, p, n, "fuzz", e);
    if (code) return code;
    struct document d = {.n_chars = -1};
    document_set(&d, "some words of a text", 20, &(struct origin){.source = ""});
    double q = quality_of(m, &d);
    CHECK(!(q < 0) && !(q > 1), "%g", q);
    document_free(&d);
    quality_free(m);
    return OK;
}

static int read_progress(const uint8_t *p, size_t n, struct err *e)
{
    static const char rules[] = "rules: [length]\n";
    struct rules *r;
    int code = rules_parse(&r, rules, strlen(rules), "r", e);
    CHECK(!code, "%s", e->text);
    struct progress g = {0};
    removals_init(&g.removals, r->use, r->n);
    code = progress_parse(&g, (const char *)p, n, 1, "fuzz", e);
    progress_fini(&g);
    rules_free(r);
    return code;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct err e = {0};
    int code = OK;
    if (!n) return 0;
    if (*data == 'l') code = read_language(data + 1, n - 1, &e);
    if (*data == 'q') code = read_quality(data + 1, n - 1, &e);
    if (*data == 'p') code = read_progress(data + 1, n - 1, &e);
    CHECK((code == OK) == (*e.text == 0), "code %d with the text '%s'", code, e.text);
    return 0;
}
