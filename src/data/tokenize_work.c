/* SPDX-License-Identifier: Apache-2.0 */
/* tokenize_work.c: records behind each other, each naming the checksum of the one before; where those of a lot are, is
 * kept in memory, 8 bytes a record.
 *
 * Nothing is synced: a process that is killed has handed its bytes to the system, and what a power cut leaves out shows
 * in the checksums. A record is as small as two bytes per token; the file is as large as the token file will be.
 * Rejected: going on with the token file itself (what it ends with is only known at the end, and it is another room's
 * format).
 */
#include "data/tokenize_work.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "data/tokenize_work_format.h"
#include "token/tokens.h"

struct work {
    char *path;
    struct fs_writer *out; /* NULL: not written to */
    int width;
    uint64_t head_sum, last_sum;
    int64_t bytes; /* of what is believed */
    struct work_lot *lots;
    int64_t n_lots;
    unsigned char *body; /* of one record */
    size_t body_room;
};

/* Where the parts of a body begin: documents that begin, ids, ends, what was told; and its end. */
struct body {
    size_t ids, ends, told, end;
};
static struct body body_of(const struct work *w, const struct work_record_head *h)
{
    struct body b;
    b.ids = to_size(h->n_begins) * sizeof(struct part_begin);
    b.ends = b.ids + (to_size(h->n_ids) * (size_t)w->width + 3) / 4 * 4;
    b.told = b.ends + to_size(h->n_ends) * sizeof(uint32_t);
    b.end = (b.told + to_size(h->told_bytes) + 7) / 8 * 8;
    return b;
}

static bool counts_can_be(const struct work_record_head *h)
{
    const int64_t counts[] = {h->n_begins, h->n_ids, h->n_ends, h->told_bytes};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (counts[i] < 0 || counts[i] > COUNT_MAX) return false;
    return true;
}

/* -- reading ------------------------------------------------------------------------------------------------ */

/* Ends are in order and among the ids, and what was told ends. */
static bool body_can_be(const struct work *w, const struct work_record_head *h)
{
    struct body b = body_of(w, h);
    const uint32_t *ends = (const uint32_t *)(const void *)(w->body + b.ends);
    for (int64_t i = 0; i < h->n_ends; i++)
        if (ends[i] > h->n_ids || (i && ends[i] < ends[i - 1])) return false;
    return h->told_bytes == 0 || w->body[b.told + to_size(h->told_bytes) - 1] == 0;
}

/* The record at `at`, its body into w->body. 1; 0: there is none that can be believed; < 0: it cannot be read.
 * before: the checksum of the record before; NULL: any. */
static int read_record(struct work *w, const struct fs_file *f, int64_t at, const uint64_t *before,
                       struct work_record_head *h, struct err *e)
{
    if (f->bytes - at < (int64_t)sizeof *h) return 0;
    int code = fs_file_read(f, at, sizeof *h, h, e);
    if (code) return code;
    if ((before && h->before != *before) || h->sum != hash64(h, offsetof(struct work_record_head, sum))) return 0;
    if (!counts_can_be(h)) return 0;
    size_t n = body_of(w, h).end;
    if ((uint64_t)(f->bytes - at) - sizeof *h < n) return 0;
    GROW(w->body, 0, w->body_room, n);
    code = n ? fs_file_read(f, at + (int64_t)sizeof *h, n, w->body, e) : OK;
    if (code) return code;
    return hash64(w->body, n) == h->body_sum && body_can_be(w, h);
}

static void place_of(const struct work_record_head *h, struct work_piece *p)
{
    p->after = h->after;
    p->lot = h->lot;
    p->seq = h->seq;
    p->open = h->open;
    p->done = h->done;
    p->skipped = h->skipped;
    memcpy(p->skipped_text, h->skipped_text, sizeof p->skipped_text);
    p->skipped_text[sizeof p->skipped_text - 1] = 0;
}

/* The record at `at` is its lot's next, or one that was there before anew. False: it cannot be. */
static bool enter(struct work *w, const struct work_piece *p, int64_t at)
{
    if (p->lot < 0 || p->lot >= w->n_lots) return false;
    struct work_lot *l = &w->lots[p->lot];
    if (l->done || p->seq < l->n || p->seq > l->all || (p->open && p->done)) return false;
    l->all = p->seq;
    GROW(l->at, l->all, l->room, 1);
    l->at[l->all++] = at;
    if (p->open) return true;
    l->n = l->all;
    l->after = p->after;
    l->done = p->done;
    l->skipped = p->skipped;
    if (*p->skipped_text && !l->skipped_text) l->skipped_text = xstrdup(p->skipped_text);
    return true;
}

