/* SPDX-License-Identifier: Apache-2.0 */
/* chat_tokenize.c: blocks of records, each record parsed, rendered and tokenized by one thread of a team, delivered in
 * order. Memory: a block, some MiB, and what comes of it.
 *
 * As in tokenize_run.c, small inputs are delivered to the token file and larger ones to the work file, which a run that
 * was stopped goes on with. There a token that a loss is taken of has the bit TRAINED, and a document ends with ENDS.
 */
#include "data/chat_tokenize.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "data/tokenize_work.h"
#include "data/tokenize_work_format.h"

enum { BLOCK_RECORDS = 1024, BLOCK_BYTES = 4 << 20, PIECE_IDS = 1 << 25 };
enum { TRAINED = 1 << 30, ENDS = 1 << 29, CHAT_WORK_VERSION = 1 };

struct entry {
    struct str text, told; /* told: bad records that were passed over before this one */
    char where[600];
    struct parts_place after; /* this record; documents are not counted yet */
    struct part_begin begin;
    int64_t skipped;
    int pictures; /* of its sample */
    struct chat_tokens tokens;
    int code;
    struct err error;
};

struct job {
    const struct tokenize_run *run;
    struct chat_work **work_of; /* one per member */
    struct entry *entries;      /* BLOCK_RECORDS */
    int64_t n;
    struct tokenfile_writer *writer;
    struct work *work;       /* NULL: tokens go to the writer at once */
    struct work_piece piece; /* the last that was delivered */
    struct tokens ids;       /* of the piece that is gathered */
    uint32_t *ends;
    struct part_begin *begins;
    struct str told;
    struct str unread; /* names of members that nothing reads, some of them; of so many records */
    int64_t n_unread, n_trained;
    int64_t n_ends, ends_room, n_begins, begins_room;
    int64_t bytes, n_bad, bytes_at_start; /* of text that was read; bad records that were listed */
    double start_s, shown_s;
    bool shown, skip_bad;
    int64_t most; /* pictures of a record */
};

static void take_told(struct job *j, struct str *into)
{
    str_clear(into);
    if (!j->run->told || !j->run->told->n) return;
    str_add(into, j->run->told->p, j->run->told->n);
    str_clear(j->run->told);
}

/* The next block: 1; 0: there is nothing left; < 0. */
static int read_block(struct job *j, struct err *e)
{
    struct source *s = j->run->source;
    size_t bytes = 0;
    int got = 1;
    for (j->n = 0; j->n < BLOCK_RECORDS && bytes < BLOCK_BYTES; j->n++) {
        struct entry *x = &j->entries[j->n];
        struct source_place place;
        const char *p;
        size_t n;
        got = source_next(s, e);
        if (got <= 0) break;
        source_where(s, &place);
        str_clear(&x->text);
        while ((got = source_read(s, &p, &n, e)) > 0) str_add(&x->text, p, n);
        if (got < 0) return got;
        take_told(j, &x->told);
        snprintf(x->where, sizeof x->where, "%.500s: record %lld, at byte %lld", place.path,
                 (long long)place.number + 1, (long long)place.offset);
        bytes += x->text.n;
        j->bytes += (int64_t)x->text.n;
        x->begin = (struct part_begin){source_file(s), place.offset};
        x->after = (struct parts_place){.file = source_file(s), .document = place.number + 1, .bytes = j->bytes};
        x->skipped = source_n_skipped(s);
        x->pictures = source_pictures(s);
    }
    return got < 0 ? got : j->n > 0;
}

static void encode_entry(struct chat_work *w, int64_t most, struct entry *x)
{
    struct json *record;
    x->code = json_parse_published(&record, str_text(&x->text), x->text.n, x->where, &x->error);
    if (x->code) return;
    x->code = chat_encode(w, record, x->where, &x->tokens, &x->error);
    json_free(record);
    if (!x->code && x->tokens.pictures != x->pictures)
        x->code = err_set(&x->error, ERR_CORRUPT,
                          "%s: its text names %d pictures (%s), and the sample has %d; wanted as many of both",
                          x->where, x->tokens.pictures, CHAT_IMAGE, x->pictures);
    if (!x->code && x->pictures > most)
        x->code = err_set(&x->error, ERR_CORRUPT,
                          "%s: has %d pictures, and a sample holds %lld (model.vision.images, model.seq_len)", x->where,
                          x->pictures, (long long)most);
}

