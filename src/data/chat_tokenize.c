/* SPDX-License-Identifier: Apache-2.0 */
/* chat_tokenize.c: blocks of records, each record parsed, rendered and tokenized by one thread of a team, written in
 * order. Memory: a block, some MiB, and what comes of it. */
#include "data/chat_tokenize.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"

enum { BLOCK_RECORDS = 1024, BLOCK_BYTES = 4 << 20 };

struct entry {
    struct str text, told; /* told: bad records that were passed over before this one */
    char where[600];
    char *path;
    int64_t offset;
    struct chat_tokens tokens;
    int code;
    struct err error;
};

struct job {
    const struct tokenize_run *run;
    struct chat_work **work; /* one per member */
    struct entry *entries;   /* BLOCK_RECORDS */
    int64_t n;
    double start_s, shown_s;
    bool shown, skip_bad;
};

static void take_told(struct job *j, struct str *into)
{
    str_clear(into);
    if (!j->run->told || !j->run->told->n) return;
    str_add(into, j->run->told->p, j->run->told->n);
    str_clear(j->run->told);
}

/* The next block: 1; 0: there is nothing left; < 0. */
static int read_block(struct job *j, struct tokenize_result *r, struct err *e)
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
        xfree(x->path);
        x->path = xstrdup(place.path);
        x->offset = place.offset;
        snprintf(x->where, sizeof x->where, "%.500s: record %lld, at byte %lld", place.path,
                 (long long)place.number + 1, (long long)place.offset);
        bytes += x->text.n;
        r->bytes += (int64_t)x->text.n;
    }
    return got < 0 ? got : j->n > 0;
}

static void encode_entry(struct chat_work *w, struct entry *x)
{
    struct json *record;
    x->code = json_parse_published(&record, str_text(&x->text), x->text.n, x->where, &x->error);
    if (x->code) return;
    x->code = chat_encode(w, record, x->where, &x->tokens, &x->error);
    json_free(record);
}

static void encode_block(void *arg, int member, int n_members)
{
    struct job *j = arg;
    for (int64_t i = member; i < j->n; i += n_members) encode_entry(j->work[member], &j->entries[i]);
}

static void list_told(struct job *j, const struct str *told, struct tokenize_result *r)
{
    for (const char *at = str_text(told); at < str_text(told) + told->n; at += strlen(at) + 1, r->bad++)
        if (j->run->bad) bad_list_add(j->run->bad, at);
}

static int write_entry(struct job *j, struct entry *x, struct tokenfile_writer *w, struct tokenize_result *r,
                       struct err *e)
{
    list_told(j, &x->told, r);
    if (x->code == ERR_CORRUPT && j->skip_bad) {
        if (j->run->bad) bad_list_add(j->run->bad, x->error.text);
        r->bad++;
        return OK;
    }
    if (x->code) return err_set(e, x->error.code, "%s", x->error.text);
    const struct chat_tokens *t = &x->tokens;
    int code = tokenfile_origin_next(w, x->path, x->offset, e);
    if (!code) code = tokenfile_append_masked(w, t->ids.ids, t->trained, t->ids.n, e);
    if (!code) code = tokenfile_end_document_masked(w, t->ends_trained, e);
    r->documents++;
    return code;
}

static void show_progress(struct job *j, const struct tokenfile_writer *w)
{
    double now = clock_now_s(), every = log_is_terminal() ? 0.2 : 10;
    if (now - j->shown_s < every) return;
    j->shown_s = now;
    j->shown = true;
    char done[32], total[32], tokens[32], rate[32];
    int64_t bytes = source_bytes_done(j->run->source), all = source_bytes(j->run->source);
    log_status("conversations: %s of %s (%.0f %%), %s tokens, %s/s", str_bytes(done, (double)bytes),
               str_bytes(total, (double)all), all ? 100.0 * (double)bytes / (double)all : 100.0,
               str_count(tokens, (double)tokenfile_written(w)), str_bytes(rate, (double)bytes / (now - j->start_s)));
}

static int run_blocks(struct job *j, struct team *team, struct tokenfile_writer *w, struct tokenize_result *r,
                      struct err *e)
{
    int code;
    while ((code = read_block(j, r, e)) > 0) {
        team_run(team, encode_block, j);
        code = OK;
        for (int64_t i = 0; i < j->n && !code; i++) code = write_entry(j, &j->entries[i], w, r, e);
        if (!code) code = tokenize_given_up(j->run->give_up, e);
        if (code) return code;
        show_progress(j, w);
    }
    struct str told = {0};
    take_told(j, &told); /* behind the last record */
    list_told(j, &told, r);
    str_free(&told);
    return code;
}

int chat_tokenize(const struct chat *c, bool skip_bad, const struct tokenize_run *run, struct tokenfile_writer *w,
                  struct tokenize_result *r, struct err *e)
{
    struct team *team;
    struct job j = {.run = run, .skip_bad = skip_bad, .start_s = clock_now_s(), .shown_s = clock_now_s()};
    int code = team_start(&team, run->n_threads, e);
    if (code) return code;
    j.work = xcalloc((size_t)run->n_threads, sizeof *j.work);
    for (int i = 0; i < run->n_threads; i++) j.work[i] = chat_work_new(c);
    j.entries = xcalloc(BLOCK_RECORDS, sizeof *j.entries);
    code = run_blocks(&j, team, w, r, e);
    if (j.shown) log_status_end();
    for (int i = 0; i < BLOCK_RECORDS; i++) {
        str_free(&j.entries[i].text);
        str_free(&j.entries[i].told);
        xfree(j.entries[i].path);
        chat_tokens_free(&j.entries[i].tokens);
    }
    for (int i = 0; i < run->n_threads; i++) chat_work_free(j.work[i]);
    xfree(j.entries);
    xfree(j.work);
    team_free(team);
    r->tokens = tokenfile_written(w);
    r->skipped = source_n_skipped(run->source);
    r->seconds = clock_now_s() - j.start_s;
    return code;
}
