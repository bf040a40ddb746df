/* SPDX-License-Identifier: Apache-2.0 */
/* dedup_write.c: each unit becomes one file of what stays, and a small one that says what went.
 *
 * Order of events for a unit: its list of removals and its part are whole and have their names, then dedup.work/unit-N
 * gets its name: that one says that the unit is done. The counts of dedup.json are sums over these files, so they are
 * the same whoever wrote which unit when.
 */
#include "curate/dedup_write.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/json.h"
#include "base/mem.h"
#include "curate/rewrite.h"
#include "curate/spans.h"
#include "source/bad_list.h"
#include "source/beside_data.h"
#include "text/utf8.h"

enum { SAMPLE_BYTES = 240 };
#define UNIT_FILE_MOST ((size_t)256 << 20)

/* ---- the folder ------------------------------------------------------------------------------------------------ */

static int check_folder(struct dedup_folder *f, const char *out, uint64_t key, bool *begun, struct err *e)
{
    char **names, *job = fs_join(f->work, "job"), *text = NULL;
    int n;
    size_t length;
    uint64_t was = 0;
    *begun = false;
    int code = fs_list(out, &names, &n, e);
    if (code) {
        xfree(job);
        return code;
    }
    bool other = false;
    for (int i = 0; i < n; i++) {
        f->finished = f->finished || !strcmp(names[i], BESIDE_DEDUP_RESULT);
        other = other || (strcmp(names[i], BESIDE_DEDUP_WORK) && strcmp(names[i], BESIDE_DEDUP_LOCK));
    }
    if (f->finished) {
        code = err_set(e, ERR_REQUEST, "%s: holds a finished result (dedup.json); choose another --out, or remove it",
                       out);
    } else if (!fs_absent(job)) {
        code = fs_read_all(job, 64, &text, &length, e);
        if (!code && (hash64_parse(text, &was) || was != key))
            code = err_set(e, ERR_REQUEST,
                           "%s: holds the beginnings of a result of other inputs or options; choose another --out, or "
                           "remove it",
                           out);
        *begun = !code;
    } else if (other) {
        code = err_set(e, ERR_REQUEST, "%s: is not empty, and no work of this command; choose another --out", out);
    }
    xfree(text);
    xfree(job);
    fs_list_free(names, n);
    return code;
}

int dedup_folder_take(struct dedup_folder *f, const char *out, uint64_t key, struct err *e)
{
    *f = (struct dedup_folder){.lock.fd = -1,
                               .work = fs_join(out, BESIDE_DEDUP_WORK),
                               .lock_path = fs_join(out, BESIDE_DEDUP_LOCK)};
    bool begun;
    int code = fs_mkdirs(out, e);
    if (!code && (code = fs_lock_take(&f->lock, f->lock_path, e)) && f->lock.busy)
        code = err_set(e, ERR_REQUEST,
                       "%s: another tutti data dedup is at work there; wait for it, or choose another --out", out);
    if (!code) code = check_folder(f, out, key, &begun, e);
    if (!code) code = fs_sweep_temporaries(out, BESIDE_DEDUP_RESULT, e);
    if (!code) code = fs_mkdirs(f->work, e);
    if (!code && !begun) {
        char text[17], *job = fs_join(f->work, "job");
        code = fs_write_atomic(job, hash64_print(text, key), 16, e);
        xfree(job);
    }
    return code;
}

void dedup_folder_leave(struct dedup_folder *f, bool done)
{
    struct err e;
    done = done || f->finished; /* one that was killed while it removed its work goes no further than this */
    if (done) fs_remove_tree(f->work, &e);
    if (done) fs_lock_remove(&f->lock, f->lock_path);
    fs_lock_release(&f->lock);
    xfree(f->work);
    xfree(f->lock_path);
}

/* ---- writing ---------------------------------------------------------------------------------------------------- */