static void encode_block(void *arg, int member, int n_members)
{
    struct job *j = arg;
    for (int64_t i = member; i < j->n; i += n_members) encode_entry(j->work_of[member], j->most, &j->entries[i]);
}

/* -- where tokens go ---------------------------------------------------------------------------------------- */

static int not_ours(const struct job *j, struct err *e)
{
    return err_set(e, ERR_CORRUPT, "%s.work: holds what no conversation is; remove it", j->run->out_path);
}

/* A document of a piece, its end among its ids. */
static int write_document(struct job *j, const struct part_begin *b, const int32_t *ids, int64_t n, struct err *e)
{
    int32_t vocab = j->run->vocab, plain[512];
    unsigned char trained[512];
    if (n < 1 || !(ids[n - 1] & ENDS) || b->file < 0 || b->file >= source_n_files(j->run->source))
        return not_ours(j, e);
    int code = tokenfile_origin_next(j->writer, source_path(j->run->source, b->file), b->offset, e);
    for (int64_t at = 0; at < n - 1 && !code;) {
        int64_t k = 0;
        for (; k < 512 && at < n - 1; k++, at++) {
            plain[k] = ids[at] & ~TRAINED;
            trained[k] = (ids[at] & TRAINED) != 0;
            j->n_trained += trained[k];
            if (plain[k] < 0 || plain[k] >= vocab) return not_ours(j, e);
        }
        code = tokenfile_append_masked(j->writer, plain, trained, k, e);
    }
    j->n_trained += (ids[n - 1] & TRAINED) != 0;
    return code ? code : tokenfile_end_document_masked(j->writer, (ids[n - 1] & TRAINED) != 0, e);
}

static int to_writer(void *arg, const struct work_piece *p, struct err *e)
{
    struct job *j = arg;
    int64_t from = 0;
    int code = tokenize_given_up(j->run->give_up, e);
    for (const char *at = p->told; at < p->told + p->told_bytes; at += strlen(at) + 1, j->n_bad++)
        if (j->run->bad) bad_list_add(j->run->bad, at);
    if (!code && p->n_begins != p->n_ends) code = not_ours(j, e);
    for (int64_t i = 0; i < p->n_ends && !code; from = p->ends[i++])
        code = write_document(j, &p->begins[i], p->ids + from, p->ends[i] - from, e);
    return code;
}

/* What was gathered, up to a record; whole: up to the inputs' end. */
static int deliver(struct job *j, const struct parts_place *after, int64_t skipped, bool whole, struct err *e)
{
    j->piece = (struct work_piece){
        .after = *after,
        .done = whole,
        .seq = j->piece.seq + 1,
        .skipped = skipped,
        .ids = j->ids.ids,
        .n_ids = j->ids.n,
        .ends = j->ends,
        .n_ends = j->n_ends,
        .begins = j->begins,
        .n_begins = j->n_begins,
        .told = j->told.p,
        .told_bytes = (int64_t)j->told.n,
    };
    snprintf(j->piece.skipped_text, sizeof j->piece.skipped_text, "%s", source_skipped(j->run->source));
    int code = j->work ? work_add(j->work, &j->piece, e) : to_writer(j, &j->piece, e);
    j->ids.n = j->n_ends = j->n_begins = 0;
    str_clear(&j->told);
    return code;
}

static void note_unread(struct job *j, const struct str *names)
{
    enum { SHOWN_BYTES = 200 };
    j->n_unread += names->n > 0;
    for (size_t at = 0; at < names->n; at += strlen(names->p + at) + 1) {
        bool there = j->unread.n > SHOWN_BYTES;
        for (size_t k = 0; k < j->unread.n && !there; k += strlen(j->unread.p + k) + 1)
            there = !strcmp(j->unread.p + k, names->p + at);
        if (!there) str_add(&j->unread, names->p + at, strlen(names->p + at) + 1);
    }
}

