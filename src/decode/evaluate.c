/* SPDX-License-Identifier: Apache-2.0 */
/* Every record is a few answers (batching.h) that write nothing, or one that is written greedily. Choices of a record
 * share the pages of its prompt.
 *
 * Records are answered in groups, each begun with an empty cache. What rows are computed together is then a function of
 * the group alone, so the bits of its scores do not hang on which replica of the model has it; replicas take groups in
 * turn, and the scores of a round of groups are added in the file's order by all of them. Everybody reads all records,
 * which is little beside answering them. Rejected: records to replicas one by one (products of other numbers of rows
 * round otherwise, and sums would not be those of one rank). */
#include "decode/evaluate.h"

#include <math.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "comm/comm.h"

enum { GROUPS = 4 /* records of a group, for each sequence at once */ };

struct piece { /* one answer of a record */
    struct asked *of;
    double nats;      /* -log p of what is scored */
    int64_t tokens;   /* scored */
    int64_t position; /* in the text, of its first scored token */
    struct str text;  /* written */
    bool done;
};

struct asked { /* a record under way */
    struct task_record r;
    int n_pieces, left;
    int64_t number; /* of the record, from 1 */
    struct piece *piece;
    struct score_sums at[EVALUATE_POSITIONS];
    struct err err;
    struct asked *next;
};

struct evaluator {
    struct decoding *d;
    const struct tokenizer *t;
    struct batching *a;
    struct tasks *tasks;
    struct asked *first, **last;
    int64_t read;
    struct comm *replicas; /* NULL: one */
    struct evaluation *out;
    struct { /* per task, for the error of a mean of unlike records: sums over records of n^2, n x, x^2 */
        double nn, nx, xx;
    } * sums;
    struct tokens ids;
    int64_t apart; /* choices that have no token of their own behind their prompts */
};

double score_share(int64_t right, int64_t n, double *error)
{
    double p = n ? (double)right / (double)n : NAN;
    *error = n > 1 ? sqrt(p * (1 - p) / (double)(n - 1)) : NAN;
    return p;
}

static int bucket_of(int64_t position)
{
    int k = 0;
    while (k + 1 < EVALUATE_POSITIONS && (int64_t)1 << k <= position) k++;
    return k;
}

static bool take_token(void *ctx, const struct answer_token *t)
{
    struct piece *p = ctx;
    if (!t->prompt) {
        str_add(&p->text, t->text, t->n);
    } else if (!isnan(t->logprob)) {
        struct score_sums *s = &p->of->at[bucket_of(p->position + p->tokens)];
        p->nats -= t->logprob;
        p->tokens++;
        s->nats -= t->logprob;
        s->tokens++;
    }
    return true;
}

static void take_end(void *ctx, enum answer_end why, const char *rest, size_t n, const struct answer_counts *c,
                     const struct err *e)
{
    struct piece *p = ctx;
    (void)c;
    str_add(&p->text, rest, n);
    p->done = true;
    p->of->left--;
    if (why == ANSWER_FAILED && !p->of->err.code) p->of->err = *e;
}

/* The token before a text for which the tokenizer has none; -1: there is none. */
static int32_t start_of(const struct evaluator *v) { return tokenizer_start(v->t, decoding_model(v->d)->vocab); }

static int ask_scored(struct evaluator *v, struct piece *p, const int32_t *ids, int64_t n, int64_t from, int64_t after,
                      int64_t *id, struct err *e)
{
    struct answer_spec s = {.ids = ids,
                            .n = n,
                            .sample = {.top_p = 1},
                            .top = 0,
                            .tell_prompt = true,
                            .tell_from = from,
                            .after = after,
                            .token = take_token,
                            .end = take_end,
                            .ctx = p};
    return batching_add(v->a, &s, id, e);
}

static struct piece *pieces_of(struct asked *q, int n)
{
    q->n_pieces = q->left = n;
    q->piece = xcalloc((size_t)n, sizeof *q->piece);
    for (int i = 0; i < n; i++) q->piece[i].of = q;
    return q->piece;
}

/* The text's tokens behind what the tokenizer puts before a text, or else behind bos or eos. *before: how many those
 * are. */
static int encode_scored(struct evaluator *v, const char *text, int64_t *before, struct err *e)
{
    v->ids.n = 0;
    if (!tokenizer_begin(v->t)->n && start_of(v) >= 0) tokens_push(&v->ids, start_of(v));
    *before = v->ids.n + tokenizer_begin(v->t)->n;
    return tokenizer_encode_text(v->t, text, strlen(text), &v->ids, e);
}

