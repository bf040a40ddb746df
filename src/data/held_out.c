/* SPDX-License-Identifier: Apache-2.0 */
/* held_out.c: a document is held out where the hash of (seed, its tokens), as a fraction of 2^64, is below the share.
 * Rejected: a view of the file that leaves documents out, which every reader of it (cuts, packing, hidden tokens,
 * pairs) would have to go through; and the first or last documents, for files are sorted by something. */
#include "data/held_out.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"

enum { PIECE = 1 << 16 }; /* tokens that are read at once */

void held_out_free(struct held_out *h)
{
    xfree(h->of);
    *h = (struct held_out){0};
}

static int gave_up(const atomic_int *give_up, struct err *e)
{
    return give_up && atomic_load(give_up) ? err_set(e, ERR_SIGNAL, "stopped while text was held out") : OK;
}

static int hash_document(const struct tokenfile *f, int64_t i, uint64_t seed, int32_t *room, uint64_t *out,
                         struct err *e)
{
    struct hash64 h;
    int64_t begin, end;
    int code = tokenfile_document(f, i, &begin, &end, e);
    hash64_init(&h);
    hash64_add(&h, &seed, sizeof seed);
    for (int64_t at = begin; !code && at < end; at += PIECE) {
        int64_t n = end - at < PIECE ? end - at : PIECE;
        code = tokenfile_read(f, at, n, room, e);
        if (!code) hash64_add(&h, room, (size_t)n * sizeof *room);
    }
    *out = hash64_value(&h);
    return code;
}

int held_out_choose(struct held_out *h, const struct tokenfile *f, const struct held_out_rule *r,
                    const atomic_int *give_up, struct err *e)
{
    const double all = 0x1p64;
    uint64_t seed = rng_u64(r->seed, rng_stream("data/held_out"), 0), least = UINT64_MAX, most = 0;
    int64_t first = 0, last = 0, held = 0;
    int32_t *room = xmalloc(PIECE * sizeof *room);
    int code = OK;
    *h = (struct held_out){.of = xcalloc((size_t)f->n_documents + 1, 1), .n = f->n_documents};
    for (int64_t i = 0; !code && i < h->n; i++) {
        uint64_t x;
        code = gave_up(give_up, e);
        if (!code) code = hash_document(f, i, seed, room, &x, e);
        if (code) break;
        if (x < least) least = x, first = i;
        if (x >= most) most = x, last = i;
        h->of[i] = (double)x < r->share * all;
        held += h->of[i];
    }
    if (!code && h->n > 1 && held == 0) h->of[first] = 1;
    if (!code && h->n > 1 && held == h->n) h->of[last] = 0;
    xfree(room);
    if (code) held_out_free(h);
    return code;
}

/* ---- one side as a file ---- */
struct side {
    const struct tokenfile *f;
    struct tokenfile_writer *w;
    int32_t *ids;
    unsigned char *mask;
    bool masked;
    int64_t tokens, documents;
};

static int append(struct side *s, int64_t n, struct err *e)
{
    s->tokens += n;
    return s->masked ? tokenfile_append_masked(s->w, s->ids, s->mask, n, e) : tokenfile_append(s->w, s->ids, n, e);
}

static int end_document(struct side *s, bool trained, struct err *e)
{
    s->documents++;
    return s->masked ? tokenfile_end_document_masked(s->w, trained, e) : tokenfile_end_document(s->w, e);
}

/* Tokens [begin, end) as a document; an end of text at their end is its own. */
static int copy(struct side *s, int64_t begin, int64_t end, struct err *e)
{
    bool ended = false, trained = true;
    int code = OK;
    for (int64_t at = begin; !code && at < end; at += PIECE) {
        int64_t n = end - at < PIECE ? end - at : PIECE;
        code = tokenfile_read(s->f, at, n, s->ids, e);
        if (!code && s->masked) code = tokenfile_mask(s->f, at, n, s->mask, e);
        if (code) return code;
        ended = at + n == end && s->ids[n - 1] == s->f->head.eos;
        trained = !ended || !s->masked || s->mask[n - 1];
        if (n > ended) code = append(s, n - ended, e);
    }
    return code ? code : end_document(s, trained, e);
}

static int copy_document(struct side *s, int64_t i, const struct held_out *h, const struct held_out_rule *r,
                         struct err *e)
{
    int64_t begin, end, byte;
    char *input = NULL;
    int code = tokenfile_document(s->f, i, &begin, &end, e);
    if (code) return code;
    if (h->n > 1 && (h->of[i] != 0) != r->valid) return OK;
    if (h->n == 1) { /* the end of the only one */
        int64_t cut = end - 1 - (int64_t)(r->share * (double)(end - begin));
        if (cut < begin) cut = begin;
        begin = r->valid ? cut : begin;
        end = r->valid ? end : cut;
    }
    code = tokenfile_origin(s->f, i, &input, &byte, e);
    if (!code && input) code = tokenfile_origin_next(s->w, input, byte, e);
    xfree(input);
    return code ? code : copy(s, begin, end, e);
}

