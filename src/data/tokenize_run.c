/* SPDX-License-Identifier: Apache-2.0 */
/* tokenize_run.c: parts of the source on a conveyor: read in order, encoded by any thread, delivered in order.
 *
 * Small inputs are delivered to the token file at once. Others are delivered to the work file (tokenize_work.h), and
 * when the inputs are at their end all of it is copied to the token file, at the speed of the disk. So a kill loses
 * what is on the belt, some MiB a thread, and nothing is encoded twice.
 *
 * A part that goes on in the middle of a stretch needs the encoder of the part before: such parts share a strand, and
 * the conveyor keeps them in turn.
 */
#include "data/tokenize_run.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/conveyor.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "data/tokenize_work.h"
#include "token/text_parts.h"

struct strand {
    struct encoder *encoder; /* made by who works on the first of its parts */
    struct strand *next;     /* in the list of all */
};

struct item {
    struct part part;
    struct tokens ids;
    uint32_t *ends;
    int64_t n_ends, ends_room;
    struct str told;               /* bad records that were passed over while it was read */
    struct strand *before, *after; /* of the stretch that the part begins in the middle of; that it ends in */
};

struct state {
    const struct tokenize_run *run;
    struct parts *parts;
    struct encoder **encoders; /* one per thread */
    struct strand *strand;     /* of the part read last; NULL: it ended with its stretch */
    struct strand *strands;    /* all there are */
    struct tokenfile_writer *writer;
    struct work *work;         /* NULL: tokens go to the writer at once */
    struct work_piece piece;   /* the last that was delivered */
    bool inside;               /* the writer is inside a document */
    struct part_begin *begins; /* documents that the writer comes to next: begins[next_begin..n_begins) */
    int64_t next_begin, n_begins, begins_room, n_bad;
    int64_t bytes_at_start, n_tokens;
    double start_s, shown_s;
    bool shown;
};

void tokenize_tell(void *told, const char *what) { str_add(told, what, strlen(what) + 1); }

int tokenize_given_up(const atomic_int *give_up, struct err *e)
{
    return give_up && atomic_load(give_up) ? err_set(e, ERR_SIGNAL, "stopped while texts were tokenized") : OK;
}

/* -- the belt ----------------------------------------------------------------------------------------------- */

static struct strand *strand_new(struct state *s)
{
    struct strand *x = xcalloc(1, sizeof *x);
    x->next = s->strands;
    return s->strands = x;
}

static void strand_free(struct state *s, struct strand *x)
{
    struct strand **at = &s->strands;
    while (*at != x) at = &(*at)->next;
    *at = x->next;
    encoder_free(x->encoder);
    xfree(x);
}

static int read_item(void *arg, void *at, bool *follows, struct err *e)
{
    struct state *s = arg;
    struct item *it = at;
    int got = tokenize_given_up(s->run->give_up, e);
    if (!got) got = parts_read(s->parts, &it->part, e);
    if (got <= 0) return got;
    str_clear(&it->told);
    if (s->run->told) {
        str_add(&it->told, s->run->told->p, s->run->told->n);
        str_clear(s->run->told);
    }
    *follows = it->part.follows;
    it->before = it->part.follows ? s->strand : NULL;
    bool same = it->part.follows && it->part.n_ends == 0; /* no stretch ends in it */
    it->after = !it->part.open ? NULL : same ? it->before : strand_new(s);
    s->strand = it->after;
    return 1;
}

/* One stretch, or its beginning or end: from..to of the part's text. */
static int encode(struct encoder *c, struct item *it, size_t from, size_t to, bool ends, struct err *e)
{
    int code = to > from ? encoder_feed(c, it->part.text + from, to - from, &it->ids, e) : OK;
    return code || !ends ? code : encoder_end(c, &it->ids, e);
}

static void end_document(struct item *it)
{
    CHECK(it->ids.n <= UINT32_MAX, "a part of %lld tokens", (long long)it->ids.n);
    GROW(it->ends, it->n_ends, it->ends_room, 1);
    it->ends[it->n_ends++] = (uint32_t)it->ids.n;
}

static int work_item(void *arg, int member, void *at, struct err *e)
{
    struct state *s = arg;
    struct item *it = at;
    const struct part *p = &it->part;
    struct encoder **own = &s->encoders[member];
    if (!*own) *own = encoder_new(s->run->tokenizer);
    it->ids.n = it->n_ends = 0;
    size_t from = 0;
    int code = OK;
    for (int64_t i = 0; i < p->n_ends && !code; i++) {
        bool first = i == 0 && it->before;
        code = encode(first ? it->before->encoder : *own, it, from, p->ends[i].at, true, e);
        if (p->ends[i].document) end_document(it);
        from = p->ends[i].at;
    }
    if (it->after && it->after != it->before) it->after->encoder = encoder_new(s->run->tokenizer);
    if (it->after && !code) code = encode(it->after->encoder, it, from, p->n, false, e);
    return code;
}

