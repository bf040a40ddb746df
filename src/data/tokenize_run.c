/* SPDX-License-Identifier: Apache-2.0 */
/* tokenize_run.c: parts of the source on conveyors: read in order, encoded by any thread, delivered in order.
 *
 * Small inputs are one lot on one belt, delivered to the token file at once. Others are read in lots (source/source.h),
 * as many at once as there are threads, each on a belt of its own, and delivered to the work file (tokenize_work.h);
 * when all lots are done, they are copied to the token file in their order, at the speed of the disk. So a kill loses
 * what is on the belts, some MiB a thread, nothing is encoded twice, and what comes out does not hang on who read what
 * when.
 *
 * A part that goes on in the middle of a stretch needs the encoder of the part before: such parts share a strand, and
 * the conveyor keeps them in turn.
 */
#include "data/tokenize_run.h"

#include <pthread.h>
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

enum { BELTS_MAX = 64 };

struct strand {
    struct encoder *encoder; /* made by who works on the first of its parts */
    struct strand *next;     /* in the list of all */
};

/* One reader with its belt. */
struct reader {
    struct source *source;
    struct str told_here, *told; /* bad records that were passed over, since the last part */
    struct parts *parts;         /* of its lot; NULL: it takes another */
    int64_t lot, seq;            /* of the record that comes next */
    int64_t skipped;             /* source_n_skipped when the lot began */
    struct strand *strand;       /* of the part read last; NULL: it ended with its stretch */
    int64_t done;                /* source_bytes_done of what was delivered */
};

struct item {
    struct reader *reader;
    struct part part;
    struct tokens ids;
    uint32_t *ends;
    int64_t n_ends, ends_room;
    struct str told;               /* bad records that were passed over while it was read */
    struct strand *before, *after; /* of the stretch that the part begins in the middle of; that it ends in */
    int64_t lot, seq, skipped;
    char skipped_text[SKIPPED_TEXT]; /* where the reader skipped none before this lot */
    bool ends_lot;                   /* there is no more of it, and nothing in this item */
};

/* A run of units that are read one after the other, and how far they are in the work, or in the token file. */
struct lot {
    int64_t unit, n_units;
    int64_t bytes, documents;
    int64_t skipped;
    char *skipped_text;
};

struct state {
    const struct tokenize_run *run;
    struct seams seams;
    struct lot *lots;
    int64_t n_lots, lots_room;
    atomic_llong next_lot;
    struct reader *readers;
    int n_readers;
    struct encoder **encoders; /* one per thread */

    pthread_mutex_t lock;   /* guards the list of strands */
    struct strand *strands; /* all there are */

    struct tokenfile_writer *writer;
    struct work *work;         /* NULL: tokens go to the writer at once */
    bool inside;               /* the writer is inside a document */
    struct part_begin *begins; /* documents that the writer comes to next: begins[next_begin..n_begins) */
    int64_t next_begin, n_begins, begins_room, n_bad;
    int64_t bytes_at_start, done_before, n_tokens, bytes, documents; /* done_before: of lots that are done already */
    double start_s, shown_s;
    bool shown;
};

void tokenize_tell(void *told, const char *what) { str_add(told, what, strlen(what) + 1); }

int tokenize_given_up(const atomic_int *give_up, struct err *e)
{
    return give_up && atomic_load(give_up) ? err_set(e, ERR_SIGNAL, "stopped while texts were tokenized") : OK;
}

/* -- the belts ---------------------------------------------------------------------------------------------- */

static struct strand *strand_new(struct state *s)
{
    struct strand *x = xcalloc(1, sizeof *x);
    pthread_mutex_lock(&s->lock);
    x->next = s->strands;
    s->strands = x;
    pthread_mutex_unlock(&s->lock);
    return x;
}

static void strand_free(struct state *s, struct strand *x)
{
    pthread_mutex_lock(&s->lock);
    struct strand **at = &s->strands;
    while (*at != x) at = &(*at)->next;
    *at = x->next;
    pthread_mutex_unlock(&s->lock);
    encoder_free(x->encoder);
    xfree(x);
}

/* The reader takes the next lot that is not done, from where it is. 1; 0: there is none. */
static int take_lot(struct state *s, struct reader *r, struct err *e)
{
    const struct work_lot *l = NULL;
    int64_t i;
    do {
        i = atomic_fetch_add(&s->next_lot, 1);
        if (i >= s->n_lots) return 0;
        if (s->work) l = work_lot(s->work, i);
    } while (l && l->done);
    r->lot = i;
    r->seq = l ? l->n : 0;
    r->strand = NULL;
    if (s->work) source_go_to_lot(r->source, s->lots[i].unit, s->lots[i].n_units);
    r->parts = parts_new(r->source, &s->seams, s->run->sizes);
    int code = l ? parts_seek(r->parts, &l->after, s->run->give_up, e) : OK;
    r->skipped = source_n_skipped(r->source) - (l ? l->skipped : 0);
    if (l && l->n && r->told) str_clear(r->told); /* bad records on the way are in the work already */
    return code ? code : 1;
}

