/* SPDX-License-Identifier: Apache-2.0 */
/* clean_pass.c: three rounds of groups go around: while all threads filter one, the first of them writes what the round
 * before became and reads the next. Groups of a round are taken in any order and written in theirs.
 *
 * A round ends where a part ends, so that what was counted when a part is published is that part's. Cost: a document is
 * copied twice (into its group, into the thread's document). Rejected: a queue of groups (no barrier between rounds,
 * but memory and order need a window of groups anyway, and rounds are that window without a lock).
 */
#include "curate/clean_pass.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/seal.h"
#include "base/thread.h"
#include "curate/clean_progress.h"
#include "curate/parts_sweep.h"
#include "remote/remote.h"
#include "source/bad_list.h"

enum { ROUNDS = 3, LEVEL = 3 }; /* of zstd: its own default */

struct round {
    struct group *group;
    int n; /* groups of it that were read */
    bool ends_part, ends_input;
};
struct pass {
    const struct pass_options *o;
    struct source *source;
    struct bad_list bad; /* begun anew by each start, which passes over what is before its place again */
    struct team *team;
    int threads, n_groups;
    struct worker *worker;
    double *worker_s;
    struct round round[ROUNDS];
    struct round *writing, *filtering, *reading; /* NULL: nothing to do */
    atomic_int next_group;
    int64_t index, part; /* documents that were read; bytes of the part that is read */
    struct fs_writer *writer;
    char *writing_path;
    struct progress progress;
    double read_s, shown_s, start_s;
    int64_t started_bytes;
    bool shown;
    int code; /* of reading and writing */
    struct err *e;
};

/* ---- parts ---- */

static char *part_path(const struct pass *p, int64_t part, bool hidden)
{
    return parts_path(p->o->out, part, p->o->plain, hidden);
}

static int write_group(struct pass *p, const struct group *g)
{
    const struct str *out = p->o->plain ? &g->lines : &g->packed;
    if (!out->n) return OK;
    if (!p->writer) {
        p->writing_path = part_path(p, p->progress.next_part, true);
        int code = fs_writer_open(&p->writer, p->writing_path, p->e);
        if (code) return code;
    }
    return fs_writer_write(p->writer, out->p, out->n, p->e);
}

static int save_progress(struct pass *p)
{
    struct str text = {0};
    char *path = fs_join(p->o->out, PROGRESS_FILE);
    progress_write(&p->progress, &text);
    int code = fs_write_atomic(path, text.p, text.n, p->e);
    xfree(path);
    str_free(&text);
    return code;
}

/* The part is complete: it gets its name, and is counted. */
static int end_part(struct pass *p, bool ends_input)
{
    int64_t bytes = 0;
    int code = OK;
    if (p->writer) {
        bytes = fs_writer_offset(p->writer);
        code = fs_writer_close(p->writer, true, p->e);
        p->writer = NULL;
        char *path = part_path(p, p->progress.next_part, false);
        if (!code) code = fs_rename(p->writing_path, path, p->e);
        xfree(path);
        xfree(p->writing_path);
        p->writing_path = NULL;
    }
    if (code) return code;
    struct progress *g = &p->progress;
    GROW(g->part_bytes_of, g->next_part, g->room, 1);
    g->part_bytes_of[g->next_part++] = bytes;
    g->parts += bytes > 0;
    g->complete = ends_input;
    for (int i = 0; i < p->threads; i++) {
        removals_add(&g->removals, &p->worker[i].removals);
        removals_clear(&p->worker[i].removals);
    }
    return save_progress(p);
}

static int write_round(struct pass *p, const struct round *r)
{
    int code = OK;
    for (int i = 0; i < r->n && !code; i++) {
        const struct group *g = &r->group[i];
        code = g->error.code ? err_set(p->e, g->error.code, "%s", g->error.text) : write_group(p, g);
        group_counts_add(&p->progress.counts, &g->counts);
        if (*g->too_large && !*p->progress.too_large)
            snprintf(p->progress.too_large, sizeof p->progress.too_large, "%s", g->too_large);
    }
    return code;
}

