/* SPDX-License-Identifier: Apache-2.0 */
/* dedup.c: the steps one after the other, and what an interrupted run left of them.
 *
 * A step reads the corpus through the edits of the steps before (edits.h), and its own edits are shuffled to the ranks
 * that read their documents. A step is done when every rank has its file of edits under its final name; a run that was
 * interrupted goes on with the first step that some rank lacks. What is written in the end: dedup_write.c.
 */
#include "curate/dedup.h"

#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "curate/dedup_impl.h"
#include "curate/dedup_write.h"
#include "curate/minhash.h"
#include "curate/shingles.h"
#include "curate/spans.h"
#include "source/beside_data.h"

struct step_row {
    const char *name;
    dedup_step_fn *run;
};
static const struct step_row rows[N_DEDUP_KINDS] = {
    [DEDUP_EXACT] = {"exact", dedup_repeats},           [DEDUP_LINES] = {"lines", dedup_repeats},
    [DEDUP_PARAGRAPHS] = {"paragraphs", dedup_repeats}, [DEDUP_NEAR] = {"near", dedup_near},
    [DEDUP_SUBSTRING] = {"substring", dedup_substring}, [DEDUP_PASSAGES] = {"passages", dedup_repeats},
};

const char *dedup_kind_name(enum dedup_kind k) { return rows[k].name; }

int dedup_kind_find(const char *name, size_t n)
{
    for (int i = 0; i < N_DEDUP_KINDS; i++)
        if (strlen(rows[i].name) == n && !memcmp(rows[i].name, name, n)) return i;
    return -1;
}

/* ---- options -------------------------------------------------------------------------------------------------- */

static void choose_bands(const struct dedup_config *c, int *bands, int *n_rows)
{
    *bands = (int)c->bands;
    *n_rows = (int)c->rows;
    if (!c->bands) minhash_choose(c->threshold, (int)c->hashes, bands, n_rows);
}

static bool has_step(const struct dedup_config *c, enum dedup_kind k)
{
    for (int i = 0; i < c->n_steps; i++)
        if (c->steps[i] == k) return true;
    return false;
}

int dedup_read_steps(const char *option, const char *text, struct dedup_config *c, struct err *e)
{
    for (const char *p = text; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL) {
        size_t n = strcspn(p, ",");
        int k = dedup_kind_find(p, n);
        if (k < 0)
            return err_set(e, ERR_REQUEST,
                           "%s: there is no '%.*s'; wanted some of exact, lines, paragraphs, near, substring, "
                           "passages, with commas",
                           option, (int)n, p);
        if (c->n_steps == EDIT_STEPS_MOST) return err_set(e, ERR_REQUEST, "%s: more than %d", option, EDIT_STEPS_MOST);
        c->steps[c->n_steps++] = (enum dedup_kind)k;
    }
    return OK;
}

int dedup_check(const struct dedup_config *c, struct err *e)
{
    struct shingles s = {0};
    char want[32], have[32];
    if (!c->n_steps) return err_set(e, ERR_REQUEST, "no step is asked for");
    if (shingles_parse(&s, c->shingles))
        return err_set(e, ERR_REQUEST, "--shingles: wanted words:N or chars:N with N of 1 to %d, got '%s'",
                       SHINGLE_MOST, c->shingles);
    if (!(c->threshold > 0 && c->threshold <= 1))
        return err_set(e, ERR_REQUEST, "--threshold: wanted a number above 0, 1 at most, got %g", c->threshold);
    if (!c->bands != !c->rows) return err_set(e, ERR_REQUEST, "--bands and --rows come together, or neither does");
    if (c->bands && c->bands * c->rows > MINHASH_MOST)
        return err_set(e, ERR_REQUEST, "--bands %lld times --rows %lld is more than %d hashes", (long long)c->bands,
                       (long long)c->rows, MINHASH_MOST);
    if (!(c->memory >= DEDUP_MEMORY_LEAST))
        return err_set(e, ERR_REQUEST, "--memory: %s is less than the %s that a rank needs", str_bytes(have, c->memory),
                       str_bytes(want, DEDUP_MEMORY_LEAST));
    if (has_step(c, DEDUP_SUBSTRING) && 8.0 * (double)c->part_bytes > c->memory)
        return err_set(e, ERR_REQUEST,
                       "--part: sorting the suffixes of %s takes up to %s beside what else is in memory, and --memory "
                       "is "
                       "%s; lower --part (which changes what is found) or raise --memory",
                       str_bytes((char[32]){0}, (double)c->part_bytes), str_bytes(want, 8.0 * (double)c->part_bytes),
                       str_bytes(have, c->memory));
    if ((has_step(c, DEDUP_SUBSTRING) || has_step(c, DEDUP_PASSAGES)) && c->repeat_least < PASSAGE_LEAST)
        return err_set(e, ERR_REQUEST, "--repeat: wanted at least %d bytes, got %lld", PASSAGE_LEAST,
                       (long long)c->repeat_least);
    return OK;
}

