/* SPDX-License-Identifier: Apache-2.0 */
/* tutti score MODEL: what a reward model says of the answers on standard input, a number for each line. */
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/mem.h"
#include "base/str.h"
#include "cli/open_model.h"
#include "comm/comm.h"
#include "data/chat.h"
#include "decode/scoring.h"

/* Tokens that a template adds to an answer and its prompt, at most, where --positions does not say it; answers at once,
 * and positions of all of them together, where --batch does not. */
enum { TEMPLATE_MOST = 1024, BATCH = 16, POSITIONS_AT_ONCE = 1 << 16 };
#define INPUT_MOST ((size_t)4 << 30)

struct request {
    const char *chat, *date;
    int64_t batch, positions;
    struct cli_model model;
    struct str lines;
};
#define AT(field) offsetof(struct request, field)
static const struct cli_option options[] = {
    {"--chat", "T", CLI_TEXT, AT(chat),
     .help = "the template of prompts that are messages: a name or a file (default: the run's own, else the "
             "tokenizer's)"},
    {"--date", "DAY", CLI_TEXT, AT(date),
     .help = "the day, as YYYY-MM-DD, for a template that asks for it (default: the run's own)"},
    {"--batch", "N", CLI_INT, AT(batch), .lo = 1, .hi = 1024,
     .help = "answers at once (default: 16, fewer of long ones)"},
    {"--positions", "N", CLI_INT, AT(positions), .lo = 1, .hi = INT32_MAX,
     .help = "tokens of an answer with its prompt, at most (default: by the longest line)"},
    CLI_MODEL(struct request, model),
    CLI_ADAPTER(struct request, model.adapter),
    CLI_IGNORE(struct request, model.ignore),
};
static const struct cli_word words[] = {{.name = "MODEL", .at = AT(model.path)}};
static const struct cli_table table = {
    .command = "score",
    .usage = "MODEL [options] <ANSWERS",
    .about = "Scores answers with the reward model MODEL (a tutti checkpoint, a run directory, or a Hugging Face "
             "directory):\n"
             "a line of JSON for each on standard input, a number for each on standard output.\n"
             "  {\"answer\": \"15\", \"record\": {\"prompt\": \"7+8=\"}}\n"
             "Lines are those that train.grpo.reward is asked with, so it can be: tutti score MODEL\n",
    CLI_OPTIONS(options),
    CLI_WORDS(words),
};

static int read_lines(struct str *s, struct err *e)
{
    char piece[65536];
    size_t got;
    while (s->n <= INPUT_MOST && (got = fread(piece, 1, sizeof piece, stdin)) > 0) str_add(s, piece, got);
    if (ferror(stdin)) return err_set(e, ERR_IO, "standard input cannot be read");
    return s->n > INPUT_MOST
               ? err_set(e, ERR_REQUEST, "standard input: more than %zu bytes; score it in parts", INPUT_MOST)
               : OK;
}

/* A token is a byte at least. Processes of a launcher see no line but the first, and must all have one number. */
static int64_t positions_of(const struct request *q)
{
    const char *p = str_text(&q->lines), *end = p + q->lines.n;
    int64_t longest = 0;
    if (q->positions || comm_launched()) return q->positions;
    while (p < end) {
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        int64_t n = (stop ? stop : end) - p;
        if (n > longest) longest = n;
        p = stop ? stop + 1 : end;
    }
    return longest + TEMPLATE_MOST;
}

static int64_t batch_of(const struct request *q, int64_t positions)
{
    int64_t n = positions ? POSITIONS_AT_ONCE / positions : BATCH;
    return q->batch ? q->batch : n < 1 ? 1 : n > BATCH ? BATCH : n;
}

static int put(void *ctx, double score, struct err *e)
{
    (void)ctx;
    return printf("%.9g\n", score) < 0 ? err_set(e, ERR_IO, "standard output cannot be written") : OK;
}

/* The template: as asked, or the run's, or the tokenizer's own, where there is one. */
static int template_of(const struct request *q, const struct model_at_work *m, const char *from, char **name,
                       char **day, struct err *e)
{
    struct chat_rules rules = {.template_name = "tokenizer", .tokenizer_path = from};
    struct chat *own = NULL;
    struct err ignored;
    *day = NULL;
    *name = q->chat ? xstrdup(q->chat) : NULL;
    int rc = *name ? OK : scoring_template(m->weights, name, day, e);
    if (q->date) {
        xfree(*day);
        *day = xstrdup(q->date);
    }
    if (rc || *name || !fs_is_dir(from)) return rc;
    if (!chat_open(&own, &rules, m->tokenizer, &ignored)) *name = xstrdup(rules.template_name);
    chat_close(own);
    return OK;
}

static int score(void *ctx, struct model_at_work *m, struct err *e)
{
    const struct request *q = ctx;
    const char *from = q->model.tokenizer ? q->model.tokenizer : weights_path(m->weights);
    char *name = NULL, *day = NULL;
    int rc = template_of(q, m, from, &name, &day, e);
    struct scoring s = {.decoding = m->decoding,
                        .tokenizer = m->tokenizer,
                        .template_name = name,
                        .tokenizer_path = from,
                        .day = day,
                        .what = "standard input"};
    if (!rc) rc = scoring_lines(&s, str_text(&q->lines), q->lines.n, put, NULL, e);
    if (fflush(stdout) && !rc) rc = err_set(e, ERR_IO, "standard output cannot be written");
    xfree(name);
    xfree(day);
    return rc;
}

int cmd_score(int argc, char **argv)
{
    struct request q = {.model.dtype = "f32"};
    struct err e = {0};
    int rc;
    if (!cli_read(&table, argc, argv, &q, &rc)) return rc;
    if ((rc = cli_model_check("score", &q.model, false))) return rc;
    rc = read_lines(&q.lines, &e);
    int64_t positions = positions_of(&q), batch = batch_of(&q, positions);
    struct model_job j =
        {.options = {.sequences = batch, .positions = positions, .rows = batch > 256 ? batch : 256, .scores = true},
         .lead = score,
         .ctx = &q};
    rc = rc ? cli_fail(&e) : cli_model_run(&q.model, &j);
    str_free(&q.lines);
    return rc;
}