static void say(const struct side *s, const struct held_out *h, const struct held_out_rule *r)
{
    const char *name = s->f->made_from ? s->f->made_from : s->f->path;
    if (!r->valid) return;
    if (h->n == 1)
        log_info("data: %s: is one document, and the end of it, %lld of %lld tokens, is held out", name,
                 (long long)s->tokens, (long long)s->f->n_tokens);
    else
        log_info("data: %s: %lld of %lld documents, %lld of %lld tokens, are held out", name, (long long)s->documents,
                 (long long)h->n, (long long)(s->tokens + s->documents), (long long)s->f->n_tokens);
}

static int make(const struct tokenfile *f, const char *path, uint64_t key, const struct held_out *h,
                const struct held_out_rule *r, const atomic_int *give_up, bool *busy, struct err *e)
{
    struct tokenfile_head head = f->head;
    struct side s = {.f = f, .masked = tokenfile_masked(f)};
    head.key = key;
    int code = tokenfile_create(&s.w, busy, path, &head, e);
    if (code) return code;
    s.ids = xmalloc(PIECE * sizeof *s.ids);
    s.mask = xmalloc(PIECE);
    for (int64_t i = 0; !code && i < h->n; i++) {
        code = gave_up(give_up, e);
        if (!code) code = copy_document(&s, i, h, r, e);
    }
    xfree(s.ids);
    xfree(s.mask);
    if (code) {
        tokenfile_abandon(s.w);
        return code;
    }
    code = tokenfile_publish(s.w, e);
    if (!code) say(&s, h, r);
    return code;
}

/* Of what the side follows from. */
static uint64_t key_of(const struct tokenfile *f, const struct held_out *h, const struct held_out_rule *r)
{
    struct hash64 x;
    static const char version[] = "held out 1";
    hash64_init(&x);
    hash64_add(&x, version, sizeof version);
    hash64_add(&x, &f->head.fingerprint, sizeof f->head.fingerprint);
    hash64_add(&x, &f->head.eos, sizeof f->head.eos);
    for (int t = 0; t < TOKENFILE_TABLES; t++) hash64_add(&x, &f->table[t].sums_sum, sizeof f->table[t].sums_sum);
    hash64_add(&x, &f->n_tokens, sizeof f->n_tokens);
    hash64_add(&x, &f->n_documents, sizeof f->n_documents);
    hash64_add(&x, h->of, (size_t)h->n);
    hash64_add(&x, &r->share, h->n == 1 ? sizeof r->share : 0);
    hash64_add(&x, &r->valid, sizeof r->valid);
    return hash64_value(&x);
}

static int make_cached(const struct tokenfile *f, const char *path, uint64_t key, const struct held_out *h,
                       const struct held_out_rule *r, const atomic_int *give_up, struct err *e)
{
    for (bool said = false;; said = true) {
        bool busy = false;
        int code = tokenfile_is_cached(path, key, e);
        if (code) return code < 0 ? code : OK;
        code = make(f, path, key, h, r, give_up, &busy, e);
        if (!busy) return code;
        if (!said) log_info("data: waiting for another process to write %s; it holds %s.lock", path, path);
        clock_sleep_s(0.2);
        if (gave_up(give_up, e)) return ERR_SIGNAL;
    }
}

int held_out_take(struct tokenfile *f, const struct held_out *h, const struct held_out_rule *r, const char *cache_dir,
                  const atomic_int *give_up, struct err *e)
{
    char name[40];
    struct tokenfile side = {.file.fd = -1};
    uint64_t key = key_of(f, h, r);
    const char *from = f->made_from ? f->made_from : f->path;
    if (f->n_documents != h->n)
        return err_set(e, ERR_REQUEST, "%s: has %lld documents, and what it goes with %lld", from,
                       (long long)f->n_documents, (long long)h->n);
    snprintf(name, sizeof name, "%016" PRIx64 ".tok", key);
    char *path = fs_join(cache_dir, name);
    int code = fs_mkdirs(cache_dir, e);
    if (!code) code = make_cached(f, path, key, h, r, give_up, e);
    if (!code) code = tokenfile_open(&side, path, e);
    if (!code) {
        side.made_from = xstrdup(from);
        tokenfile_close(f);
        *f = side;
    }
    xfree(path);
    return code;
}
