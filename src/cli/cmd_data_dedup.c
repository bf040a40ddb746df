/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_data_dedup.c: `tutti data dedup`: a corpus without what is in it twice, over threads or processes. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/crowd.h"
#include "base/thread.h"
#include "cli/cmd_data.h"
#include "curate/dedup.h"

enum { MOST_RANKS = 256 };

struct request {
    const char *steps, *normal, *memory, *part, *unit;
    int64_t ranks, seed;
    bool crowd;
    double timeout_s;
    bool json, unverified;
    struct dedup_config c;
    struct cli_words inputs;
};
#define AT(field) offsetof(struct request, field)
static const struct cli_option option_rows[] = {
    {"--out", "DIR", CLI_TEXT, AT(c.out), .needed = true,
     .help = "writes DIR/part-00000.jsonl, ... and DIR/dedup.json; new, empty, or of the same command interrupted"},
    {"--steps", "LIST", CLI_TEXT, AT(steps), .help = "what is done, in this order, each on what is left; see above"},
    {"--normal", "FORM", CLI_CHOICE, AT(normal), .choices = "bytes|space|words",
     .help = "how exact, lines and paragraphs compare: as it is; runs of white space as one space; as words\n"
             "in lower case without marks"},
    {"--min-line", "N", CLI_INT, AT(c.line_least), .lo = 1, .hi = 1 << 20,
     .help = "lines and paragraphs of fewer bytes in that form are left alone"},
    {"--threshold", "S", CLI_REAL, AT(c.threshold), .most = 1, .help = "near: from this Jaccard similarity on"},
    {"--shingles", "KIND:N", CLI_TEXT, AT(c.shingles), .help = "near: of N words:, or of N chars:"},
    {"--hashes", "K", CLI_INT, AT(c.hashes), .lo = 1, .hi = 2048, .help = "near: places of a signature, at most"},
    {"--bands", "B", CLI_INT, AT(c.bands), .lo = 1, .hi = 2048,
     .help = "near: B bands of R rows instead of those that find nine in ten pairs at the threshold"},
    {"--rows", "R", CLI_INT, AT(c.rows), .lo = 1, .hi = 2048, .help = "near: with --bands"},
    {"--unverified", NULL, CLI_FLAG, AT(unverified), .help = "near: whatever shares a band goes, however similar"},
    {"--seed", "S", CLI_INT, AT(seed), .hi = INT64_MAX, .help = "near: of the hashes"},
    {"--repeat", "N", CLI_INT, AT(c.repeat_least), .lo = 16, .hi = 1 << 20,
     .help = "substring and passages: stretches of N bytes"},
    {"--part", "SIZE", CLI_TEXT, AT(part),
     .help = "substring: text whose suffixes are sorted at once, at 6 bytes a byte; what is found depends on it"},
    {"--memory", "SIZE", CLI_TEXT, AT(memory), .help = "of each rank; the rest is on disk. Decides nothing else"},
    CLI_CROWD(struct request, crowd),
    {"-n", "RANKS", CLI_INT, AT(ranks), .lo = 1, .hi = MOST_RANKS, .help = "ranks, as threads (default: all cores)"},
    {"--work", "DIR", CLI_TEXT, AT(c.work),
     .help = "for sorted files, about the text's size; may be each machine's own (default DIR/dedup.work of --out)"},
    {"--unit", "SIZE", CLI_TEXT, AT(unit), .help = "files that are dealt to a rank together, and become one part"},
    {"--samples", "N", CLI_INT, AT(c.samples), .hi = 1000, .help = "of what each step removed, in dedup.json"},
    {"--list", NULL, CLI_FLAG, AT(c.list), .help = "all that was removed goes to DIR/removed-00000.jsonl, ..."},
    {"--timeout", "SECONDS", CLI_REAL, AT(timeout_s), .least = 1, .most = 1e7,
     .help = "a rank that others wait for longer is named, and the job ends"},
    DATA_COLUMN(struct request, c.column),
    DATA_SKIP_BAD(struct request, c.skip_bad),
    CLI_JSON(struct request, json),
};
static const struct cli_word words[] = {{.name = "INPUT", .at = AT(inputs), .many = true}};
static const struct cli_table table = {
    .command = "data dedup",
    .usage = "--out DIR INPUT... [options], or mpirun -np N tutti data dedup ...",
    .about =
        "Removes from a corpus what is in it twice; of what is the same the first stays. Steps:\n"
        "  exact        documents that are the same in the form --normal\n"
        "  lines        lines of all documents; paragraphs: what lies between blank lines\n"
        "  near         documents that are nearly the same: MinHash, verified, clusters as a whole\n"
        "  substring    stretches of --repeat bytes that a part has twice, by a suffix array\n"
        "  passages     the same over all parts, from 5/4 of --repeat bytes on\n"
        "The result is the same to the byte for any number of ranks and any memory. Killed, it goes on when it is\n"
        "started again with the same options and ranks. All ranks see the inputs and --out.\n" DATA_INPUT,
    CLI_OPTIONS(option_rows),
    CLI_WORDS(words),
};