/* What records say beside what was read of them is not left out in silence. */
static void say_unread(struct job *j)
{
    if (!j->n_unread) return;
    for (size_t i = 0; i + 1 < j->unread.n; i++)
        if (!j->unread.p[i]) j->unread.p[i] = ' ';
    log_info("data: %s: %lld records have members that nothing reads, neither their form nor the template: %s",
             source_path(j->run->source, 0), (long long)j->n_unread, str_text(&j->unread));
}

static int gather(struct job *j, struct entry *x, struct err *e)
{
    if (x->told.n) str_add(&j->told, x->told.p, x->told.n);
    if (x->code == ERR_CORRUPT && j->skip_bad) {
        str_add(&j->told, x->error.text, strlen(x->error.text) + 1);
        return OK;
    }
    if (x->code) return err_set(e, x->error.code, "%s", x->error.text);
    note_unread(j, &x->tokens.unread);
    const struct tokens *t = &x->tokens.ids;
    if (t->n >= COUNT_MAX - PIECE_IDS)
        return err_set(e, ERR_REQUEST, "%s: a conversation of %lld tokens", x->where, (long long)t->n);
    GROW(j->ids.ids, j->ids.n, j->ids.room, t->n + 1);
    for (int64_t i = 0; i < t->n; i++) j->ids.ids[j->ids.n++] = t->ids[i] | (x->tokens.trained[i] ? TRAINED : 0);
    j->ids.ids[j->ids.n++] = ENDS | (x->tokens.ends_trained ? TRAINED : 0);
    GROW(j->ends, j->n_ends, j->ends_room, 1);
    GROW(j->begins, j->n_begins, j->begins_room, 1);
    j->ends[j->n_ends++] = (uint32_t)j->ids.n;
    j->begins[j->n_begins++] = x->begin;
    return OK;
}

static int deliver_block(struct job *j, struct err *e)
{
    int64_t documents = j->piece.after.documents;
    int code = OK;
    for (int64_t i = 0; i < j->n && !code; i++) {
        struct entry *x = &j->entries[i];
        code = gather(j, x, e);
        x->after.documents = documents + j->n_ends;
        if (code || (i + 1 < j->n && j->ids.n < PIECE_IDS)) continue;
        documents += j->n_ends;
        code = deliver(j, &x->after, x->skipped, false, e);
    }
    return code;
}

static void show_progress(struct job *j)
{
    double now = clock_now_s(), every = log_is_terminal() ? 0.2 : 10;
    if (now - j->shown_s < every) return;
    j->shown_s = now;
    j->shown = true;
    char done[32], total[32], documents[32], rate[32];
    int64_t bytes = source_bytes_done(j->run->source), all = source_bytes(j->run->source);
    log_status("conversations: %s of %s (%.0f %%), %s of them, %s/s", str_bytes(done, (double)bytes),
               str_bytes(total, (double)all), all ? 100.0 * (double)bytes / (double)all : 100.0,
               str_count(documents, (double)j->piece.after.documents),
               str_bytes(rate, (double)(bytes - j->bytes_at_start) / (now - j->start_s)));
}

static int run_blocks(struct job *j, struct team *team, struct err *e)
{
    int code;
    while ((code = read_block(j, e)) > 0) {
        team_run(team, encode_block, j);
        code = deliver_block(j, e);
        if (!code) code = tokenize_given_up(j->run->give_up, e);
        if (code) return code;
        show_progress(j);
    }
    if (code) return code;
    take_told(j, &j->told); /* behind the last record */
    return deliver(j, &j->piece.after, source_n_skipped(j->run->source), true, e);
}

/* -- the run ------------------------------------------------------------------------------------------------ */