/* ---- rounds ---- */

static int read_round(struct pass *p, struct round *r)
{
    double start = clock_now_s();
    int code = OK;
    r->n = 0;
    r->ends_part = r->ends_input = false;
    while (r->n < p->n_groups && !r->ends_part && !code) {
        struct group *g = &r->group[r->n];
        code = group_read(g, p->source, &p->index, &p->part, p->o->part_bytes, p->o->most_bytes, p->e);
        if (code) break;
        r->n++;
        r->ends_part = g->ends_part;
        r->ends_input = g->ends_input;
    }
    p->read_s += clock_now_s() - start;
    return code;
}

/* Of this thread alone: a core that others use, too, does not count. */
static double thread_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void filter_round(struct pass *p, int member)
{
    double start = thread_s();
    for (int i; (i = atomic_fetch_add(&p->next_group, 1)) < p->filtering->n;)
        group_filter(&p->filtering->group[i], &p->worker[member]);
    p->worker_s[member] += thread_s() - start;
}

static void work(void *arg, int member, int n_members)
{
    (void)n_members;
    struct pass *p = arg;
    if (member == 0 && p->writing) p->code = write_round(p, p->writing);
    if (member == 0 && p->reading && !p->code) p->code = read_round(p, p->reading);
    if (p->filtering) filter_round(p, member);
}

static void show_progress(struct pass *p)
{
    double now = clock_now_s(), every = log_is_terminal() ? 0.2 : 10;
    if (now - p->shown_s < every) return;
    p->shown_s = now;
    p->shown = true;
    char done[32], all[32], rate[32], kept[32];
    int64_t bytes = source_bytes_done(p->source), total = source_bytes(p->source);
    const struct group_counts *c = &p->progress.counts;
    log_status("cleaning: %s of %s (%.0f %%), %s documents kept (%.1f %%), %s/s", str_bytes(done, (double)bytes),
               str_bytes(all, (double)total), total ? 100.0 * (double)bytes / (double)total : 100.0,
               str_count(kept, (double)c->kept), 100.0 * (double)c->kept / (double)(c->documents ? c->documents : 1),
               str_bytes(rate, (double)(c->bytes - p->started_bytes) / (now - p->start_s)));
}

/* Reads into p->reading, filters p->filtering, writes p->writing, then moves them on by one. */
static int turn(struct pass *p, struct round *free_round)
{
    bool last = p->filtering && p->filtering->ends_input;
    p->reading = last ? NULL : free_round;
    atomic_store(&p->next_group, 0);
    team_run(p->team, work, p);
    if (p->code) return p->code;
    p->writing = p->filtering;
    /* Counts of a part are complete only when nothing of the next one was filtered. */
    if (p->writing && p->writing->ends_part) {
        int code = write_round(p, p->writing);
        if (!code) code = end_part(p, p->writing->ends_input);
        p->writing = NULL;
        if (code) return code;
    }
    p->filtering = p->reading;
    show_progress(p);
    return OK;
}

static int run(struct pass *p)
{
    for (int64_t i = 0;; i++) {
        int code = turn(p, &p->round[i % ROUNDS]);
        if (code) return code;
        if (!p->filtering) return OK;
    }
}

/* ---- beginning, and going on ---- */

static int other_pass(const struct pass *p, const char *what, struct err *e)
{
    return err_set(e, ERR_REQUEST,
                   "%s: holds a pass with other %s; give these, or another folder, or delete this one to start again",
                   p->o->out, what);
}

static int check_parts(const struct pass *p)
{
    for (int64_t i = 0; i < p->progress.next_part; i++) {
        if (!p->progress.part_bytes_of[i]) continue;
        char *path = part_path(p, i, false);
        int64_t bytes;
        int code = fs_look(path, &bytes, p->e);
        if (!code && bytes != p->progress.part_bytes_of[i])
            code = err_set(p->e, ERR_REQUEST,
                           "%s: has %lld bytes, and had %lld when it was written; delete the folder to start again",
                           path, (long long)bytes, (long long)p->progress.part_bytes_of[i]);
        xfree(path);
        if (code) return code;
    }
    return OK;
}