/* ---- what was asked for ----------------------------------------------------------------------------------------- */

static int read_size(const char *option, const char *text, double most, double *out, struct err *e)
{
    if (!str_to_bytes(text, out) && *out <= most) return OK;
    return err_set(e, ERR_REQUEST, "%s: wanted a size such as 512MiB, at most %.0f bytes, got '%s'", option, most,
                   text);
}

static int settle(const struct request *q, struct dedup_config *c, struct err *e)
{
    double part = 0, unit = 0;
    *c = q->c;
    c->inputs = q->inputs.p;
    c->n_inputs = q->inputs.n;
    c->normal = (enum normal_kind)normal_find(q->normal);
    c->seed = (uint64_t)q->seed;
    c->verify = !q->unverified;
    int code = dedup_read_steps("--steps", q->steps, c, e);
    if (!code) code = read_size("--memory", q->memory, 1e15, &c->memory, e);
    if (!code) code = read_size("--part", q->part, 2e9, &part, e);
    if (!code) code = read_size("--unit", q->unit, 1e15, &unit, e);
    c->part_bytes = (int64_t)part;
    c->unit_bytes = (int64_t)unit;
    return code ? code : dedup_check(c, e);
}

/* ---- the run ----------------------------------------------------------------------------------------------------- */

struct job {
    struct dedup_config c;
    struct dedup_result r; /* rank 0 writes */
};

static int run_rank(struct comm *world, void *arg, struct err *e)
{
    struct job *j = arg;
    struct dedup_result r;
    int code = dedup_run(world, &j->c, &r, e);
    if (comm_rank(world) == 0) j->r = r;
    return code;
}

static int run_launched(struct job *j, const struct comm_config *cfg, bool *print, struct err *e)
{
    struct comm *world;
    int code = comm_world_mpi(&world, cfg, e);
    if (code) return code;
    code = run_rank(world, j, e);
    *print = comm_rank(world) == 0;
    comm_free(world);
    return code;
}

/* ---- what is said ------------------------------------------------------------------------------------------------ */