/* A text that is longer than the model in windows as lm-eval cuts them: each feeds as many tokens as the model has
 * positions and is told what follows each of them; the first one of a window is the last that was told before, and the
 * last window is filled up by tokens before it. */
static int ask_text(struct evaluator *v, struct asked *q, struct err *e)
{
    int64_t room = decoding_room(v->d), before, id;
    int rc = encode_scored(v, q->r.prompt, &before, e);
    if (rc) return rc;
    int64_t n = v->ids.n, first = before ? before : 1, windows = 0, k = 0;
    if (first > room)
        return err_set(e, ERR_REQUEST, "the model has %lld positions, and the tokenizer puts %lld tokens before a text",
                       (long long)room, (long long)before);
    if (n <= first)
        return err_set(e, ERR_REQUEST,
                       before ? "the tokenizer makes nothing of the text"
                              : "the text is a single token, and nothing predicts it");
    for (int64_t lo = first; lo < n; lo = windows == 1 ? room + 1 : lo + room) windows++;
    struct piece *p = pieces_of(q, to_int(windows));
    for (int64_t lo = first, hi; lo < n && !rc; lo = hi, k++) { /* tokens [lo, hi) are told */
        hi = k ? lo + room : room + 1;
        if (hi > n) hi = n;
        int64_t begin = hi - 1 - room > 0 ? hi - 1 - room : 0;
        p[k].position = lo - before;
        rc = ask_scored(v, &p[k], v->ids.ids + begin, hi - begin, lo - begin, 0, &id, e);
    }
    return rc;
}

/* Said of the first one, and how many there were at the end. */
static void tell_apart(struct evaluator *v, const struct asked *q, int choice)
{
    if (!v->apart++)
        log_warn("eval: record %lld: choice %d, \"%.40s\", merges with the end of its prompt into one token; such "
                 "choices "
                 "are tokenized apart",
                 (long long)q->number, choice, q->r.choice[choice]);
}

static int ask_choices(struct evaluator *v, struct asked *q, struct err *e)
{
    struct piece *p = pieces_of(q, q->r.n_choices);
    int64_t from, id, first = 0;
    for (int i = 0; i < q->r.n_choices; i++) {
        bool apart;
        int rc = task_pair(v->t, q->r.prompt, q->r.choice[i], start_of(v), &v->ids, &from, &apart, e);
        if (!rc && !from)
            rc = err_set(e, ERR_REQUEST,
                         "nothing stands before the choices, and the tokenizer names no token that begins or ends a "
                         "text: the first token of a choice is not predicted");
        if (!rc && apart) tell_apart(v, q, i);
        if (!rc) rc = ask_scored(v, &p[i], v->ids.ids, v->ids.n, from, first, &id, e);
        if (rc) return rc;
        if (!first) first = id;
    }
    return OK;
}

static int ask_match(struct evaluator *v, struct asked *q, struct err *e)
{
    struct piece *p = pieces_of(q, 1);
    int64_t id;
    v->ids.n = 0;
    int rc = tokenizer_encode_text(v->t, q->r.prompt, strlen(q->r.prompt), &v->ids, e);
    if (!rc && !v->ids.n && start_of(v) >= 0) tokens_push(&v->ids, start_of(v));
    struct answer_spec s = {.ids = v->ids.ids,
                            .n = v->ids.n,
                            .max_tokens = q->r.max_tokens,
                            .sample = {.top_p = 1},
                            .stop = (const char *const *)q->r.stop,
                            .n_stop = q->r.n_stop,
                            .top = -1,
                            .token = take_token,
                            .end = take_end,
                            .ctx = p};
    return rc ? rc : batching_add(v->a, &s, &id, e);
}

/* ---- scores ---- */

static int task_of(struct evaluator *v, const struct task_record *r, struct err *e)
{
    struct evaluation *o = v->out;
    for (int i = 0; i < o->n_tasks; i++) {
        if (strcmp(o->task[i].name, r->name)) continue;
        if (o->task[i].kind == r->kind) return i;
        return err_set(e, ERR_REQUEST, "task \"%s\" has records of two kinds, %s and %s: give them two names", r->name,
                       task_kind_name(o->task[i].kind), task_kind_name(r->kind));
    }
    o->task = xrealloc(o->task, to_size(o->n_tasks + 1) * sizeof *o->task);
    v->sums = xrealloc(v->sums, to_size(o->n_tasks + 1) * sizeof *v->sums);
    memset(&v->sums[o->n_tasks], 0, sizeof *v->sums);
    o->task[o->n_tasks] = (struct task_score){.name = xstrdup(r->name), .kind = r->kind};
    return o->n_tasks++;
}