struct unit_counts {
    int64_t documents_in, documents_out, bytes_in, bytes_out, emptied, bad;
    struct dedup_step_result steps[EDIT_STEPS_MOST];
};
struct writing {
    struct dedup_job *job;
    struct fs_writer *part, *list; /* NULL: nothing was written yet; list: or is not wanted */
    struct str part_path, list_path, line;
    struct unit_counts counts;
    struct str samples[EDIT_STEPS_MOST]; /* JSON objects with commas */
    int64_t n_samples[EDIT_STEPS_MOST];
    uint64_t last_edited[EDIT_STEPS_MOST]; /* document + 1 */
};

static int open_once(struct fs_writer **w, const struct str *path, struct err *e)
{
    if (*w) return OK;
    struct str part = {0};
    str_printf(&part, "%s" BESIDE_UNFINISHED, str_text(path));
    int code = fs_writer_open(w, str_text(&part), e);
    str_free(&part);
    return code;
}

/* What was written gets its name; where nothing was, an earlier attempt's is removed. */
static int close_one(struct fs_writer **w, const struct str *path, struct err *e)
{
    struct str part = {0};
    str_printf(&part, "%s" BESIDE_UNFINISHED, str_text(path));
    int code = OK;
    if (*w) {
        code = fs_writer_close(*w, true, e);
        *w = NULL;
        if (!code) code = fs_rename(str_text(&part), str_text(path), e);
    } else {
        code = fs_remove_tree(str_text(path), e);
    }
    if (code) unlink(str_text(&part));
    str_free(&part);
    return code;
}

static void abandon(struct fs_writer **w, const struct str *path)
{
    if (!*w) return;
    struct err e;
    struct str part = {0};
    str_printf(&part, "%s" BESIDE_UNFINISHED, str_text(path));
    fs_writer_close(*w, false, &e);
    unlink(str_text(&part));
    str_free(&part);
    *w = NULL;
}

static void put_text(struct str *out, const char *key, const char *p, size_t n)
{
    str_printf(out, "\"%s\": ", key);
    rewrite_string(out, p, n);
}

static void put_place(struct str *out, const struct dedup_job *j, uint64_t document)
{
    struct corpus_place p = corpus_where(j->corpus, document);
    put_text(out, "file", p.path, strlen(p.path));
    if (p.from) str_printf(out, ", \"part\": %lld", (long long)p.from);
    str_printf(out, ", \"document\": %lld", (long long)p.number);
}

/* One removal as a JSON object with at most `most` bytes of its text. */
static void put_removal(struct str *out, const struct dedup_job *j, const struct edit_told *t, size_t most)
{
    size_t n = t->n <= most ? t->n : utf8_cut((const unsigned char *)t->text, most);
    str_printf(out, BESIDE_DEDUP_REMOVAL "%s\", ", dedup_kind_name(j->config->steps[t->step]));
    put_place(out, j, t->document->id);
    if (!t->all) str_printf(out, ", \"from\": %zu", t->from);
    str_printf(out, ", \"bytes\": %zu, \"like\": {", t->n);
    put_place(out, j, t->of);
    if (!t->all) str_printf(out, ", \"from\": %llu", (unsigned long long)(t->of_span >> 32));
    str_puts(out, "}, ");
    put_text(out, "text", t->text, n);
    str_puts(out, "}");
}

static int note(void *ctx, const struct edit_told *t, struct err *e)
{
    struct writing *w = ctx;
    struct dedup_step_result *c = &w->counts.steps[t->step];
    c->bytes += (int64_t)t->n;
    if (t->all) c->documents++;
    else c->spans++;
    /* Samples come from different documents. */
    if (w->n_samples[t->step] < w->job->config->samples && w->last_edited[t->step] != t->document->id + 1) {
        if (w->n_samples[t->step]++) str_puts(&w->samples[t->step], ",\n");
        put_removal(&w->samples[t->step], w->job, t, SAMPLE_BYTES);
        w->last_edited[t->step] = t->document->id + 1;
    }
    if (!w->job->config->list) return OK;
    str_clear(&w->line);
    put_removal(&w->line, w->job, t, SIZE_MAX);
    str_putc(&w->line, '\n');
    int code = open_once(&w->list, &w->list_path, e);
    return code ? code : fs_writer_write(w->list, w->line.p, w->line.n, e);
}