/* Finds the records, and of each lot the last to go on from. */
static int scan(struct work *w, const struct fs_file *f, struct err *e)
{
    struct work_record_head h;
    struct work_piece p;
    int got;
    w->bytes = sizeof(struct work_head);
    while ((got = read_record(w, f, w->bytes, &w->last_sum, &h, e)) > 0) {
        place_of(&h, &p);
        if (!enter(w, &p, w->bytes)) break;
        w->bytes += (int64_t)(sizeof h + body_of(w, &h).end);
        w->last_sum = h.sum;
    }
    if (got < 0) return got;
    for (int64_t i = 0; i < w->n_lots; i++) w->lots[i].all = w->lots[i].n;
    if (w->bytes < f->bytes)
        log_info("data: %s: its last %lld of %lld bytes are of a record that is damaged or was not finished; from "
                 "there on the text is tokenized again",
                 w->path, (long long)(f->bytes - w->bytes), (long long)f->bytes);
    return OK;
}

/* Is what is there ours? 1, 0, < 0. */
static int look(struct work *w, uint64_t key, struct err *e)
{
    struct fs_file f = {.fd = -1};
    struct work_head h;
    if (fs_absent(w->path)) return 0;
    int code = fs_file_open(&f, w->path, e);
    if (!code && f.bytes >= (int64_t)sizeof h) code = fs_file_read(&f, 0, sizeof h, &h, e);
    bool whole = !code && f.bytes >= (int64_t)sizeof h && !memcmp(h.magic, WORK_MAGIC, 8) &&
                 h.sum == hash64(&h, offsetof(struct work_head, sum)) && h.version == WORK_VERSION;
    bool ours = whole && h.key == key && h.width == (uint32_t)w->width;
    if (!code && !ours && f.bytes)
        log_info("data: %s: %s; begun anew", w->path,
                 whole ? "is of other inputs, or of another tokenizer" : "is damaged, or no work of this program");
    if (ours) {
        w->head_sum = w->last_sum = h.sum;
        code = scan(w, &f, e);
    }
    fs_file_close(&f);
    return code ? code : ours;
}

/* One record into ids and *p, whose pointers are w's. */
static int record_again(struct work *w, const struct fs_file *f, const struct work_lot *l, int64_t seq,
                        struct tokens *ids, struct work_piece *p, struct err *e)
{
    struct work_record_head h;
    int64_t at = l->at[seq];
    int got = read_record(w, f, at, NULL, &h, e);
    if (got < 0) return got;
    if (got == 0 || h.lot != l - w->lots || h.seq != seq)
        return err_set(e, ERR_CORRUPT,
                       "%s: was damaged at byte %lld while it was used; start again: what is before that place is kept",
                       w->path, (long long)at);
    struct body b = body_of(w, &h);
    ids->n = 0;
    tokens_reserve(ids, h.n_ids);
    if (w->width == 4 && h.n_ids) memcpy(ids->ids, w->body + b.ids, to_size(h.n_ids) * 4);
    const uint16_t *narrow = (const uint16_t *)(const void *)(w->body + b.ids);
    for (int64_t i = 0; w->width == 2 && i < h.n_ids; i++) ids->ids[i] = narrow[i];
    *p = (struct work_piece){.begins = (const struct part_begin *)(const void *)w->body,
                             .n_begins = h.n_begins,
                             .ids = ids->ids,
                             .n_ids = h.n_ids,
                             .ends = (const uint32_t *)(const void *)(w->body + b.ends),
                             .n_ends = h.n_ends,
                             .told = (const char *)w->body + b.told,
                             .told_bytes = h.told_bytes};
    place_of(&h, p);
    return OK;
}

int work_replay(struct work *w, work_piece_fn *fn, void *arg, struct err *e)
{
    int code = w->out ? fs_writer_flush(w->out, e) : OK;
    struct fs_file f = {.fd = -1};
    struct tokens ids = {0};
    struct work_piece p;
    if (!code) code = fs_file_open(&f, w->path, e);
    for (int64_t i = 0; i < w->n_lots && !code; i++)
        for (int64_t seq = 0; seq < w->lots[i].all && !code; seq++) {
            code = record_again(w, &f, &w->lots[i], seq, &ids, &p, e);
            if (!code) code = fn(arg, &p, e);
        }
    tokens_free(&ids);
    fs_file_close(&f);
    return code;
}