double dedup_finds(const struct dedup_config *c, const struct dedup_result *r, double s)
{
    return c->verify ? minhash_found(s, r->bands, r->rows, c->threshold) : minhash_chance(s, r->bands, r->rows);
}

/* Of all that decides what the edits are. */
static uint64_t key_of(const struct dedup_config *c, const struct dedup_job *j)
{
    double threshold = c->threshold;
    uint64_t of[] = {corpus_key(j->corpus),
                     (uint64_t)c->n_steps,
                     (uint64_t)c->normal,
                     (uint64_t)c->line_least,
                     hash64(c->shingles, strlen(c->shingles)),
                     hash64(&threshold, sizeof threshold),
                     (uint64_t)j->bands,
                     (uint64_t)j->rows,
                     c->seed,
                     c->verify,
                     (uint64_t)c->repeat_least,
                     (uint64_t)c->part_bytes,
                     (uint64_t)c->samples,
                     c->list,
                     1};
    struct hash64 h;
    hash64_init(&h);
    hash64_add(&h, of, sizeof of);
    hash64_add(&h, c->steps, (size_t)c->n_steps * sizeof *c->steps);
    return hash64_value(&h);
}

/* ---- what the steps use --------------------------------------------------------------------------------------- */

int dedup_owner(const struct dedup_job *j, uint64_t document) { return j->owner[corpus_unit_of(j->corpus, document)]; }

int dedup_edit(struct dedup_job *j, struct shuffle *edits, uint64_t document, uint64_t span, uint64_t of,
               uint64_t of_span, struct err *e)
{
    uint64_t edit[EDIT_WORDS] = {document, span, of, of_span};
    return shuffle_put(edits, edit, dedup_owner(j, document), e);
}

int dedup_view(struct dedup_job *j, int step, struct view **v, struct err *e)
{
    return view_open(v, j->corpus, j->edits, step, j->key, NULL, NULL, e);
}

int dedup_scan(struct dedup_job *j, int step, dedup_document_fn *each, void *ctx, struct err *e)
{
    struct view *v;
    struct corpus_document d;
    bool changed;
    int64_t done = 0, all = 0;
    double shown_s = clock_now_s();
    int code = dedup_view(j, step, &v, e);
    for (int64_t u = 0; u < corpus_n_units(j->corpus); u++)
        if (j->owner[u] == j->rank) all += corpus_unit_bytes(j->corpus, u);
    for (int64_t u = 0; u < corpus_n_units(j->corpus) && !code; u++) {
        if (j->owner[u] != j->rank) continue;
        view_begin(v, u);
        int got;
        while (!code && (got = view_next(v, &d, &changed, e)) != 0) code = got < 0 ? got : each(ctx, &d, e);
        done += corpus_unit_bytes(j->corpus, u);
        if (j->rank || clock_now_s() - shown_s < (log_is_terminal() ? 0.2 : 10)) continue;
        char a[32], b[32];
        shown_s = clock_now_s();
        log_status("dedup: %s: read %s of %s", rows[j->config->steps[step]].name, str_bytes(a, (double)done),
                   str_bytes(b, (double)all));
    }
    view_close(v);
    return code;
}

/* ---- a step --------------------------------------------------------------------------------------------------- */