/* What an earlier start left: 1 with p->progress read, 0 nothing, < 0. */
static int find_progress(struct pass *p)
{
    enum { MOST = 1 << 30 };
    char *path = fs_join(p->o->out, PROGRESS_FILE), *text;
    int64_t bytes;
    size_t n;
    int code = fs_look(path, &bytes, p->e);
    if (!code && bytes >= 0) {
        struct progress *g = &p->progress;
        code = fs_read_all(path, MOST, &text, &n, p->e);
        if (!code) {
            code = seal_check(text, n, path, NULL, p->e);
            if (!code) code = progress_parse(g, text, n, p->o->rules->key, path, p->e);
            if (code) err_prefix(p->e, "what an earlier pass left is damaged; delete the folder to start again");
            xfree(text);
        }
        if (!code && g->rules != p->o->rules->key) code = other_pass(p, "rules", p->e);
        if (!code && g->inputs != source_key(p->source))
            code = other_pass(p, "inputs (or they were changed), or another --skip-bad", p->e);
        if (!code && (g->part_bytes != p->o->part_bytes || g->most_bytes != p->o->most_bytes))
            code = other_pass(p, "sizes (--part-size, --max-document)", p->e);
        if (!code && g->plain != p->o->plain) code = other_pass(p, "packing (--plain)", p->e);
        if (!code) code = check_parts(p);
        if (!code) code = 1;
    }
    xfree(path);
    return code;
}

/* Passes over the documents that were done. */
static int skip_done(struct pass *p)
{
    for (; p->index < p->progress.counts.documents; p->index++) {
        int got = source_next(p->source, p->e);
        if (got < 0) return got;
        if (!got)
            return err_set(p->e, ERR_IO, "%s: the inputs have only %lld documents now; %lld were done before",
                           p->o->out, (long long)p->index, (long long)p->progress.counts.documents);
    }
    return OK;
}

static int start(struct pass *p, struct pass_result *r)
{
    char *other = NULL;
    int code = parts_sweep(p->o->out, PROGRESS_FILE, &other, p->e), found = code ? code : find_progress(p);
    if (found == 0 && other)
        found = err_set(p->e, ERR_REQUEST,
                        "--out: %s is not empty (it holds %s) and no pass of this command; give another folder",
                        p->o->out, other);
    xfree(other);
    if (found < 0) return found;
    if (!found) {
        p->progress.rules = p->o->rules->key;
        p->progress.inputs = source_key(p->source);
        p->progress.part_bytes = p->o->part_bytes;
        p->progress.most_bytes = p->o->most_bytes;
        p->progress.plain = p->o->plain;
        bad_list_clear(&p->bad);
        return save_progress(p);
    }
    r->resumed_at = p->progress.counts.documents;
    p->started_bytes = p->progress.counts.bytes;
    r->complete_before = p->progress.complete;
    if (r->complete_before) return OK;
    bad_list_clear(&p->bad);
    if (r->resumed_at) log_info("data: %s: goes on behind document %lld", p->o->out, (long long)r->resumed_at);
    return skip_done(p);
}

static int open_threads(struct pass *p)
{
    p->threads = p->o->threads > 0 ? p->o->threads : thread_n_cores();
    p->n_groups = 2 * p->threads;
    p->worker = xcalloc((size_t)p->threads, sizeof *p->worker);
    p->worker_s = xcalloc((size_t)p->threads, sizeof *p->worker_s);
    for (int i = 0; i < p->threads; i++) {
        p->worker[i].rules = p->o->rules;
        removals_init(&p->worker[i].removals, p->o->rules->use, p->o->rules->n);
        if (!p->o->plain) p->worker[i].compressor = compressor_new(LEVEL);
    }
    for (int i = 0; i < ROUNDS; i++) p->round[i].group = xcalloc((size_t)p->n_groups, sizeof *p->round[i].group);
    return team_start(&p->team, p->threads, p->e);
}