/* -- writing ------------------------------------------------------------------------------------------------ */

static int begin(struct work *w, uint64_t key, struct err *e)
{
    struct work_head h = {.version = WORK_VERSION, .width = (uint32_t)w->width, .key = key};
    memcpy(h.magic, WORK_MAGIC, 8);
    h.sum = hash64(&h, offsetof(struct work_head, sum));
    w->head_sum = w->last_sum = h.sum;
    w->bytes = sizeof h;
    int code = fs_writer_open(&w->out, w->path, e);
    return code ? code : fs_writer_write(w->out, &h, sizeof h, e);
}

int work_open(struct work **out, const char *path, uint64_t key, int width, int64_t n_lots, struct err *e)
{
    struct work *w = xcalloc(1, sizeof *w);
    w->path = xstrdup(path);
    w->width = width;
    w->n_lots = n_lots;
    w->lots = xcalloc(to_size(n_lots) + 1, sizeof *w->lots);
    for (int64_t i = 0; i < n_lots; i++) w->lots[i].after.file = -1;
    int got = look(w, key, e);
    if (got == 0) got = begin(w, key, e);
    else if (got > 0) got = fs_writer_go_on(&w->out, w->path, w->bytes, e);
    if (got < 0) {
        work_close(w, false);
        w = NULL;
    }
    *out = w;
    return got < 0 ? got : OK;
}

const struct work_lot *work_lot(const struct work *w, int64_t lot)
{
    CHECK(lot >= 0 && lot < w->n_lots, "lot %lld of %lld", (long long)lot, (long long)w->n_lots);
    return &w->lots[lot];
}

int work_add(struct work *w, const struct work_piece *p, struct err *e)
{
    struct work_record_head h = {.before = w->last_sum,
                                 .lot = p->lot,
                                 .seq = p->seq,
                                 .after = p->after,
                                 .n_begins = p->n_begins,
                                 .n_ids = p->n_ids,
                                 .n_ends = p->n_ends,
                                 .told_bytes = p->told_bytes,
                                 .skipped = p->skipped,
                                 .open = p->open,
                                 .done = p->done};
    CHECK(counts_can_be(&h), "a record of %lld ids", (long long)p->n_ids);
    bool next = enter(w, p, w->bytes);
    CHECK(next, "record %lld of lot %lld is not its next", (long long)p->seq, (long long)p->lot);
    memcpy(h.skipped_text, p->skipped_text, sizeof h.skipped_text);
    struct body b = body_of(w, &h);
    size_t n = b.end;
    GROW(w->body, 0, w->body_room, n + 1);
    memset(w->body, 0, n); /* also what is between its parts */
    if (p->n_begins) memcpy(w->body, p->begins, b.ids);
    if (w->width == 4 && p->n_ids) memcpy(w->body + b.ids, p->ids, to_size(p->n_ids) * 4);
    uint16_t *narrow = (uint16_t *)(void *)(w->body + b.ids);
    for (int64_t i = 0; w->width == 2 && i < p->n_ids; i++) narrow[i] = (uint16_t)p->ids[i];
    if (p->n_ends) memcpy(w->body + b.ends, p->ends, b.told - b.ends);
    if (p->told_bytes) memcpy(w->body + b.told, p->told, to_size(p->told_bytes));
    h.body_sum = hash64(w->body, n);
    h.sum = hash64(&h, offsetof(struct work_record_head, sum));
    int code = fs_writer_write(w->out, &h, sizeof h, e);
    if (!code) code = fs_writer_write(w->out, w->body, n, e);
    if (!code) code = fs_writer_flush(w->out, e);
    w->last_sum = h.sum;
    w->bytes += (int64_t)(sizeof h + n);
    return code;
}

void work_close(struct work *w, bool gone)
{
    if (!w) return;
    if (w->out) fs_writer_close(w->out, false, NULL);
    if (gone) unlink(w->path);
    for (int64_t i = 0; i < w->n_lots; i++) {
        xfree(w->lots[i].at);
        xfree(w->lots[i].skipped_text);
    }
    xfree(w->lots);
    xfree(w->path);
    xfree(w->body);
    xfree(w);
}