static bool all_blank(const char *p, size_t n)
{
    for (size_t at = 0; at < n;) {
        int space = utf8_space((const unsigned char *)p + at, n - at);
        if (!space) return false;
        at += (size_t)space;
    }
    return true;
}

static int write_document(struct writing *w, const struct corpus_document *d, bool changed, struct err *e)
{
    if (changed && all_blank(d->text, d->n)) {
        w->counts.emptied++;
        return OK;
    }
    const char *column = corpus_column(w->job->corpus);
    str_clear(&w->line);
    if (d->record && !changed) {
        size_t n = d->record_n;
        while (n && (d->record[n - 1] == '\r' || d->record[n - 1] == '\n')) n--;
        str_add(&w->line, d->record, n);
    } else if (d->record) {
        if (!rewrite_record(&w->line, d->record, d->record_n, column, d->text, d->n))
            return err_set(e, ERR_REQUEST,
                           "%s: document %lld: its member \"%s\" is spelt with escapes, so it cannot be "
                           "changed in place; spell it plainly",
                           d->path, (long long)corpus_where(w->job->corpus, d->id).number, column);
    } else {
        str_puts(&w->line, "{");
        rewrite_string(&w->line, column, strlen(column));
        str_puts(&w->line, ": ");
        rewrite_string(&w->line, d->text, d->n);
        str_puts(&w->line, ", ");
        put_text(&w->line, "source", d->path, strlen(d->path));
        str_puts(&w->line, "}");
    }
    str_putc(&w->line, '\n');
    w->counts.documents_out++;
    w->counts.bytes_out += (int64_t)d->n;
    int code = open_once(&w->part, &w->part_path, e);
    return code ? code : fs_writer_write(w->part, w->line.p, w->line.n, e);
}

static void print_unit(const struct writing *w, struct str *out)
{
    const struct unit_counts *c = &w->counts;
    str_printf(out, "{\"documents_in\": %lld, \"documents_out\": %lld, \"bytes_in\": %lld, \"bytes_out\": %lld, ",
               (long long)c->documents_in, (long long)c->documents_out, (long long)c->bytes_in,
               (long long)c->bytes_out);
    str_printf(out, "\"emptied\": %lld, \"bad\": %lld, \"steps\": [", (long long)c->emptied, (long long)c->bad);
    for (int i = 0; i < w->job->config->n_steps; i++)
        str_printf(out, "%s\n{\"documents\": %lld, \"spans\": %lld, \"bytes\": %lld, \"samples\": [%s]}", i ? "," : "",
                   (long long)c->steps[i].documents, (long long)c->steps[i].spans, (long long)c->steps[i].bytes,
                   str_text(&w->samples[i]));
    str_puts(out, "]}\n");
}

static void unit_path(const struct dedup_job *j, int64_t unit, struct str *out)
{
    str_clear(out);
    str_printf(out, "%s/" BESIDE_DEDUP_WORK "/unit-%05lld.json", j->config->out, (long long)unit);
}