static void print_json(const struct job *j)
{
    struct str text = {0};
    struct json_out o = {.s = &text};
    const struct dedup_result *r = &j->r;
    json_begin_document(&o, "data-dedup", 1);
    json_put_string(&o, "out", j->c.out);
    json_put_int(&o, "documents_in", r->documents_in);
    json_put_int(&o, "documents_out", r->documents_out);
    json_put_int(&o, "bytes_in", r->bytes_in);
    json_put_int(&o, "bytes_out", r->bytes_out);
    json_put_int(&o, "emptied", r->emptied);
    json_put_int(&o, "bad", r->bad);
    json_put_int(&o, "ranks", r->ranks);
    json_begin_array(&o, "steps");
    for (int i = 0; i < j->c.n_steps; i++) {
        json_begin_object(&o, NULL);
        json_put_string(&o, "step", dedup_kind_name(j->c.steps[i]));
        json_put_int(&o, "documents", r->steps[i].documents);
        json_put_int(&o, "spans", r->steps[i].spans);
        json_put_int(&o, "bytes", r->steps[i].bytes);
        json_put_real_digits(&o, "seconds", r->steps[i].seconds, 6);
        if (j->c.steps[i] == DEDUP_NEAR) {
            json_put_int(&o, "bands", r->bands);
            json_put_int(&o, "rows", r->rows);
        }
        json_end_object(&o);
    }
    json_end_array(&o);
    json_put_real_digits(&o, "write_s", r->write_s, 6);
    json_put_real_digits(&o, "seconds", r->seconds, 6);
    json_put_real_digits(&o, "bytes_per_s", data_per_second(r->bytes_in, r->seconds), 6);
    json_put_int(&o, "memory_peak_bytes", (int64_t)r->memory_peak);
    json_end_object(&o);
    data_print_json(&text);
}

static void print_people(const struct job *j)
{
    const struct dedup_result *r = &j->r;
    char a[32], b[32], rate[32], time[32];
    for (int i = 0; i < j->c.n_steps; i++) {
        const struct dedup_step_result *s = &r->steps[i];
        printf("%-10s  %lld documents and %lld stretches removed, %s, in %s\n", dedup_kind_name(j->c.steps[i]),
               (long long)s->documents, (long long)s->spans, str_bytes(a, (double)s->bytes),
               str_duration(time, s->seconds));
        if (j->c.steps[i] == DEDUP_NEAR)
            printf("            %d bands of %d rows: finds %.1f %% of pairs at %.2f, %.1f %% at %.2f\n", r->bands,
                   r->rows, 100 * dedup_finds(&j->c, r, j->c.threshold), j->c.threshold,
                   100 * dedup_finds(&j->c, r, (1 + j->c.threshold) / 2), (1 + j->c.threshold) / 2);
    }
    if (r->bad) printf("%lld bad records were passed over\n", (long long)r->bad);
    if (r->emptied) printf("%lld documents had nothing left\n", (long long)r->emptied);
    printf("%s: %lld of %lld documents stay, %s of %s; %s on %d rank%s, %s/s\n", j->c.out, (long long)r->documents_out,
           (long long)r->documents_in, str_bytes(a, (double)r->bytes_out), str_bytes(b, (double)r->bytes_in),
           str_duration(time, r->seconds), r->ranks, r->ranks > 1 ? "s" : "",
           str_bytes(rate, data_per_second(r->bytes_in, r->seconds)));
}

static int run(const void *options, struct err *e)
{
    const struct request *q = options;
    struct job j = {.c = {0}};
    int code = settle(q, &j.c, e);
    if (code) return code;
    struct comm_config cfg = {.timeout_s = q->timeout_s};
    bool print = true;
    int ranks = q->ranks ? (int)q->ranks : thread_n_cores() < MOST_RANKS ? thread_n_cores() : MOST_RANKS;
    if (!comm_launched() && (code = crowd_check(ranks, q->crowd, e))) return code;
    code = comm_launched() ? run_launched(&j, &cfg, &print, e) : comm_run_local(ranks, &cfg, run_rank, &j, e);
    if (!code && print) (q->json ? print_json : print_people)(&j);
    return code;
}

static const struct request usual = {.steps = "exact,near",
                                     .normal = "space",
                                     .memory = "1GiB",
                                     .part = "64MiB",
                                     .unit = "256MiB",
                                     .seed = 1,
                                     .timeout_s = 3600,
                                     .c = DEDUP_USUAL};
const struct data_command data_dedup = {"dedup", &table, &usual, sizeof usual, run};