static int read_item(void *arg, void *at, bool *follows, struct err *e)
{
    struct state *s = arg;
    struct item *it = at;
    struct reader *r = it->reader;
    int got = tokenize_given_up(s->run->give_up, e);
    if (!got) got = r->parts ? 1 : take_lot(s, r, e);
    if (got <= 0) return got;
    got = parts_read(r->parts, &it->part, e);
    if (got < 0) return got;
    str_clear(&it->told);
    if (r->told) {
        str_add(&it->told, r->told->p, r->told->n);
        str_clear(r->told);
    }
    it->lot = r->lot;
    it->seq = r->seq++;
    it->skipped = it->part.source_skipped - r->skipped;
    bool first = it->skipped && r->skipped == 0;
    snprintf(it->skipped_text, sizeof it->skipped_text, "%s", first ? source_skipped(r->source) : "");
    it->ends_lot = got == 0;
    *follows = it->part.follows;
    it->before = it->part.follows ? r->strand : NULL;
    bool same = it->part.follows && it->part.n_ends == 0; /* no stretch ends in it */
    it->after = !it->part.open ? NULL : same ? it->before : strand_new(s);
    r->strand = it->after;
    if (it->ends_lot) {
        parts_free(r->parts);
        r->parts = NULL;
    }
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
    const struct tokens *begin = tokenizer_begin(s->run->tokenizer);
    int code = tokenfile_origin_next(s->writer, source_path(s->run->source, b->file), b->offset, e);
    return code || !begin->n ? code : tokenfile_append(s->writer, begin->ids, begin->n, e);
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

static void show(struct state *s)
{
    double now = clock_now_s(), every = log_is_terminal() ? 0.2 : 10, took = now - s->start_s;
    if (now - s->shown_s < every) return;
    s->shown_s = now;
    s->shown = true;
    int64_t all = source_bytes(s->run->source), done = s->done_before;
    for (int i = 0; i < s->n_readers; i++) done += s->readers[i].done;
    int64_t here = done - s->bytes_at_start;
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

/* How far a lot is. */
static void note_lot(struct state *s, int64_t lot, const struct parts_place *after, int64_t skipped, const char *text)
{
    struct lot *l = &s->lots[lot];
    s->bytes += after->bytes - l->bytes;
    s->documents += after->documents - l->documents;
    l->bytes = after->bytes;
    l->documents = after->documents;
    l->skipped = skipped;
    if (*text && !l->skipped_text) l->skipped_text = xstrdup(text);
}

static int deliver_item(void *arg, void *at, struct err *e)
{
    struct state *s = arg;
    struct item *it = at;
    if (it->before && it->before != it->after) strand_free(s, it->before);
    struct work_piece p = {
        .lot = it->lot,
        .seq = it->seq,
        .after = it->part.after,
        .open = it->part.open,
        .done = it->ends_lot,
        .skipped = it->skipped,
        .ids = it->ids.ids,
        .n_ids = it->ids.n,
        .ends = it->ends,
        .n_ends = it->n_ends,
        .begins = it->part.begins,
        .n_begins = it->part.n_begins,
        .told = it->told.p,
        .told_bytes = (int64_t)it->told.n,
    };
    memcpy(p.skipped_text, it->skipped_text, sizeof p.skipped_text);
    int code = s->work ? work_add(s->work, &p, e) : to_writer(s, &p, e);
    s->n_tokens += it->ids.n + it->n_ends;
    it->reader->done = it->part.source_done;
    if (!code) note_lot(s, it->lot, &p.after, p.skipped, p.skipped_text);
    show(s);
    return code;
}

/* -- the run ------------------------------------------------------------------------------------------------ */

/* A reader per belt; without a work file the source itself, read from end to end. */
static void open_readers(struct state *s, int n)
{
    s->n_readers = n;
    s->readers = xcalloc((size_t)n, sizeof *s->readers);
    for (int i = 0; i < n; i++) {
        struct reader *r = &s->readers[i];
        r->told = !s->work ? s->run->told : s->run->told ? &r->told_here : NULL;
        r->source = s->work ? source_again(s->run->source, tokenize_tell, r->told) : s->run->source;
    }
}

static void close_readers(struct state *s)
{
    for (int i = 0; i < s->n_readers; i++) {
        parts_free(s->readers[i].parts);
        str_free(&s->readers[i].told_here);
        if (s->work) source_close(s->readers[i].source);
    }
    xfree(s->readers);
}

static int run_belts(struct state *s, int n_belts, struct err *e)
{
    static const struct conveyor_ops ops = {read_item, work_item, deliver_item};
    int n_threads = s->run->n_threads, n_each = n_threads == 1 ? 1 : (2 * n_threads + 1) / n_belts + 1;
    int n_items = n_belts * n_each;
    struct item *items = xcalloc((size_t)n_items, sizeof *items);
    void **list = xmalloc((size_t)n_items * sizeof *list);
    open_readers(s, n_belts);
    for (int i = 0; i < n_items; i++) {
        list[i] = &items[i];
        items[i].reader = &s->readers[i / n_each];
    }
    s->encoders = xcalloc((size_t)n_threads, sizeof(struct encoder *));
    s->start_s = s->shown_s = clock_now_s();
    int code = conveyor_run_belts(&ops, s, list, n_belts, n_each, n_threads, e);
    if (s->shown) log_status_end();
    while (s->strands) strand_free(s, s->strands);
    for (int i = 0; i < n_threads; i++) encoder_free(s->encoders[i]);
    xfree(s->encoders);
    for (int i = 0; i < n_items; i++) {
        part_fini(&items[i].part);
        tokens_free(&items[i].ids);
        xfree(items[i].ends);
        str_free(&items[i].told);
    }
    xfree(list);
    xfree(items);
    close_readers(s);
    return code;
}

char *tokenize_work_path(const struct tokenize_run *run)
{
    struct str s = {0};
    str_printf(&s, "%s.work", run->out_path);
    return s.p;
}

static void add_lot(struct state *s, int64_t unit, int64_t n)
{
    GROW(s->lots, s->n_lots, s->lots_room, 1);
    s->lots[s->n_lots++] = (struct lot){.unit = unit, .n_units = n};
}

static int make_lots(struct state *s, uint64_t *key, struct err *e)
{
    int64_t n_units;
    int code = source_units(s->run->source, &n_units, e);
    struct hash64 h;
    hash64_init(&h);
    for (int64_t unit = 0; unit < n_units && !code; unit += s->lots[s->n_lots - 1].n_units) {
        add_lot(s, unit, source_lot(s->run->source, unit));
        struct source_unit_place where = source_unit_where(s->run->source, unit);
        const int64_t about[] = {unit, s->lots[s->n_lots - 1].n_units, where.from, where.bytes};
        hash64_add(&h, about, sizeof about);
    }
    *key = hash64_value(&h);
    return code;
}

/* What another run left is gone on with. */
static int open_work(struct state *s, struct err *e)
{
    uint64_t lots;
    int code = make_lots(s, &lots, e);
    if (code) return code;
    char *path = tokenize_work_path(s->run);
    const uint64_t about[] = {s->run->key, PARTS_VERSION, lots};
    int width = tokenizer_vocab(s->run->tokenizer) <= 1 << 16 ? 2 : 4;
    code = work_open(&s->work, path, hash64(about, sizeof about), width, s->n_lots, e);
    for (int64_t i = 0; i < s->n_lots && !code; i++) {
        const struct work_lot *l = work_lot(s->work, i);
        note_lot(s, i, &l->after, l->skipped, l->skipped_text ? l->skipped_text : "");
        for (int64_t k = 0; k < s->lots[i].n_units && l->done; k++)
            s->done_before += source_unit_where(s->run->source, s->lots[i].unit + k).bytes;
    }
    s->bytes_at_start = s->done_before;
    if (!code && s->bytes) {
        char done[32];
        log_info("data: goes on behind %s of text, %lld documents: %s", str_bytes(done, (double)s->bytes),
                 (long long)s->documents, path);
    }
    xfree(path);
    return code;
}

/* Belts: as many as there are lots to be done, and threads. */
static int run_lots(struct state *s, struct err *e)
{
    int64_t left = 0;
    for (int64_t i = 0; i < s->n_lots; i++) left += !s->work || !work_lot(s->work, i)->done;
    int most = s->run->n_threads < BELTS_MAX ? s->run->n_threads : BELTS_MAX;
    return left ? run_belts(s, left < most ? (int)left : most, e) : OK;
}

static void fill_result(const struct state *s, struct tokenize_result *r)
{
    *r = (struct tokenize_result){.bytes = s->bytes,
                                  .documents = s->documents,
                                  .tokens = tokenfile_written(s->writer),
                                  .bad = s->n_bad};
    for (int64_t i = 0; i < s->n_lots; i++) {
        const struct lot *l = &s->lots[i];
        r->skipped += l->skipped;
        if (l->skipped_text && !*r->skipped_text)
            snprintf(r->skipped_text, sizeof r->skipped_text, "%s", l->skipped_text);
    }
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
    struct state s = {.run = run, .writer = w};
    double start = clock_now_s();
    seams_find(&s.seams, run->tokenizer);
    CHECK(!pthread_mutex_init(&s.lock, NULL), "no mutex to be had");
    int code = OK;
    if (source_bytes(run->source) >= run->work_from) code = open_work(&s, e);
    else add_lot(&s, 0, 0);
    int64_t before = s.bytes;
    if (!code) code = run_lots(&s, e);
    if (!code && s.work) code = work_replay(s.work, to_writer, &s, e);
    fill_result(&s, r);
    r->bytes_before = before;
    r->seconds = clock_now_s() - start;
    if (code && s.work && s.bytes && code != ERR_SIGNAL) tokenize_say_kept(run, e);
    work_close(s.work, false);
    for (int64_t i = 0; i < s.n_lots; i++) xfree(s.lots[i].skipped_text);
    pthread_mutex_destroy(&s.lock);
    xfree(s.lots);
    xfree(s.begins);
    return code;
}

void tokenize_run_done(const struct tokenize_run *run)
{
    char *path = tokenize_work_path(run);
    unlink(path);
    xfree(path);
}
