/* SPDX-License-Identifier: Apache-2.0 */
/* inspect_samples.c: gathers views (sample_view.h) and puts them where they were asked for. */
#include "cli/inspect_samples.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/mem.h"
#include "base/str.h"
#include "cli/cmd_data.h"
#include "cli/image_samples.h"
#include "explain/sample_view.h"
#include "cli/screen.h"
#include "config/setup.h"
#include "train/datasets.h"

/* Colour is for terminals whose user has not asked for none (NO_COLOR). */
static bool in_colour(void)
{
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    return isatty(STDOUT_FILENO) && !(no && *no) && term && strcmp(term, "dumb");
}

/* Where views go. */
struct show {
    const struct inspect_request *q;
    struct str text;
    struct json_out j;
    bool page;
};

static void show_begin(struct show *s, const struct inspect_request *q, const char *title)
{
    *s = (struct show){.q = q, .page = q->html != NULL};
    s->j.s = &s->text;
    if (q->json) {
        json_begin_document(&s->j, "data-inspect-samples", 1);
        json_put_string(&s->j, "of", title);
        json_begin_array(&s->j, "samples");
    } else if (s->page) {
        sample_page_begin(&s->text, title);
    } else {
        bool colour = in_colour();
        str_printf(&s->text, "%s (a loss is taken of what is %s)\n\n", title, colour ? "green" : "between ⟦ and ⟧");
    }
}

static void show_one(struct show *s, const struct sample_view *v)
{
    if (s->q->json) sample_view_json(v, &s->j);
    else if (s->page) sample_view_html(v, &s->text);
    else {
        sample_view_text(v, in_colour(), s->q->tokens, &s->text);
        str_putc(&s->text, '\n');
    }
}

static int show_end(struct show *s, int code, struct err *e)
{
    if (!code && s->q->json) {
        json_end_array(&s->j);
        json_end_object(&s->j);
        str_putc(&s->text, '\n');
    } else if (!code && s->page) {
        sample_page_end(&s->text);
    }
    if (!code && s->page && !s->q->json) {
        code = fs_write_atomic(s->q->html, str_text(&s->text), s->text.n, e);
        if (!code) printf("%s\n", s->q->html);
    } else if (!code) {
        screen_put_raw(str_text(&s->text), s->text.n); /* colours; its texts went through shown_put */
    }
    str_free(&s->text);
    return code;
}

/* -- a step of a config --------------------------------------------------------------------------------------- */

/* "sample 12 of a.jsonl, b.jsonl, a.jsonl": where its parts are from */
static void title_of_parts(const struct dataset *d, int64_t k, struct str *out)
{
    str_clear(out);
    str_printf(out, "sample %lld of", (long long)k);
    for (int64_t j = 0; j < dataset_parts(d); j++) {
        int source;
        int64_t epoch, sample;
        dataset_where(d, dataset_part(d, k, j), &source, &epoch, &sample);
        const struct tokenfile *f = dataset_file(d, source);
        str_printf(out, "%s %s", j ? "," : "", f->made_from ? f->made_from : f->path);
    }
}

/* "sample 12: talk.jsonl, epoch 0, sample 3 of 40" */
static void title_of(const struct dataset *d, int64_t k, struct str *out)
{
    int source;
    int64_t epoch, sample;
    if (dataset_parts(d) > 1) {
        title_of_parts(d, k, out);
        return;
    }
    dataset_where(d, k, &source, &epoch, &sample);
    const struct tokenfile *f = dataset_file(d, source);
    str_clear(out);
    str_printf(out, "sample %lld: %s, epoch %lld", (long long)k, f->made_from ? f->made_from : f->path,
               (long long)epoch);
    if (dataset_has_pairs(d)) str_puts(out, k % 2 ? ", rejected" : ", chosen");
    if (sample >= 0) str_printf(out, ", sample %lld of %lld", (long long)sample, (long long)dataset_cuts(d, source)->n);
    else str_puts(out, ", empty: it fills the epoch's last group");
}