static int write_unit(struct writing *w, struct view *v, int64_t unit, struct err *e)
{
    const struct dedup_config *x = w->job->config;
    str_clear(&w->part_path);
    str_clear(&w->list_path);
    str_printf(&w->part_path, "%s/part-%05lld.jsonl", x->out, (long long)unit);
    str_printf(&w->list_path, "%s/" BESIDE_DEDUP_LIST, x->out, (long long)unit);
    w->counts = (struct unit_counts){0};
    for (int i = 0; i < x->n_steps; i++) {
        str_clear(&w->samples[i]);
        w->n_samples[i] = 0;
    }
    struct corpus_document d;
    bool changed;
    int got, code = OK;
    int64_t before = view_documents(v), bytes_before = view_bytes(v), bad_before = corpus_n_bad(w->job->corpus);
    struct bad_list bad;
    bad_list_init(&bad, str_text(&w->part_path));
    bad_list_clear(&bad);
    corpus_list_bad(w->job->corpus, &bad);
    view_begin(v, unit);
    while (!code && (got = view_next(v, &d, &changed, e)) != 0)
        code = got < 0 ? got : write_document(w, &d, changed, e);
    corpus_list_bad(w->job->corpus, NULL);
    if (!code) code = bad_list_end(&bad, e);
    bad_list_fini(&bad);
    w->counts.documents_in = view_documents(v) - before;
    w->counts.bytes_in = view_bytes(v) - bytes_before;
    w->counts.bad = corpus_n_bad(w->job->corpus) - bad_before;
    if (!code) code = close_one(&w->list, &w->list_path, e);
    if (!code) code = close_one(&w->part, &w->part_path, e);
    abandon(&w->list, &w->list_path);
    abandon(&w->part, &w->part_path);
    if (code) return code;
    struct str text = {0}, path = {0};
    print_unit(w, &text);
    unit_path(w->job, unit, &path);
    code = fs_write_atomic(str_text(&path), text.p, text.n, e);
    str_free(&text);
    str_free(&path);
    return code;
}

int dedup_write(struct dedup_job *j, struct err *e)
{
    struct writing w = {.job = j};
    struct view *v;
    struct str path = {0};
    int code = view_open(&v, j->corpus, j->edits, j->config->n_steps, j->key, note, &w, e);
    for (int64_t u = 0; u < corpus_n_units(j->corpus) && !code; u++) {
        if (j->owner[u] != j->rank) continue;
        unit_path(j, u, &path);
        if (fs_absent(str_text(&path))) code = write_unit(&w, v, u, e);
    }
    view_close(v);
    for (int i = 0; i < EDIT_STEPS_MOST; i++) str_free(&w.samples[i]);
    str_free(&w.line);
    str_free(&w.part_path);
    str_free(&w.list_path);
    str_free(&path);
    return code;
}

/* ---- the sum ---------------------------------------------------------------------------------------------------- */

static int64_t count_of(const struct json *o, const char *key) { return json_int(json_get(o, key), 0); }

static void put_sample_place(struct str *out, const struct json *s)
{
    const char *file = json_string(json_get(s, "file"), NULL, "");
    put_text(out, "file", file, strlen(file));
    if (json_get(s, "part")) str_printf(out, ", \"part\": %lld", (long long)count_of(s, "part"));
    str_printf(out, ", \"document\": %lld", (long long)count_of(s, "document"));
    if (json_get(s, "from")) str_printf(out, ", \"from\": %lld", (long long)count_of(s, "from"));
}

static void put_sample(struct str *out, const struct json *s)
{
    size_t n = 0;
    const char *text = json_string(json_get(s, "text"), &n, "");
    str_puts(out, "{");
    put_sample_place(out, s);
    str_printf(out, ", \"bytes\": %lld, \"like\": {", (long long)count_of(s, "bytes"));
    put_sample_place(out, json_get(s, "like"));
    str_puts(out, "}, ");
    put_text(out, "text", text, n);
    str_puts(out, "}");
}

static void add_unit(const struct dedup_job *j, const struct json *unit, struct dedup_result *r, struct str *samples,
                     int64_t *n_samples)
{
    r->documents_in += count_of(unit, "documents_in");
    r->documents_out += count_of(unit, "documents_out");
    r->bytes_in += count_of(unit, "bytes_in");
    r->bytes_out += count_of(unit, "bytes_out");
    r->emptied += count_of(unit, "emptied");
    r->bad += count_of(unit, "bad");
    for (int i = 0; i < j->config->n_steps; i++) {
        const struct json *step = json_at(json_get(unit, "steps"), (size_t)i), *some = json_get(step, "samples");
        r->steps[i].documents += count_of(step, "documents");
        r->steps[i].spans += count_of(step, "spans");
        r->steps[i].bytes += count_of(step, "bytes");
        for (size_t k = 0; k < json_size(some) && n_samples[i] < j->config->samples; k++) {
            str_puts(&samples[i], n_samples[i]++ ? ",\n      " : "\n      ");
            put_sample(&samples[i], json_at(some, k));
        }
    }
}