static int write_edits(struct dedup_job *j, int step, struct shuffle *edits, struct err *e)
{
    struct sorted_writer *w;
    int code = sorted_create(&w, j->edits[step], EDIT_WORDS, j->key, e), got;
    if (code) return code;
    const uint64_t *r;
    while (!code && (got = shuffle_next(edits, &r, e)) != 0) code = got < 0 ? got : sorted_put(w, r, e);
    if (!code) return sorted_publish(w, true, e);
    sorted_abandon(w);
    return code;
}

static int run_step(struct dedup_job *j, int step, double *seconds, struct err *e)
{
    double from = clock_now_s();
    struct sorter_config x = {.dir = j->work,
                              .name = "edits-to-come",
                              .words = EDIT_WORDS,
                              .key_words = EDIT_WORDS,
                              .memory = j->memory / 4,
                              .distinct = true};
    struct shuffle *edits = shuffle_new(j->world, &x);
    int code = rows[j->config->steps[step]].run(j, step, edits, e);
    if (!code) code = shuffle_finish(edits, e);
    if (!code) code = write_edits(j, step, edits, e);
    shuffle_free(edits);
    /* The others are in the midst of a shuffle: they learn of it there. */
    if (code) comm_abort(j->world, e);
    *seconds = clock_now_s() - from;
    return code;
}

/* ---- the run -------------------------------------------------------------------------------------------------- */

/* Steps that every rank has the edits of. What else lies in the folder is of the step that was interrupted. */
static int steps_done(struct dedup_job *j, int *done, struct err *e)
{
    int64_t mine = 0;
    struct sorted_reader *r;
    for (; mine < j->config->n_steps; mine++) {
        struct err why;
        if (sorted_open(&r, j->edits[mine], EDIT_WORDS, j->key, &why)) break;
        sorted_close(r);
    }
    comm_wait(j->world, comm_all_reduce(j->world, &mine, &mine, 1, DT_I64, COMM_MIN, COMM_AT("steps done")));
    int code = comm_status(j->world, e);
    *done = (int)mine;
    char **names;
    int n;
    if (!code) code = fs_list(j->work, &names, &n, e);
    if (code) return code;
    for (int i = 0; i < n && !code; i++) {
        char *path = fs_join(j->work, names[i]);
        bool keep = false;
        for (int k = 0; k < *done; k++) keep = keep || !strcmp(path, j->edits[k]);
        if (!keep) code = fs_remove_tree(path, e);
        xfree(path);
    }
    fs_list_free(names, n);
    return code;
}

static int open_job(struct dedup_job *j, struct err *e)
{
    const struct dedup_config *c = j->config;
    size_t text_most = j->memory / 8 < EDIT_TEXT_MOST ? j->memory / 8 : EDIT_TEXT_MOST;
    int code = corpus_open(&j->corpus, c->inputs, c->n_inputs, c->column, c->skip_bad, c->unit_bytes, text_most, e);
    if (code) return code;
    choose_bands(c, &j->bands, &j->rows);
    j->key = key_of(c, j);
    j->owner = xmalloc(to_size(corpus_n_units(j->corpus)) * sizeof *j->owner);
    corpus_deal(j->corpus, j->n_ranks, j->owner);
    struct str path = {0};
    str_printf(&path, "%s/rank-%d-of-%d", c->work ? c->work : c->out, j->rank, j->n_ranks);
    if (!c->work) {
        str_clear(&path);
        str_printf(&path, "%s/" BESIDE_DEDUP_WORK "/rank-%d-of-%d", c->out, j->rank, j->n_ranks);
    }
    j->work = path.p;
    for (int i = 0; i < c->n_steps; i++) {
        struct str name = {0};
        str_printf(&name, "%s/%d-%s.edits", j->work, i, rows[c->steps[i]].name);
        j->edits[i] = name.p;
    }
    return OK;
}

/* Every rank lists the inputs for itself: ranks that see others (a mount that is missing on one host, a file that came
 * meanwhile) would compare, and drop, other documents. Collective(world). */
