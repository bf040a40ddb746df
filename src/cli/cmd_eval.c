/* SPDX-License-Identifier: Apache-2.0 */
/* tutti eval MODEL --tasks FILE: perplexity, multiple choice and exact match over the records of a .jsonl file. */
#include <math.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/open_model.h"
#include "decode/evaluate.h"

struct request {
    const char *tasks;
    int64_t batch, positions;
    struct cli_model model;
    bool json;
    double from_s;
};
#define AT(field) offsetof(struct request, field)
static const struct cli_option options[] = {
    {"--tasks", "FILE", CLI_TEXT, AT(tasks), .help = "records to answer, .jsonl (docs/serving.md)"},
    {"--batch", "N", CLI_INT, AT(batch), .lo = 1, .hi = 1024, .help = "texts at once"},
    {"--positions", "N", CLI_INT, AT(positions), .lo = 2, .hi = INT32_MAX,
     .help = "of a text; longer ones are cut into windows (default: as many as the model has)"},
    CLI_MODEL(struct request, model),
    CLI_IGNORE(struct request, model.ignore),
    {"--json", NULL, CLI_FLAG, AT(json), .help = "one JSON object of the scores (docs/json.md)"},
};
static const struct cli_word words[] = {{.name = "MODEL", .at = AT(model.path)}};
static const struct cli_table table = {
    .command = "eval",
    .usage = "MODEL --tasks FILE [options]",
    .about = "Scores MODEL (a tutti checkpoint, a run directory, or a Hugging Face directory) by the records of FILE:\n"
             "perplexity of texts, multiple choice by log-likelihood, exact match of what it writes.\n"
             "Over several ranks, those that --tp and --pp leave have the model again and share out the records: the "
             "scores are\n"
             "those of one, to the bit.\n",
    CLI_OPTIONS(options),
    CLI_WORDS(words),
};

static void put_text(struct json_out *o, const struct task_score *s)
{
    double per = s->nats / (double)s->tokens;
    json_put_int(o, "tokens", s->tokens);
    json_put_real(o, "nats", s->nats);
    json_put_real(o, "nats_per_token", per);
    json_put_real(o, "nats_per_token_stderr", s->nats_error);
    json_put_real(o, "perplexity", exp(per));
    json_put_real(o, "bits_per_byte", s->nats / (double)s->bytes / log(2));
    if (s->words) json_put_real(o, "word_perplexity", exp(s->nats / (double)s->words));
    json_begin_array(o, "positions");
    for (int i = 0; i < EVALUATE_POSITIONS; i++) {
        if (!s->at[i].tokens) continue;
        json_begin_object(o, NULL);
        json_put_int(o, "from", i ? (int64_t)1 << (i - 1) : 0);
        json_put_int(o, "tokens", s->at[i].tokens);
        json_put_real(o, "perplexity", exp(s->at[i].nats / (double)s->at[i].tokens));
        json_end_object(o);
    }
    json_end_array(o);
}

static void put_share(struct json_out *o, const char *name, int64_t right, int64_t n)
{
    double error, share = score_share(right, n, &error);
    struct str key = {0};
    str_printf(&key, "%s_stderr", name);
    json_put_real(o, name, share);
    json_put_real(o, str_text(&key), error);
    str_free(&key);
}

static void print_json(const struct request *q, const struct evaluation *v, double took_s)
{
    struct str s = {0};
    struct json_out o = {.s = &s};
    json_begin_document(&o, "eval", 1);
    json_put_string(&o, "model", q->model.path);
    json_put_string(&o, "file", q->tasks);
    json_put_int(&o, "records", v->records);
    json_put_real(&o, "took_s", took_s);
    json_begin_array(&o, "tasks");
    for (int i = 0; i < v->n_tasks; i++) {
        const struct task_score *t = &v->task[i];
        json_begin_object(&o, NULL);
        json_put_string(&o, "task", t->name);
        json_put_string(&o, "kind", task_kind_name(t->kind));
        json_put_int(&o, "records", t->records);
        if (t->kind == TASK_TEXT) put_text(&o, t);
        if (t->kind == TASK_CHOICE) put_share(&o, "accuracy", t->right, t->records);
        if (t->kind == TASK_CHOICE) put_share(&o, "accuracy_per_byte", t->right_per_byte, t->records);
        if (t->kind == TASK_MATCH) put_share(&o, "exact_match", t->right, t->records);
        json_end_object(&o);
    }
    json_end_array(&o);
    json_end_object(&o);
    printf("%s\n", str_text(&s));
    str_free(&s);
}

static void print_share(const char *task, const char *what, int64_t right, int64_t n)
{
    double error, share = score_share(right, n, &error);
    printf("%-20s %8lld  %-18s %8.4f", task, (long long)n, what, share);
    if (isnan(error)) printf("\n");
    else printf(" +- %.4f\n", error);
}

static void print_table(const struct evaluation *v)
{
    printf("%-20s %8s  %-18s %8s\n", "task", "records", "score", "value");
    for (int i = 0; i < v->n_tasks; i++) {
        const struct task_score *t = &v->task[i];
        double per = t->nats / (double)t->tokens;
        if (t->kind == TASK_CHOICE) print_share(t->name, "accuracy", t->right, t->records);
        if (t->kind == TASK_CHOICE) print_share("", "accuracy per byte", t->right_per_byte, t->records);
        if (t->kind == TASK_MATCH) print_share(t->name, "exact match", t->right, t->records);
        if (t->kind != TASK_TEXT) continue;
        printf("%-20s %8lld  %-18s %8.4f", t->name, (long long)t->records, "perplexity", exp(per));
        if (isnan(t->nats_error)) printf("\n");
        else printf(" +- %.4f\n", exp(per) * t->nats_error);
        printf("%-20s %8s  %-18s %8.4f\n", "", "", "bits per byte", t->nats / (double)t->bytes / log(2));
        for (int k = 0; k < EVALUATE_POSITIONS; k++)
            if (t->at[k].tokens)
                printf("%-20s %8s    from token %-6lld %8.4f\n", "", "", k ? 1LL << (k - 1) : 0LL,
                       exp(t->at[k].nats / (double)t->at[k].tokens));
    }
}

static int score(void *ctx, struct model_at_work *m, struct err *e)
{
    const struct request *q = ctx;
    struct evaluation v;
    int rc = evaluate_shared(m->decoding, m->tokenizer, q->tasks, m->leaders, &v, e);
    if (rc) return rc;
    if (m->replica == 0 && q->json) print_json(q, &v, clock_now_s() - q->from_s);
    else if (m->replica == 0) print_table(&v);
    evaluation_fini(&v);
    return OK;
}

int cmd_eval(int argc, char **argv)
{
    struct request q = {.model.dtype = "f32", .batch = 16, .from_s = clock_now_s()};
    int rc;
    if (!cli_read(&table, argc, argv, &q, &rc)) return rc;
    if (!q.tasks) return cli_usage("eval", "--tasks FILE is needed");
    if ((rc = cli_model_check("eval", &q.model, true))) return rc;
    struct model_job j = {.replicas = true,
                          .options = {.sequences = q.batch, .positions = q.positions, .rows = 256},
                          .lead = score,
                          .ctx = &q};
    return cli_model_run(&q.model, &j);
}