static int64_t words_of(const char *text)
{
    int64_t n = 0;
    for (const char *p = text; *p; p++) n += !strchr(" \t\n\r\v\f", *p) && (p == text || strchr(" \t\n\r\v\f", p[-1]));
    return n;
}

/* What a record comes to, as replicas tell each other; all numbers, so that those that others have are 0. */
struct outcome {
    double nats, tokens, bytes, words, right, right_per_byte, seen; /* seen: tokens scored or written */
    struct {
        double nats, tokens;
    } at[EVALUATE_POSITIONS];
};
enum { OUTCOME = sizeof(struct outcome) / sizeof(double) };

static void text_outcome(const struct asked *q, struct outcome *s)
{
    for (int i = 0; i < q->n_pieces; i++) {
        s->nats += q->piece[i].nats;
        s->tokens += (double)q->piece[i].tokens;
    }
    s->bytes = (double)strlen(q->r.prompt);
    s->words = (double)words_of(q->r.prompt);
    for (int i = 0; i < EVALUATE_POSITIONS; i++) {
        s->at[i].nats = q->at[i].nats;
        s->at[i].tokens = (double)q->at[i].tokens;
    }
}

static void choice_outcome(const struct asked *q, struct outcome *s)
{
    int best = 0, best_per_byte = 0;
    for (int i = 1; i < q->n_pieces; i++) {
        const struct piece *p = q->piece;
        double of = (double)strlen(q->r.choice[i]), than = (double)strlen(q->r.choice[best_per_byte]);
        if (p[i].nats < p[best].nats) best = i;
        if (p[i].nats / of < p[best_per_byte].nats / than) best_per_byte = i;
    }
    s->right = best == q->r.answer;
    s->right_per_byte = best_per_byte == q->r.answer;
}

static void outcome_of(const struct asked *q, struct outcome *s)
{
    if (q->r.kind == TASK_TEXT) text_outcome(q, s);
    else if (q->r.kind == TASK_CHOICE) choice_outcome(q, s);
    else s->right = !strcmp(str_text(&q->piece[0].text), q->r.target) && strlen(q->r.target) == q->piece[0].text.n;
    for (int i = 0; i < q->n_pieces; i++) s->seen += (double)q->piece[i].tokens;
}

static void score(struct evaluator *v, int task, const struct outcome *x)
{
    struct task_score *s = &v->out->task[task];
    s->records++;
    s->nats += x->nats;
    s->tokens += (int64_t)x->tokens;
    s->bytes += (int64_t)x->bytes;
    s->words += (int64_t)x->words;
    s->right += (int64_t)x->right;
    s->right_per_byte += (int64_t)x->right_per_byte;
    for (int i = 0; i < EVALUATE_POSITIONS; i++) {
        s->at[i].nats += x->at[i].nats;
        s->at[i].tokens += (int64_t)x->at[i].tokens;
    }
    v->sums[task].nn += x->tokens * x->tokens;
    v->sums[task].nx += x->tokens * x->nats;
    v->sums[task].xx += x->nats * x->nats;
    v->out->records++;
    v->out->tokens += (int64_t)x->seen;
}

/* Of nats per token, a ratio of two sums over records. */
static void finish_errors(struct evaluator *v)
{
    for (int i = 0; i < v->out->n_tasks; i++) {
        struct task_score *s = &v->out->task[i];
        double n = (double)s->records, per = s->nats / (double)s->tokens,
               squares = v->sums[i].xx - 2 * per * v->sums[i].nx + per * per * v->sums[i].nn;
        s->nats_error = s->records > 1 ? sqrt(fmax(squares, 0) * n / (n - 1)) / (double)s->tokens : NAN;
    }
}

/* ---- the walk ---- */

static void asked_free(struct asked *q)
{
    for (int i = 0; i < q->n_pieces; i++) str_free(&q->piece[i].text);
    xfree(q->piece);
    task_record_fini(&q->r);
    xfree(q);
}

static int ask(struct evaluator *v, struct asked *q, struct err *e)
{
    int rc = q->r.kind == TASK_TEXT     ? ask_text(v, q, e)
             : q->r.kind == TASK_CHOICE ? ask_choices(v, q, e)
                                        : ask_match(v, q, e);
    return rc ? err_prefix(e, "record %lld", (long long)q->number) : OK;
}