/* -- where tokens go ---------------------------------------------------------------------------------------- */

/* The writer is inside a document from here on. */
static int begin_document(struct state *s, struct err *e)
{
    if (s->inside) return OK;
    s->inside = true;
    const struct part_begin *b = s->next_begin < s->n_begins ? &s->begins[s->next_begin++] : NULL;
    if (!b || b->file < 0 || b->file >= source_n_files(s->run->source) || b->offset < -1)
        return err_set(e, ERR_CORRUPT, "%s.work: tells of a document that did not begin in any input; remove it",
                       s->run->out_path);
    return tokenfile_origin_next(s->writer, source_path(s->run->source, b->file), b->offset, e);
}

static int append(struct state *s, const int32_t *ids, int64_t n, struct err *e)
{
    int32_t vocab = tokenizer_vocab(s->run->tokenizer);
    for (int64_t i = 0; s->work && i < n; i++)
        if (ids[i] < 0 || ids[i] >= vocab)
            return err_set(e, ERR_CORRUPT, "%s.work: holds token %d of %d; remove it", s->run->out_path, ids[i], vocab);
    int code = n ? begin_document(s, e) : OK;
    return code ? code : tokenfile_append(s->writer, ids, n, e);
}

static void list_bad(struct state *s, const struct work_piece *p)
{
    for (const char *at = p->told; at < p->told + p->told_bytes; at += strlen(at) + 1) {
        s->n_bad++;
        if (s->run->bad) bad_list_add(s->run->bad, at);
    }
}

static int to_writer(void *arg, const struct work_piece *p, struct err *e)
{
    struct state *s = arg;
    int64_t at = 0;
    int code = tokenize_given_up(s->run->give_up, e);
    list_bad(s, p);
    s->n_begins -= s->next_begin;
    if (s->n_begins) memmove(s->begins, s->begins + s->next_begin, to_size(s->n_begins) * sizeof *s->begins);
    s->next_begin = 0;
    GROW(s->begins, s->n_begins, s->begins_room, p->n_begins);
    if (p->n_begins) memcpy(s->begins + s->n_begins, p->begins, to_size(p->n_begins) * sizeof *s->begins);
    s->n_begins += p->n_begins;
    for (int64_t i = 0; i < p->n_ends && !code; i++) {
        code = append(s, p->ids + at, p->ends[i] - at, e);
        if (!code) code = begin_document(s, e);
        if (!code) code = tokenfile_end_document(s->writer, e);
        s->inside = false;
        at = p->ends[i];
    }
    return code ? code : append(s, p->ids + at, p->n_ids - at, e);
}

static void show(struct state *s, int64_t done)
{
    double now = clock_now_s(), every = log_is_terminal() ? 0.2 : 10, took = now - s->start_s;
    if (now - s->shown_s < every) return;
    s->shown_s = now;
    s->shown = true;
    int64_t all = source_bytes(s->run->source), here = done - s->bytes_at_start;
    double part = all > 0 ? (double)done / (double)all : 1, rate = (double)here / (took > 1e-3 ? took : 1e-3);
    if (part > 1) part = 1;
    char bar[25], a[32], b[32], tokens[32], per_s[32], left[32] = "";
    for (int i = 0; i < 24; i++) bar[i] = i < (int)(24 * part) ? '#' : '.';
    bar[24] = 0;
    if (here > 0) str_duration(left, (double)(all - done) / rate);
    log_status("tokenizing [%s] %.0f %%, %s of %s, %s tokens, %s/s, %s left", bar, 100 * part,
               str_bytes(a, (double)done), str_bytes(b, (double)all), str_count(tokens, (double)s->n_tokens),
               str_bytes(per_s, rate), *left ? left : "?");
}

static int deliver_item(void *arg, void *at, struct err *e)
{
    struct state *s = arg;
    struct item *it = at;
    if (it->before && it->before != it->after) strand_free(s, it->before);
    s->piece = (struct work_piece){
        .after = it->part.after,
        .open = it->part.open,
        .skipped = it->part.source_skipped,
        .ids = it->ids.ids,
        .n_ids = it->ids.n,
        .ends = it->ends,
        .n_ends = it->n_ends,
        .begins = it->part.begins,
        .n_begins = it->part.n_begins,
        .told = it->told.p,
        .told_bytes = (int64_t)it->told.n,
    };
    snprintf(s->piece.skipped_text, sizeof s->piece.skipped_text, "%s", source_skipped(s->run->source));
    int code = s->work ? work_add(s->work, &s->piece, e) : to_writer(s, &s->piece, e);
    s->n_tokens += it->ids.n + it->n_ends;
    show(s, it->part.source_done);
    return code;
}

/* -- the run ------------------------------------------------------------------------------------------------ */