static int show_step(const struct inspect_request *q, const struct config *c, const struct dataset *d,
                     const struct tokenizer *t, struct err *e)
{
    int64_t global = c->batch.global, step = q->step ? q->step - 1 : 0, one = q->sample;
    if (one >= global)
        return err_set(e, ERR_REQUEST, "--sample %lld: step %lld has samples 0 to %lld (batch.global)", (long long)one,
                       (long long)step + 1, (long long)global - 1);
    struct batch b;
    struct show s;
    struct str title = {0};
    batch_init_pictures(&b, one >= 0 ? 1 : global, c->model.seq_len, dataset_pixels(d));
    int code = dataset_batch(d, step, global, one >= 0 ? one : 0, &b, e);
    str_printf(&title, "step %lld of %s", (long long)step + 1, q->what);
    show_begin(&s, q, str_text(&title));
    for (int64_t row = 0; row < b.n_seqs && !code; row++) {
        struct sample_view v;
        title_of(d, step * global + (one >= 0 ? one : row), &title);
        sample_view_of_row(&v, t, str_text(&title), &b, row, c->model.scores);
        show_one(&s, &v);
        sample_view_fini(&v);
    }
    code = show_end(&s, code, e);
    str_free(&title);
    batch_fini(&b);
    return code;
}

int inspect_step(const struct inspect_request *q, struct err *e)
{
    struct arena *a = arena_new();
    struct config c;
    struct conf *f;
    struct tokenizer *t = NULL;
    struct dataset *d = NULL;
    int code = config_load(&c, &f, a, q->what, q->keys.p, q->keys.n, e);
    if (!code) code = setup_model(&c, f, a, &t, e);
    if (!code && !t && !model_sees(&c.model)) code = setup_no_tokenizer(&c, f, e);
    if (!code) code = config_resolve(&c, f, t ? tokenizer_vocab(t) : 0, 1, e);
    if (!code && !c.data.train.n)
        code = err_set(e, ERR_REQUEST, "%s: data.train: is required: what is trained on is shown", q->what);
    if (!code && (code = datasets_open(&d, &c, &c.data.train, t, NULL, e)))
        err_prefix(e, "%s: data.train", conf_where(f, "data.train"));
    if (!code && dataset_sees(d)) code = image_samples_inspect(q, &c, d, e);
    else if (!code) code = show_step(q, &c, d, t, e);
    dataset_close(d);
    tokenizer_free(t);
    arena_free(a);
    return code;
}

/* -- a document of a token file --------------------------------------------------------------------------------- */

static int fill_document(struct sample_view *v, const struct tokenfile *f, int64_t begin, struct err *e)
{
    int code = tokenfile_read(f, begin, v->n, v->ids, e);
    if (!code && tokenfile_masked(f)) code = tokenfile_mask(f, begin, v->n, v->loss, e);
    else memset(v->loss, 1, to_size(v->n));
    for (int64_t i = 0; i < v->n; i++) v->positions[i] = (int32_t)i;
    return code;
}

int inspect_document(const struct inspect_request *q, const struct tokenfile *f, struct err *e)
{
    struct tokenizer *t;
    int64_t begin, end, byte;
    char *input = NULL;
    if (q->sample >= f->n_documents)
        return err_set(e, ERR_REQUEST, "--sample %lld: %s has documents 0 to %lld", (long long)q->sample, f->path,
                       (long long)f->n_documents - 1);
    if (!tokenfile_has_ends(f))
        return err_set(e, ERR_REQUEST, "%s: does not say where its documents end; tokenize the text again", f->path);
    int code = tokenizer_open(&t, q->tokenizer ? q->tokenizer : "byte", e);
    if (code) return code;
    if (tokenizer_fingerprint(t) != f->head.fingerprint)
        code = err_set(e, ERR_REQUEST,
                       "%s: was not made with the tokenizer %s; name the one it was made with (--tokenizer)", f->path,
                       q->tokenizer ? q->tokenizer : "byte");
    if (!code) code = tokenfile_document(f, q->sample, &begin, &end, e);
    if (!code) code = tokenfile_origin(f, q->sample, &input, &byte, e);
    struct str title = {0};
    struct sample_view v = {0};
    if (!code) {
        str_printf(&title, "document %lld", (long long)q->sample);
        if (input) str_printf(&title, ": %s", input);
        if (input && byte >= 0) str_printf(&title, " at byte %lld", (long long)byte);
        sample_view_init(&v, t, str_text(&title), end - begin);
        code = fill_document(&v, f, begin, e);
    }
    struct show s;
    show_begin(&s, q, f->path);
    if (!code) show_one(&s, &v);
    code = show_end(&s, code, e);
    sample_view_fini(&v);
    str_free(&title);
    xfree(input);
    tokenizer_free(t);
    return code;
}