/* Goes to the record behind those that are in the work. */
static int seek(struct job *j, struct err *e)
{
    const struct parts_place *to = &j->piece.after;
    struct source *s = j->run->source;
    if (to->file >= source_n_files(s)) return not_ours(j, e);
    source_seek(s, to->file, j->piece.skipped, j->piece.skipped_text);
    for (int64_t i = 0; i < to->document; i++) {
        int got = tokenize_given_up(j->run->give_up, e);
        if (!got) got = source_next(s, e);
        if (got < 0) return got;
        if (!got || source_file(s) != to->file) return not_ours(j, e);
    }
    j->bytes = to->bytes;
    j->bytes_at_start = source_bytes_done(s);
    return OK;
}

/* What another run left is gone on with. */
static int open_work(struct job *j, struct err *e)
{
    char *path = tokenize_work_path(j->run), done[32];
    const uint64_t about[] = {j->run->key, CHAT_WORK_VERSION};
    int code = work_open(&j->work, path, hash64(about, sizeof about), sizeof(int32_t), 1, e);
    if (!code) {
        const struct work_lot *l = work_lot(j->work, 0);
        j->piece = (struct work_piece){.after = l->after, .done = l->done, .seq = l->n - 1, .skipped = l->skipped};
        if (l->skipped_text) snprintf(j->piece.skipped_text, sizeof j->piece.skipped_text, "%s", l->skipped_text);
    }
    if (!code && j->piece.after.file >= 0) {
        log_info("data: goes on behind %s of text, %lld conversations: %s",
                 str_bytes(done, (double)j->piece.after.bytes), (long long)j->piece.after.documents, path);
        if (!j->piece.done) code = seek(j, e);
        if (j->run->told) str_clear(j->run->told); /* bad records on the way are in the work already */
    }
    xfree(path);
    return code;
}

static int run_team(struct job *j, const struct chat *c, struct err *e)
{
    struct team *team;
    int n = j->run->n_threads, code = team_start(&team, n, e);
    if (code) return code;
    j->work_of = xcalloc((size_t)n, sizeof *j->work_of);
    for (int i = 0; i < n; i++) j->work_of[i] = chat_work_new(c);
    j->entries = xcalloc(BLOCK_RECORDS, sizeof *j->entries);
    code = run_blocks(j, team, e);
    if (j->shown) log_status_end();
    for (int i = 0; i < BLOCK_RECORDS; i++) {
        str_free(&j->entries[i].text);
        str_free(&j->entries[i].told);
        chat_tokens_free(&j->entries[i].tokens);
    }
    for (int i = 0; i < n; i++) chat_work_free(j->work_of[i]);
    xfree(j->entries);
    xfree(j->work_of);
    team_free(team);
    return code;
}

int chat_tokenize(const struct chat *c, bool skip_bad, const struct tokenize_run *run, struct tokenfile_writer *w,
                  struct tokenize_result *r, struct err *e)
{
    struct job j = {.run = run,
                    .writer = w,
                    .skip_bad = skip_bad,
                    .most = chat_pictures(c),
                    .start_s = clock_now_s(),
                    .shown_s = clock_now_s(),
                    .piece = {.after.file = -1, .seq = -1}};
    int code = source_bytes(run->source) >= run->work_from ? open_work(&j, e) : OK;
    int64_t before = j.piece.after.bytes;
    if (!code && !j.piece.done) code = run_team(&j, c, e);
    if (!code && j.work) code = work_replay(j.work, to_writer, &j, e);
    if (!code) say_unread(&j);
    *r = (struct tokenize_result){.bytes = j.piece.after.bytes,
                                  .bytes_before = before,
                                  .documents = j.piece.after.documents,
                                  .tokens = tokenfile_written(w),
                                  .trained = j.n_trained,
                                  .skipped = j.piece.skipped,
                                  .bad = j.n_bad,
                                  .seconds = clock_now_s() - j.start_s};
    snprintf(r->skipped_text, sizeof r->skipped_text, "%s", j.piece.skipped_text);
    if (code && j.work && j.piece.after.file >= 0 && code != ERR_SIGNAL) tokenize_say_kept(run, e);
    work_close(j.work, false);
    tokens_free(&j.ids);
    xfree(j.ends);
    xfree(j.begins);
    str_free(&j.told);
    str_free(&j.unread);
    return code;
}