static int run_belt(struct state *s, struct err *e)
{
    static const struct conveyor_ops ops = {read_item, work_item, deliver_item};
    int n_items = s->run->n_threads == 1 ? 1 : 2 * s->run->n_threads + 2;
    struct item *items = xcalloc((size_t)n_items, sizeof *items);
    void **list = xmalloc((size_t)n_items * sizeof *list);
    for (int i = 0; i < n_items; i++) list[i] = &items[i];
    s->encoders = xcalloc((size_t)s->run->n_threads, sizeof(struct encoder *));
    s->start_s = s->shown_s = clock_now_s();
    s->bytes_at_start = source_bytes_done(s->run->source);
    int code = conveyor_run(&ops, s, list, n_items, s->run->n_threads, e);
    if (s->shown) log_status_end();
    while (s->strands) strand_free(s, s->strands);
    for (int i = 0; i < s->run->n_threads; i++) encoder_free(s->encoders[i]);
    xfree(s->encoders);
    for (int i = 0; i < n_items; i++) {
        part_fini(&items[i].part);
        tokens_free(&items[i].ids);
        xfree(items[i].ends);
        str_free(&items[i].told);
    }
    xfree(list);
    xfree(items);
    return code;
}

char *tokenize_work_path(const struct tokenize_run *run)
{
    struct str s = {0};
    str_printf(&s, "%s.work", run->out_path);
    return s.p;
}

/* What another run left is gone on with. */
static int open_work(struct state *s, struct err *e)
{
    char *path = tokenize_work_path(s->run);
    const uint64_t about[] = {s->run->key, PARTS_VERSION};
    int width = tokenizer_vocab(s->run->tokenizer) <= 1 << 16 ? 2 : 4;
    int code = work_open(&s->work, path, hash64(about, sizeof about), width, &s->piece, e);
    if (!code && s->piece.after.file >= 0) {
        char done[32];
        log_info("data: goes on behind %s of text, %lld documents: %s", str_bytes(done, (double)s->piece.after.bytes),
                 (long long)s->piece.after.documents, path);
        if (!s->piece.whole)
            code = parts_seek(s->parts, &s->piece.after, s->piece.skipped, s->piece.skipped_text, s->run->give_up, e);
        if (s->run->told) str_clear(s->run->told); /* bad records on the way are in the work already */
    }
    xfree(path);
    return code;
}

/* The inputs are at their end; what was told behind the last part comes with that. */
static int finish(struct state *s, struct err *e)
{
    s->piece.whole = true;
    s->piece.open = false;
    s->piece.n_begins = s->piece.n_ids = s->piece.n_ends = 0;
    s->piece.told = s->run->told ? s->run->told->p : NULL;
    s->piece.told_bytes = s->run->told ? (int64_t)s->run->told->n : 0;
    s->piece.skipped = source_n_skipped(s->run->source);
    snprintf(s->piece.skipped_text, sizeof s->piece.skipped_text, "%s", source_skipped(s->run->source));
    return s->work ? work_add(s->work, &s->piece, e) : to_writer(s, &s->piece, e);
}

void tokenize_say_kept(const struct tokenize_run *run, struct err *e)
{
    char *path = tokenize_work_path(run);
    struct err why = *e;
    err_set(e, why.code, "%.700s; what was done is kept in %.200s, and goes on from there when started again", why.text,
            path);
    xfree(path);
}

int tokenize_run(const struct tokenize_run *run, struct tokenfile_writer *w, struct tokenize_result *r, struct err *e)
{
    struct seams seams;
    seams_find(&seams, run->tokenizer);
    struct state s = {.run = run,
                      .writer = w,
                      .parts = parts_new(run->source, &seams, run->sizes),
                      .piece.after.file = -1};
    double start = clock_now_s();
    int code = source_bytes(run->source) >= run->work_from ? open_work(&s, e) : OK;
    int64_t before = s.piece.after.bytes;
    if (!code && !s.piece.whole) {
        code = run_belt(&s, e);
        if (!code) code = finish(&s, e);
    }
    if (!code && s.work) code = work_replay(s.work, to_writer, &s, e);
    *r = (struct tokenize_result){.bytes = s.piece.after.bytes,
                                  .bytes_before = before,
                                  .documents = s.piece.after.documents,
                                  .tokens = tokenfile_written(w),
                                  .skipped = s.piece.skipped,
                                  .bad = s.n_bad,
                                  .seconds = clock_now_s() - start};
    if (code && s.work && s.piece.after.file >= 0 && code != ERR_SIGNAL) tokenize_say_kept(run, e);
    work_close(s.work, false);
    parts_free(s.parts);
    xfree(s.begins);
    return code;
}

void tokenize_run_done(const struct tokenize_run *run)
{
    char *path = tokenize_work_path(run);
    unlink(path);
    xfree(path);
}