static void close_threads(struct pass *p)
{
    team_free(p->team);
    for (int i = 0; i < p->threads; i++) {
        removals_fini(&p->worker[i].removals);
        document_free(&p->worker[i].document);
        compressor_free(p->worker[i].compressor);
    }
    for (int i = 0; i < ROUNDS; i++) {
        for (int k = 0; p->round[i].group && k < p->n_groups; k++) group_free(&p->round[i].group[k]);
        xfree(p->round[i].group);
    }
    xfree(p->worker);
    xfree(p->worker_s);
}

static void fill_result(struct pass *p, struct pass_result *r)
{
    r->counts = p->progress.counts;
    r->parts = p->progress.parts;
    r->skipped_files = source_n_skipped(p->source);
    r->bad = p->bad.n;
    r->seconds = clock_now_s() - p->start_s;
    r->read_s = p->read_s;
    r->threads = p->threads;
    r->filtered_bytes = r->counts.bytes - p->started_bytes;
    for (int i = 0; i < p->threads; i++) r->filter_s += p->worker_s[i];
    snprintf(r->too_large, sizeof r->too_large, "%s", p->progress.too_large);
    removals_add(&r->removals, &p->progress.removals);
}

static int run_locked(struct pass *p, struct pass_result *r)
{
    int code = start(p, r);
    if (!code && !r->complete_before) {
        p->start_s = p->shown_s = clock_now_s();
        code = open_threads(p);
        if (!code) code = run(p);
    }
    if (p->shown) log_status_end();
    if (!code && !p->progress.counts.documents) {
        char *input = remote_hidden(p->o->inputs[0]);
        code = err_set(p->e, ERR_REQUEST, "%s: holds no text (%lld files, %lld of them no text%s%s)", input,
                       (long long)source_n_files(p->source), (long long)source_n_skipped(p->source),
                       source_n_skipped(p->source) ? ": " : "", source_skipped(p->source));
        xfree(input);
    }
    int listed = bad_list_end(&p->bad, code ? NULL : p->e);
    if (!code) code = listed;
    if (!code) fill_result(p, r);
    struct err ignored;
    if (p->writer) (void)fs_writer_close(p->writer, false, &ignored);
    xfree(p->writing_path);
    close_threads(p);
    return code;
}

int pass_run(const struct pass_options *o, struct pass_result *r, struct err *e)
{
    struct pass p = {.o = o, .e = e, .start_s = clock_now_s()};
    *r = (struct pass_result){0};
    removals_init(&r->removals, o->rules->use, o->rules->n);
    removals_init(&p.progress.removals, o->rules->use, o->rules->n);
    struct fs_lock lock = {.fd = -1};
    char *list = fs_join(o->out, ".clean");
    bad_list_init(&p.bad, list);
    xfree(list);
    int code = source_open_with(&p.source, o->inputs, o->n_inputs,
                                &(struct source_options){.column = o->column,
                                                         .lines = true,
                                                         .skip_bad = o->skip_bad,
                                                         .tell_bad = bad_list_add,
                                                         .tell_ctx = &p.bad},
                                e);
    if (!code) code = fs_mkdirs(o->out, e);
    if (!code) {
        char *path = fs_join(o->out, ".lock");
        code = fs_lock_take(&lock, path, e);
        if (!code) code = run_locked(&p, r);
        if (lock.fd >= 0) fs_lock_release(&lock);
        xfree(path);
    }
    source_close(p.source);
    bad_list_fini(&p.bad);
    progress_fini(&p.progress);
    if (code) pass_result_fini(r);
    return code;
}

void pass_result_fini(struct pass_result *r) { removals_fini(&r->removals); }