/* 1: one more record; 0: there are none. mine: it is asked here. */
static int read_next(struct evaluator *v, bool mine, int *task, struct err *e)
{
    struct asked *q = xcalloc(1, sizeof *q);
    int got = tasks_next(v->tasks, &q->r, e);
    if (got <= 0) {
        xfree(q);
        return got;
    }
    q->number = ++v->read;
    int rc = *task = task_of(v, &q->r, e);
    if (rc < 0) err_prefix(e, "record %lld", (long long)v->read);
    if (rc < 0 || !mine) {
        asked_free(q);
        return rc < 0 ? rc : 1;
    }
    *v->last = q;
    v->last = &q->next;
    return 1;
}

/* The records of this replica's group, answered in turn. */
static int answer_group(struct evaluator *v, struct outcome *out, struct err *e)
{
    int rc = OK;
    struct asked *next = v->first;
    while (!rc && v->first) {
        for (; !rc && next && batching_waiting(v->a) + batching_writing(v->a) < 2 * decoding_sequences(v->d);
             next = next->next)
            rc = ask(v, next, e);
        if (!rc) rc = batching_step(v->a, e);
        while (!rc && v->first && v->first != next && !v->first->left) {
            struct asked *q = v->first;
            rc = q->err.code ? (*e = q->err, q->err.code) : OK;
            if (!rc) outcome_of(q, out++);
            v->first = q->next;
            if (!v->first) v->last = &v->first;
            asked_free(q);
        }
    }
    return rc;
}

/* A group for each replica: *more says whether there may be others. */
static int round_of_groups(struct evaluator *v, bool *more, struct err *e)
{
    int replicas = v->replicas ? comm_size(v->replicas) : 1, me = v->replicas ? comm_rank(v->replicas) : 0, got = 1;
    int64_t group = GROUPS * decoding_sequences(v->d), all = group * replicas, n = 0;
    int *task = xcalloc(to_size(all), sizeof *task);
    while (n < all && (got = read_next(v, n / group == me, &task[n], e)) > 0) n++;
    int rc = got < 0 ? got : OK;
    struct outcome *out = xcalloc(to_size(n) + 1, sizeof *out);
    decoding_forget(v->d);
    if (!rc && v->first) rc = answer_group(v, out + group * me, e);
    if (v->replicas) rc = comm_agree(v->replicas, rc, e);
    if (!rc && v->replicas) {
        comm_wait(v->replicas,
                  comm_all_reduce(v->replicas, out, out, n * OUTCOME, DT_F64, COMM_SUM, COMM_AT("scores")));
        rc = comm_status(v->replicas, e);
    }
    for (int64_t i = 0; !rc && i < n; i++) score(v, task[i], &out[i]);
    *more = n == all;
    xfree(out);
    xfree(task);
    return rc;
}

int evaluate(struct decoding *d, const struct tokenizer *t, const char *path, struct evaluation *out, struct err *e)
{
    return evaluate_shared(d, t, path, NULL, out, e);
}

int evaluate_shared(struct decoding *d, const struct tokenizer *t, const char *path, struct comm *replicas,
                    struct evaluation *out, struct err *e)
{
    struct evaluator v = {.d = d, .t = t, .out = out, .replicas = replicas};
    bool more = true;
    *out = (struct evaluation){0};
    v.last = &v.first;
    v.a = batching_new(d, t);
    int rc = tasks_open(&v.tasks, path, e);
    if (replicas) rc = comm_agree(replicas, rc, e);
    while (!rc && more) rc = round_of_groups(&v, &more, e);
    if (!rc && !out->records) rc = err_set(e, ERR_REQUEST, "%s: has no records", path);
    if (!rc) finish_errors(&v);
    if (!rc && v.apart > 1) log_warn("eval: %lld choices in all were tokenized apart", (long long)v.apart);
    batching_free(v.a);
    for (struct asked *q = v.first, *next; q; q = next) {
        next = q->next;
        asked_free(q);
    }
    tasks_close(v.tasks);
    tokens_free(&v.ids);
    xfree(v.sums);
    if (rc) evaluation_fini(out);
    return rc;
}

void evaluation_fini(struct evaluation *v)
{
    for (int i = 0; i < v->n_tasks; i++) xfree(v->task[i].name);
    xfree(v->task);
    *v = (struct evaluation){0};
}
