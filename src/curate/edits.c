/* SPDX-License-Identifier: Apache-2.0 */
/* edits.c: files of edits are read along with the documents, since both are in the documents' order. */
#include "curate/edits.h"

#include <string.h>

#include "base/mem.h"
#include "curate/sorter.h"

struct steps_edits {
    struct sorted_reader *from;
    uint64_t next[EDIT_WORDS];
    bool any; /* there is a next one */
};
struct view {
    struct corpus *corpus;
    struct steps_edits step[EDIT_STEPS_MOST];
    int n_steps;
    edit_told_fn *told;
    void *ctx;
    struct str text, spare;
    int64_t n_documents, n_bytes;
};

static int advance(struct steps_edits *s, struct err *e)
{
    const uint64_t *record;
    int got = sorted_next(s->from, &record, e);
    if (got < 0) return got;
    uint64_t before[EDIT_WORDS];
    memcpy(before, s->next, sizeof before);
    if (got) memcpy(s->next, record, sizeof s->next);
    if (got && s->any && records_compare(before, s->next, EDIT_WORDS) > 0)
        return err_set(e, ERR_CORRUPT, "a file of edits is out of order; remove the work folder and start again");
    s->any = got;
    return OK;
}

int view_open(struct view **out, struct corpus *c, char *const *paths, int n_steps, uint64_t key, edit_told_fn *told,
              void *ctx, struct err *e)
{
    CHECK(n_steps <= EDIT_STEPS_MOST, "%d steps", n_steps);
    struct view *v = xcalloc(1, sizeof *v);
    *v = (struct view){.corpus = c, .told = told, .ctx = ctx, .n_steps = n_steps};
    int code = OK;
    for (int i = 0; i < n_steps && !code; i++) {
        code = sorted_open(&v->step[i].from, paths[i], EDIT_WORDS, key, e);
        if (!code) code = advance(&v->step[i], e);
    }
    if (code) {
        view_close(v);
        v = NULL;
    }
    *out = v;
    return code;
}

void view_close(struct view *v)
{
    if (!v) return;
    for (int i = 0; i < v->n_steps; i++) sorted_close(v->step[i].from);
    str_free(&v->text);
    str_free(&v->spare);
    xfree(v);
}

void view_begin(struct view *v, int64_t unit) { corpus_begin(v->corpus, unit); }

int64_t view_documents(const struct view *v) { return v->n_documents; }

int64_t view_bytes(const struct view *v) { return v->n_bytes; }

static int tell(struct view *v, int step, const struct corpus_document *source, const struct corpus_document *now,
                size_t from, size_t n, const uint64_t *edit, struct err *e)
{
    if (!v->told) return OK;
    struct edit_told t = {.step = step,
                          .all = edit[1] == EDIT_ALL,
                          .document = source,
                          .text = now->text + from,
                          .from = from,
                          .n = n,
                          .of = edit[2],
                          .of_span = edit[3]};
    return v->told(v->ctx, &t, e);
}

static bool inside_character(const struct corpus_document *d, size_t at)
{
    return at > 0 && at < d->n && ((unsigned char)d->text[at] & 0xC0) == 0x80;
}

/* Removes text[from..to) of now, copying what is between *done and it. */
static int remove_stretch(struct view *v, int step, const struct corpus_document *source,
                          const struct corpus_document *now, size_t from, size_t to, const uint64_t *edit, size_t *done,
                          struct err *e)
{
    while (from < to && inside_character(now, from)) from++;
    while (to > from && inside_character(now, to)) to--;
    if (from == to) return OK;
    str_add(&v->spare, now->text + *done, from - *done);
    *done = to;
    return tell(v, step, source, now, from, to - from, edit, e);
}

/* Does the edits of one step on `now`, the text that the steps before left of `source`. */
static int apply(struct view *v, int step, const struct corpus_document *source, struct corpus_document *now,
                 bool *removed, bool *changed, struct err *e)
{
    struct steps_edits *s = &v->step[step];
    uint64_t first[EDIT_WORDS];
    size_t from = 0, to = 0, done = 0;
    bool open = false; /* a stretch [from, to) is being joined; `first` is its first edit */
    int code = OK;
    str_clear(&v->spare);
    for (; !code && s->any && s->next[0] == source->id; code = code ? code : advance(s, e)) {
        if (s->next[1] == EDIT_ALL) {
            if (!*removed) code = tell(v, step, source, now, 0, now->n, s->next, e);
            *removed = true;
            continue;
        }
        size_t a = s->next[1] >> 32, b = s->next[1] & UINT32_MAX;
        if (a >= b || b > now->n)
            return err_set(e, ERR_CORRUPT,
                           "%s: document %lld: bytes %zu to %zu are to go, and it has %zu: the file was changed while "
                           "it was read, or the work folder is of another; remove that and start again",
                           source->path, (long long)corpus_where(v->corpus, source->id).number, a, b, now->n);
        if (open && a <= to) {
            if (b > to) to = b;
            continue;
        }
        if (open) code = remove_stretch(v, step, source, now, from, to, first, &done, e);
        memcpy(first, s->next, sizeof first);
        from = a;
        to = b;
        open = true;
    }
    if (!code && open) code = remove_stretch(v, step, source, now, from, to, first, &done, e);
    if (code || *removed || !done) return code;
    str_add(&v->spare, now->text + done, now->n - done);
    struct str swap = v->text;
    v->text = v->spare;
    v->spare = swap;
    now->text = v->text.p;
    now->n = v->text.n;
    *changed = true;
    return OK;
}

int view_next(struct view *v, struct corpus_document *d, bool *changed, struct err *e)
{
    for (;;) {
        struct corpus_document source;
        int got = corpus_next(v->corpus, &source, e);
        if (got <= 0) return got;
        v->n_documents++;
        v->n_bytes += (int64_t)source.n;
        *d = source;
        *changed = false;
        bool removed = false;
        for (int i = 0; i < v->n_steps && !removed; i++) {
            struct steps_edits *s = &v->step[i];
            int code = OK;
            /* Edits of documents before this one: of what an earlier step removed there is none, and of units that are
             * passed over there are. */
            while (!code && s->any && s->next[0] < source.id) code = advance(s, e);
            if (!code) code = apply(v, i, &source, d, &removed, changed, e);
            if (code) return code;
        }
        if (!removed) return 1;
    }
}