static void print_result(const struct dedup_job *j, const struct dedup_result *r, const struct str *samples,
                         struct str *out)
{
    const struct dedup_config *x = j->config;
    str_printf(out, "{\"schema\": \"" BESIDE_DEDUP_SCHEMA "\",\n  \"documents_in\": %lld, \"documents_out\": %lld,\n",
               (long long)r->documents_in, (long long)r->documents_out);
    str_printf(out, "  \"bytes_in\": %lld, \"bytes_out\": %lld, \"emptied\": %lld, \"bad\": %lld,\n  \"steps\": [",
               (long long)r->bytes_in, (long long)r->bytes_out, (long long)r->emptied, (long long)r->bad);
    for (int i = 0; i < x->n_steps; i++) {
        enum dedup_kind k = x->steps[i];
        str_printf(out, "%s\n    {\"step\": \"%s\", ", i ? "," : "", dedup_kind_name(k));
        if (k == DEDUP_EXACT || k == DEDUP_LINES || k == DEDUP_PARAGRAPHS)
            str_printf(out, "\"normal\": \"%s\", ", normal_name(x->normal));
        if (k == DEDUP_LINES || k == DEDUP_PARAGRAPHS) str_printf(out, "\"least\": %lld, ", (long long)x->line_least);
        if (k == DEDUP_NEAR)
            str_printf(out,
                       "\"shingles\": \"%s\", \"threshold\": %.17g, \"bands\": %d, \"rows\": %d, \"seed\": %llu, "
                       "\"verify\": %s, ",
                       x->shingles, x->threshold, j->bands, j->rows, (unsigned long long)x->seed,
                       x->verify ? "true" : "false");
        if (k == DEDUP_SUBSTRING)
            str_printf(out, "\"repeat\": %lld, \"part\": %lld, ", (long long)x->repeat_least, (long long)x->part_bytes);
        if (k == DEDUP_PASSAGES)
            str_printf(out, "\"repeat\": %lld, \"surely_from\": %lld, ", (long long)x->repeat_least,
                       (long long)x->repeat_least + (long long)passage_apart((size_t)x->repeat_least) - 1);
        str_printf(out, "\"documents\": %lld, \"spans\": %lld, \"bytes\": %lld,\n     \"samples\": [%s]}",
                   (long long)r->steps[i].documents, (long long)r->steps[i].spans, (long long)r->steps[i].bytes,
                   str_text(&samples[i]));
    }
    str_puts(out, "]}\n");
}

int dedup_finish(struct dedup_job *j, struct dedup_result *r, struct err *e)
{
    struct str path = {0}, samples[EDIT_STEPS_MOST] = {{0}}, text = {0};
    int64_t n_samples[EDIT_STEPS_MOST] = {0};
    int code = OK;
    for (int64_t u = 0; u < corpus_n_units(j->corpus) && !code; u++) {
        struct json *unit;
        unit_path(j, u, &path);
        code = json_parse_file(&unit, str_text(&path), UNIT_FILE_MOST, e);
        if (code) break;
        add_unit(j, unit, r, samples, n_samples);
        json_free(unit);
    }
    if (!code) {
        print_result(j, r, samples, &text);
        str_clear(&path);
        str_printf(&path, "%s/" BESIDE_DEDUP_RESULT, j->config->out);
        code = fs_write_atomic(str_text(&path), text.p, text.n, e);
    }
    for (int i = 0; i < EDIT_STEPS_MOST; i++) str_free(&samples[i]);
    str_free(&text);
    str_free(&path);
    return code;
}