static int same_inputs(struct dedup_job *j, struct err *e)
{
    enum { KEY, UNITS, FILES, BYTES, N };
    int64_t mine[N] = {(int64_t)corpus_key(j->corpus), corpus_n_units(j->corpus), corpus_n_files(j->corpus),
                       corpus_bytes(j->corpus)},
            first[N];
    memcpy(first, mine, sizeof first);
    comm_wait(j->world, comm_broadcast(j->world, first, N, DT_I64, 0, COMM_AT("what the inputs are")));
    int code = comm_status(j->world, e);
    if (!code && memcmp(first, mine, sizeof first))
        code =
            err_set(e, ERR_REQUEST,
                    "rank %d sees other inputs than rank 0: %lld files of %lld bytes, and rank 0 has %lld of %lld%s; "
                    "all ranks have to see the same files, with the same times of change",
                    j->rank, (long long)mine[FILES], (long long)mine[BYTES], (long long)first[FILES],
                    (long long)first[BYTES],
                    first[FILES] == mine[FILES] && first[BYTES] == mine[BYTES] ? ", other ones" : "");
    return comm_agree(j->world, code, e);
}

static void close_job(struct dedup_job *j)
{
    corpus_close(j->corpus);
    for (int i = 0; i < EDIT_STEPS_MOST; i++) xfree(j->edits[i]);
    xfree(j->owner);
    xfree(j->work);
}

static int run_steps(struct dedup_job *j, struct dedup_result *r, struct err *e)
{
    int done = 0;
    int code = comm_agree(j->world, fs_mkdirs(j->work, e), e);
    if (!code) code = comm_agree(j->world, steps_done(j, &done, e), e);
    if (!code && done && !j->rank)
        log_info("dedup: %d of %d steps were done by a run that was interrupted", done, j->config->n_steps);
    for (int i = done; i < j->config->n_steps && !code; i++) code = run_step(j, i, &r->steps[i].seconds, e);
    return code;
}

/* Other ranks' figures that rank 0 reports. */
static int gather(struct dedup_job *j, struct dedup_result *r, struct err *e)
{
    double most[EDIT_STEPS_MOST + 2];
    for (int i = 0; i < EDIT_STEPS_MOST; i++) most[i] = r->steps[i].seconds;
    most[EDIT_STEPS_MOST] = r->write_s;
    most[EDIT_STEPS_MOST + 1] = (double)mem_rss_peak();
    comm_wait(j->world,
              comm_all_reduce(j->world, most, most, EDIT_STEPS_MOST + 2, DT_F64, COMM_MAX, COMM_AT("figures")));
    for (int i = 0; i < EDIT_STEPS_MOST; i++) r->steps[i].seconds = most[i];
    r->write_s = most[EDIT_STEPS_MOST];
    r->memory_peak = most[EDIT_STEPS_MOST + 1];
    return comm_status(j->world, e);
}

int dedup_run(struct comm *world, const struct dedup_config *c, struct dedup_result *r, struct err *e)
{
    struct dedup_job j = {.world = world,
                          .rank = comm_rank(world),
                          .n_ranks = comm_size(world),
                          .config = c,
                          .memory = (size_t)c->memory};
    struct dedup_folder folder = {.lock.fd = -1};
    double from = clock_now_s();
    *r = (struct dedup_result){.ranks = j.n_ranks};
    int code = dedup_check(c, e);
    if (!code) code = open_job(&j, e);
    /* From here on an error is one that all ranks have. */
    code = comm_agree(world, code, e);
    if (!code) code = same_inputs(&j, e);
    if (!code) code = comm_agree(world, j.rank ? OK : dedup_folder_take(&folder, c->out, j.key, e), e);
    if (!code) code = run_steps(&j, r, e);
    double write_from = clock_now_s();
    if (!code) code = comm_agree(world, dedup_write(&j, e), e);
    r->write_s = clock_now_s() - write_from;
    if (!code) code = gather(&j, r, e);
    if (!code) code = comm_agree(world, j.rank ? OK : dedup_finish(&j, r, e), e);
    if (!code) code = comm_agree(world, fs_remove_tree(j.work, e), e);
    if (!j.rank) dedup_folder_leave(&folder, !code);
    if (!j.rank) log_status_end();
    r->bands = j.bands;
    r->rows = j.rows;
    r->seconds = clock_now_s() - from;
    close_job(&j);
    return code;
}
