/* SPDX-License-Identifier: Apache-2.0 */
/* cuts.c: windows of documents. Why in the file's order: then the counts of a window are those of every epoch, and
 * reading them is one pass over the table of ends. What epochs differ in is the order of samples (sampler.h) and which
 * of a window's pieces of one length meet. Rejected: windows of shuffled documents (other counts in every epoch:
 * finding epoch 50 would take fifty passes), and a number of samples fixed per window (documents that do not fit would
 * have to be cut, or samples be left empty).
 */
#include "data/cuts.h"

#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"

static int64_t documents_in(const struct cuts *s, int64_t w)
{
    int64_t first = w * s->rule.window, left = s->file->n_documents - first;
    return left < s->rule.window ? left : s->rule.window;
}

/* Where documents of window w begin, and the end of the last: n + 1 numbers. */
static int bounds_of(const struct cuts *s, int64_t w, int64_t *bounds, struct err *e)
{
    int64_t first = w * s->rule.window, n = documents_in(s, w);
    bounds[0] = 0;
    return first ? tokenfile_ends(s->file, first - 1, n + 1, bounds, e) : tokenfile_ends(s->file, 0, n, bounds + 1, e);
}

/* Packs window w; bounds as above and room for as many lengths. */
static int pack_window(const struct cuts *s, int64_t w, const uint64_t *shuffle, int64_t *bounds, int64_t *lengths,
                       struct pack *p, struct err *e)
{
    int64_t n = documents_in(s, w);
    int code = bounds_of(s, w, bounds, e);
    if (code) return code;
    for (int64_t i = 0; i < n; i++) lengths[i] = bounds[i + 1] - bounds[i];
    struct pack_options o = {.kind = s->rule.kind, .seq = s->rule.seq, .by_area = s->rule.by_area};
    if (shuffle) {
        o.shuffled = true;
        o.shuffle = rng_u64(*shuffle, rng_stream("data/window"), (uint64_t)w);
    }
    pack_documents(p, &o, lengths, n);
    return OK;
}

static void count(struct cuts *s, int64_t w, const struct pack *p, const int64_t *lengths)
{
    s->first[w + 1] = s->first[w] + p->n_samples;
    for (int64_t i = 0; i < p->n_pieces; i++) s->n_inputs += p->pieces[i].n;
    for (int64_t i = 0, n = documents_in(s, w); i < n; i++) {
        s->n_cut += lengths[i] - 1 > s->rule.seq;
        s->n_empty += lengths[i] < 2;
    }
}

int cuts_open(struct cuts *s, const struct tokenfile *f, const struct cuts_rule *r, const atomic_int *give_up,
              struct err *e)
{
    *s = (struct cuts){.file = f, .rule = *r};
    if (r->kind == PACK_JOINED) {
        s->n = (f->n_tokens - 1) / r->seq;
        s->n_inputs = s->n * r->seq;
        return OK;
    }
    CHECK(r->window >= 1, "windows of %lld documents", (long long)r->window);
    if (r->window > f->n_documents) s->rule.window = f->n_documents > 0 ? f->n_documents : 1; /* room for no more */
    r = &s->rule;
    s->n_windows = (f->n_documents + r->window - 1) / r->window;
    s->first = xcalloc(to_size(s->n_windows + 1), sizeof *s->first);
    int64_t *bounds = xmalloc(to_size(r->window + 1) * sizeof *bounds),
            *lengths = xmalloc(to_size(r->window + 1) * sizeof *lengths);
    struct hash64 ends;
    int code = OK;
    hash64_init(&ends);
    for (int64_t w = 0; w < s->n_windows && !code; w++) {
        struct pack p = {0};
        code = pack_window(s, w, NULL, bounds, lengths, &p, e);
        if (!code) {
            count(s, w, &p, lengths);
            hash64_add(&ends, bounds + 1, to_size(documents_in(s, w)) * sizeof *bounds);
        }
        pack_fini(&p);
        if (!code && give_up && atomic_load(give_up))
            code = err_set(e, ERR_SIGNAL, "stopped while the documents of %s were counted", f->path);
    }
    xfree(bounds);
    xfree(lengths);
    s->n = s->first[s->n_windows];
    s->ends_hash = hash64_value(&ends);
    if (code) cuts_close(s);
    return code;
}

void cuts_close(struct cuts *s)
{
    xfree(s->first);
    *s = (struct cuts){0};
}

/* The window that holds sample i: the last that does not begin behind it. */
static int64_t window_of(const struct cuts *s, int64_t i)
{
    int64_t lo = 0, hi = s->n_windows;
    while (hi - lo > 1) {
        int64_t mid = lo + (hi - lo) / 2;
        if (s->first[mid] <= i) lo = mid;
        else hi = mid;
    }
    return lo;
}

int cuts_pieces(const struct cuts *s, int64_t i, const uint64_t *shuffle, struct cuts_pieces *out, struct err *e)
{
    CHECK(i >= 0 && i < s->n, "sample %lld of %lld", (long long)i, (long long)s->n);
    if (s->rule.kind == PACK_JOINED) {
        *out = (struct cuts_pieces){xmalloc(sizeof *out->p), 1};
        out->p[0] = (struct cuts_piece){-1, i * s->rule.seq, s->rule.seq};
        return OK;
    }
    struct pack p = {0};
    int64_t w = window_of(s, i), *bounds = xmalloc(to_size(s->rule.window + 1) * sizeof *bounds),
            *lengths = xmalloc(to_size(s->rule.window + 1) * sizeof *lengths);
    int code = pack_window(s, w, shuffle, bounds, lengths, &p, e);
    if (!code) {
        int64_t at = i - s->first[w];
        if (s->rule.by_area && w % 2) at = p.n_samples - 1 - at;
        int64_t from = p.first[at], n = p.first[at + 1] - from;
        *out = (struct cuts_pieces){xmalloc(to_size(n) * sizeof *out->p), n};
        for (int64_t k = 0; k < n; k++) {
            const struct pack_piece *x = &p.pieces[from + k];
            out->p[k] = (struct cuts_piece){w * s->rule.window + x->document, bounds[x->document] + x->begin, x->n};
        }
    }
    pack_fini(&p);
    xfree(bounds);
    xfree(lengths);
    return code;
}
