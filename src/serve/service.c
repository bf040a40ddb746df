/* SPDX-License-Identifier: Apache-2.0 */
/* A request goes from the server's thread to the desk's, and from there to a queue, a list under one mutex; everything
 * else of it belongs to the service's thread from when it takes the request off that. What clients may see of the
 * numbers (metrics) is counted in atomics. */
#include "serve/service.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/cond.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "http/http_calls.h"
#include "serve/api_reply.h"
#include "serve/api_request.h"
#include "serve/chat_page.h"
#include "serve/desk.h"

#define LOOK_S 0.2 /* between two looks at clients that may be gone */
enum { READERS = 2, TOLD_BYTES = 64 << 20 };

struct asked { /* a request under way */
    struct http_call *call;
    struct api_request r;
    struct api_head head;
    char id[32];
    double came_s;
    struct api_choice *choice;
    struct choice_ctx {
        struct asked *of;
        int at;
        int64_t answer; /* 0: at its end */
        bool first;
    } * ctx;
    int n_choices, left;
    size_t told_bytes; /* that its log-probabilities may take */
    bool lost;         /* nobody reads it: its answers stop */
    struct api_usage usage;
    struct err err;
    struct asked *next;
};

enum count {
    COUNT_REQUESTS,
    COUNT_REFUSED,
    COUNT_BUSY,
    COUNT_DONE,
    COUNT_LOST,
    COUNT_LATE,
    COUNT_FAILED,
    COUNT_PROMPT,
    COUNT_REUSED,
    COUNT_WRITTEN,
    COUNT_STEPS,
    COUNTS
};
static const struct {
    const char *name, *help;
} counts[COUNTS] = {
    {"tutti_requests_total", "requests for completions that came"},
    {"tutti_requests_refused_total", "that were wrong"},
    {"tutti_requests_busy_total", "that were sent away because too many waited"},
    {"tutti_requests_done_total", "that were answered to the end"},
    {"tutti_requests_lost_total", "whose client went away or read too slowly"},
    {"tutti_requests_late_total", "that took longer than a request may"},
    {"tutti_requests_failed_total", "that failed here"},
    {"tutti_prompt_tokens_total", "tokens of prompts"},
    {"tutti_prompt_tokens_reused_total", "of them taken from the cache"},
    {"tutti_generated_tokens_total", "tokens written"},
    {"tutti_steps_total", "steps of the model"},
};

struct service {
    struct service_config c;
    struct http_calls *server;
    struct desk *desk;
    struct batching *answering;
    struct asked *asked; /* under way; the service's thread */
    int64_t created;
    atomic_llong n[COUNTS], writing, waiting, pages_left, ids;
    double looked_s;

    pthread_mutex_t lock; /* of the queue */
    pthread_cond_t came;
    struct asked *queue, **last;
    int queued;        /* answers, begun or not */
    size_t told_bytes; /* of all that are queued */
    bool closing;
};

static void count(struct service *s, enum count c, int64_t n) { atomic_fetch_add(&s->n[c], n); }

/* ---- answers that need no model ---- */

static void asked_free(struct asked *q)
{
    for (int i = 0; i < q->n_choices; i++) {
        str_free(&q->choice[i].text);
        xfree(q->choice[i].token);
        xfree(q->choice[i].likely);
    }
    xfree(q->choice);
    xfree(q->ctx);
    api_request_fini(&q->r);
    xfree(q);
}

static void refuse_text(void *ctx, int status, const char *why, struct str *body)
{
    (void)ctx;
    api_put_error(body, status, why);
}

static void answer_error(struct http_call *c, int status, const char *why)
{
    struct str body = {0};
    api_put_error(&body, status, why);
    http_call_answer(c, status, "application/json", str_text(&body), body.n);
    str_free(&body);
}

static void put_metrics(struct service *s, struct str *out)
{
    const struct {
        const char *name, *help;
        long long v;
    } now[] = {
        {"tutti_answers_writing", "answers that are being written", atomic_load(&s->writing)},
        {"tutti_answers_waiting", "answers that wait for room", atomic_load(&s->waiting)},
        {"tutti_cache_pages", "pages of the key/value cache", decoding_pages(s->c.decoding)},
        {"tutti_cache_pages_free", "of them nobody's", atomic_load(&s->pages_left)},
    };
    for (int i = 0; i < COUNTS; i++)
        str_printf(out, "# HELP %s %s\n# TYPE %s counter\n%s %lld\n", counts[i].name, counts[i].help, counts[i].name,
                   counts[i].name, (long long)atomic_load(&s->n[i]));
    for (size_t i = 0; i < sizeof now / sizeof *now; i++)
        str_printf(out, "# HELP %s %s\n# TYPE %s gauge\n%s %lld\n", now[i].name, now[i].help, now[i].name, now[i].name,
                   now[i].v);
}

/* ---- the desk's threads ---- */

static int answers_of(const struct asked *q) { return q->r.n * q->r.n_prompts; }

static size_t most_told(const struct service *s) { return s->c.told_bytes ? s->c.told_bytes : TOLD_BYTES; }

/* Of a stream nothing waits for its end. */
static size_t told_bytes(const struct api_request *r)
{
    int64_t tokens = 0;
    for (int i = 0; i < r->n_prompts; i++) tokens += r->max_tokens + (r->echo ? r->prompt[i].n : 0);
    return r->logprobs < 0 || r->stream ? 0 : to_size(tokens) * (size_t)r->n * api_told_bytes(r->chat, r->logprobs);
}

/* What can never be answered here. */
static int look_at_size(const struct service *s, const struct asked *q, struct err *e)
{
    if (answers_of(q) > s->c.queue)
        return err_set(e, ERR_REQUEST, "n: %d answers to %d prompts are %d, and this server takes %d at once (--queue)",
                       q->r.n, q->r.n_prompts, answers_of(q), s->c.queue);
    if (q->told_bytes > most_told(s))
        return err_set(e, ERR_REQUEST,
                       "logprobs: of %d answers of up to %lld tokens they may take %zu MiB, and this server has %zu "
                       "for "
                       "them (--logprobs); ask for fewer, for a smaller max_tokens, or for a stream",
                       answers_of(q), (long long)q->r.max_tokens, q->told_bytes >> 20, most_told(s) >> 20);
    return OK;
}

static void enqueue(struct service *s, struct asked *q)
{
    pthread_mutex_lock(&s->lock);
    bool closing = s->closing, full = s->queued + answers_of(q) > s->c.queue,
         much = q->told_bytes && s->told_bytes + http_calls_held(q->call) + q->told_bytes > most_told(s);
    if (!closing && !full && !much) {
        *s->last = q;
        s->last = &q->next;
        s->queued += answers_of(q);
        s->told_bytes += q->told_bytes;
        pthread_cond_signal(&s->came);
        q = NULL;
    }
    pthread_mutex_unlock(&s->lock);
    if (!q) return;
    count(s, COUNT_BUSY, 1);
    answer_error(q->call, closing ? 503 : 429,
                 closing ? "the server is closing"
                 : full  ? "too many answers are under way; come back later"
                         : "too many log-probabilities are under way; come back later");
    asked_free(q);
}

static struct asked *asked_new(struct service *s, struct http_call *c, bool chat)
{
    struct asked *q = xcalloc(1, sizeof *q);
    q->call = c;
    q->came_s = clock_now_s();
    snprintf(q->id, sizeof q->id, "%s-%llx", chat ? "chatcmpl" : "cmpl",
             (unsigned long long)atomic_fetch_add(&s->ids, 1) + ((unsigned long long)s->created << 20));
    q->head = (struct api_head){.chat = chat,
                                .id = q->id,
                                .model = s->c.model,
                                .created = (int64_t)time(NULL),
                                .t = s->c.tokenizer};
    return q;
}

static void read_request(void *ctx, struct http_call *c)
{
    struct service *s = ctx;
    struct err e = {0};
    size_t n;
    int status;
    bool chat = !strcmp(http_call_path(c), "/v1/chat/completions");
    const char *body = http_call_body(c, &n);
    const struct api_limits limits = {s->c.max_tokens, decoding_room(s->c.decoding),
                                      decoding_model(s->c.decoding)->vocab, s->c.model};
    if (http_call_gone(c)) {
        count(s, COUNT_LOST, 1);
        answer_error(c, 503, "nobody is there");
        return;
    }
    struct asked *q = asked_new(s, c, chat);
    int rc = api_request_read(&q->r, chat, body, n, s->c.tokenizer, s->c.chat, &limits, &status, &e);
    if (!rc) q->told_bytes = told_bytes(&q->r);
    if (!rc) rc = look_at_size(s, q, &e);
    http_call_drop_body(c);
    if (rc) {
        count(s, COUNT_REFUSED, 1);
        answer_error(c, status, e.text);
        asked_free(q);
        return;
    }
    q->head.logprobs = q->r.logprobs;
    if (!q->r.seeded) q->r.sample.seed = (uint64_t)(clock_now_s() * 1e9) * 0x9E3779B97F4A7C15u;
    enqueue(s, q);
}

static void end_request(void *ctx, struct http_call *c)
{
    count(ctx, COUNT_BUSY, 1);
    answer_error(c, 503, "the server is closing");
}

/* ---- the server's thread ---- */

static void ask(struct service *s, struct http_call *c)
{
    count(s, COUNT_REQUESTS, 1);
    if (desk_put(s->desk, c)) return;
    count(s, COUNT_BUSY, 1);
    answer_error(c, 429, "too many requests wait; come back later");
}

#define MODELS "/v1/models/"

/* GET /v1/models/NAME */
static void tell_model(struct service *s, struct http_call *c)
{
    struct str body = {0};
    if (strcmp(http_call_path(c) + strlen(MODELS), s->c.model) != 0) {
        answer_error(c, 404, "there is no such model here; /v1/models names the one there is");
        return;
    }
    api_put_model(&body, s->c.model, s->created, decoding_room(s->c.decoding));
    http_call_take(c, 200, "application/json", &body);
}

static const struct route {
    const char *path, *method;
} routes[] = {{"/v1/completions", "POST"}, {"/v1/chat/completions", "POST"},
              {"/v1/models", "GET"},       {"/metrics", "GET"},
              {"/health", "GET"},          {"/", "GET"}};

static bool is_open(void *ctx, const char *path)
{
    (void)ctx;
    return !strcmp(path, "/") || !strcmp(path, "/health");
}

static void called(void *ctx, struct http_call *c)
{
    struct service *s = ctx;
    const char *path = http_call_path(c), *method = http_call_method(c);
    size_t i = 0, n = sizeof routes / sizeof *routes;
    struct str body = {0};
    while (i < n && strcmp(routes[i].path, path)) i++;
    if (str_starts(path, MODELS) && (!strcmp(method, "GET") || !strcmp(method, "HEAD"))) {
        tell_model(s, c);
    } else if (i == n) {
        answer_error(c, 404, "there is no such page; there are /v1/completions, /v1/chat/completions and /v1/models");
    } else if (strcmp(routes[i].method, method) && !(!strcmp(method, "HEAD") && !strcmp(routes[i].method, "GET"))) {
        answer_error(c, 405, !strcmp(routes[i].method, "POST") ? "POST it" : "GET it");
    } else if (i < 2) {
        ask(s, c);
    } else if (i == 2) {
        api_put_models(&body, s->c.model, s->created, decoding_room(s->c.decoding));
        http_call_answer(c, 200, "application/json", str_text(&body), body.n);
    } else if (i == 3) {
        put_metrics(s, &body);
        http_call_answer(c, 200, "text/plain; version=0.0.4; charset=utf-8", str_text(&body), body.n);
    } else if (i == 4) {
        http_call_answer(c, 200, "text/plain; charset=utf-8", "ok\n", 3);
    } else {
        http_call_answer(c, 200, "text/html; charset=utf-8", chat_page, strlen(chat_page));
    }
    str_free(&body);
}

/* ---- the service's thread: what comes of an answer ---- */

static void send_chunk(struct asked *q, struct choice_ctx *x)
{
    struct api_choice *c = &q->choice[x->at];
    struct str out = {0};
    q->head.first = x->first;
    x->first = false;
    api_put_chunk(&out, &q->head, c, NULL);
    if (!http_call_write(q->call, str_text(&out), out.n)) q->lost = true;
    c->sent += c->text.n;
    str_clear(&c->text);
    c->n_tokens = c->n_likely = 0;
    str_free(&out);
}

static bool take_token(void *ctx, const struct answer_token *t)
{
    struct choice_ctx *x = ctx;
    struct asked *q = x->of;
    struct api_choice *c = &q->choice[x->at];
    if (q->r.logprobs >= 0) {
        GROW(c->token, c->n_tokens, c->token_room, 1);
        struct api_token *to = &c->token[c->n_tokens++];
        *to = (struct api_token){.id = t->id,
                                 .logprob = t->logprob,
                                 .offset = c->sent + c->text.n,
                                 .n_top = t->n_top,
                                 .top = c->n_likely};
        GROW(c->likely, c->n_likely, c->likely_room, t->n_top);
        for (int i = 0; i < t->n_top; i++) c->likely[c->n_likely++] = (struct api_likely){t->top[i], t->top_logprob[i]};
    }
    str_add(&c->text, t->text, t->n);
    if (q->r.stream && (c->text.n || c->n_tokens || x->first)) send_chunk(q, x);
    return !q->lost;
}

static void take_end(void *ctx, enum answer_end why, const char *rest, size_t n, const struct answer_counts *k,
                     const struct err *e)
{
    struct choice_ctx *x = ctx;
    struct asked *q = x->of;
    struct api_choice *c = &q->choice[x->at];
    static const char *const finish[ANSWER_N] = {"stop", "stop", "length", "length", "error"};
    str_add(&c->text, rest, n);
    c->finish = finish[why];
    if (why == ANSWER_FAILED) q->err = *e;
    if (x->at % q->r.n == 0) {
        q->usage.prompt += k->prompt;
        q->usage.cached += k->reused;
    }
    q->usage.written += k->written;
    x->answer = 0;
    q->left--;
    if (q->r.stream && !q->err.code) send_chunk(q, x);
}

/* All choices of a request; the others of a prompt wait until the first one's prompt is in the cache. */
static int begin(struct service *s, struct asked *q, struct err *e)
{
    q->n_choices = q->left = q->r.n * q->r.n_prompts;
    q->choice = xcalloc(to_size(q->n_choices), sizeof *q->choice);
    q->ctx = xcalloc(to_size(q->n_choices), sizeof *q->ctx);
    if (q->r.stream) http_call_begin(q->call, 200, "text/event-stream; charset=utf-8");
    for (int i = 0; i < q->n_choices; i++) {
        int p = i / q->r.n, k = i % q->r.n;
        q->choice[i].index = i;
        q->ctx[i] = (struct choice_ctx){.of = q, .at = i, .first = true};
        struct answer_spec a = {.ids = q->r.prompt[p].ids,
                                .n = q->r.prompt[p].n,
                                .max_tokens = q->r.max_tokens,
                                .sample = q->r.sample,
                                .before = q->r.before,
                                .stop = (const char *const *)q->r.stop,
                                .n_stop = q->r.n_stop,
                                .stop_id = q->r.stop_id,
                                .n_stop_ids = q->r.n_stop_ids,
                                .min_tokens = q->r.min_tokens,
                                .bias = q->r.bias,
                                .n_bias = q->r.n_bias,
                                .top = q->r.logprobs,
                                .tell_prompt = q->r.echo,
                                .past_end = q->r.past_end,
                                .after = k ? q->ctx[p * q->r.n].answer : 0,
                                .token = take_token,
                                .end = take_end,
                                .ctx = &q->ctx[i]};
        a.sample.seed += (uint64_t)k * 0x9E3779B97F4A7C15u;
        int rc = batching_add(s->answering, &a, &q->ctx[i].answer, e);
        if (rc) return rc;
    }
    return OK;
}

static void unqueue(struct service *s, const struct asked *q)
{
    pthread_mutex_lock(&s->lock);
    s->queued -= answers_of(q);
    s->told_bytes -= q->told_bytes;
    pthread_mutex_unlock(&s->lock);
}

/* Tells the end and lets the request go. late: it took too long. */
static void finish(struct service *s, struct asked *q, bool late)
{
    struct str out = {0};
    bool failed = q->err.code != 0;
    int status = late ? 504 : q->err.code == ERR_REQUEST ? 400 : 500;
    for (int i = 0; i < q->n_choices; i++)
        if (q->ctx[i].answer) batching_cancel(s->answering, q->ctx[i].answer);
    q->lost = q->lost || http_call_gone(q->call); /* since the last look */
    count(s, q->lost ? COUNT_LOST : late ? COUNT_LATE : failed ? COUNT_FAILED : COUNT_DONE, 1);
    count(s, COUNT_PROMPT, q->usage.prompt);
    count(s, COUNT_REUSED, q->usage.cached);
    count(s, COUNT_WRITTEN, q->usage.written);
    unqueue(s, q); /* who has his answer may ask at once; a whole answer's bytes the server counts */
    if (q->r.stream) {
        if (late || failed) {
            str_puts(&out, "data: ");
            api_put_error(&out, status, late ? "the request took too long" : q->err.text);
            str_puts(&out, "\n\n");
        } else if (q->r.usage) {
            api_put_chunk(&out, &q->head, NULL, &q->usage);
        }
        str_puts(&out, "data: [DONE]\n\n");
        if (!q->lost) (void)http_call_write(q->call, str_text(&out), out.n);
        http_call_end(q->call);
    } else if (late || failed || q->lost) {
        answer_error(q->call, status, late ? "the request took too long" : q->err.text);
    } else {
        api_put_whole(&out, &q->head, q->choice, q->n_choices, &q->usage);
        http_call_take(q->call, 200, "application/json", &out);
    }
    str_free(&out);
    asked_free(q);
}

/* ---- the service's thread: the loop ---- */

static void take_queue(struct service *s, bool wait)
{
    pthread_mutex_lock(&s->lock);
    if (wait && !s->queue) cond_wait_s(&s->came, &s->lock, 0.1);
    struct asked *q = s->queue;
    /* What waits for room is counted as queued until it is begun. */
    s->queue = NULL;
    s->last = &s->queue;
    pthread_mutex_unlock(&s->lock);
    struct asked **end = &s->asked;
    while (*end) end = &(*end)->next;
    *end = q;
    for (struct asked *next; q; q = next) {
        next = q->next;
        if (begin(s, q, &q->err)) q->left = 0;
    }
}

/* Ends of requests: answered, lost, late. */
static void sweep(struct service *s)
{
    double now = clock_now_s();
    bool look = now - s->looked_s > LOOK_S;
    if (look) s->looked_s = now;
    for (struct asked **at = &s->asked; *at;) {
        struct asked *q = *at;
        bool late = q->left && now - q->came_s > s->c.time_s;
        if (look && q->left && !q->lost && http_call_gone(q->call)) q->lost = true;
        if (q->left && !late && !q->lost) {
            at = &q->next;
            continue;
        }
        *at = q->next;
        finish(s, q, late && !q->lost);
    }
}

int service_run(struct service *s, bool (*stop)(void *ctx), void *ctx, int grace_s, struct err *e)
{
    double until = 0;
    int rc = OK;
    while (!rc) {
        if (until == 0 && stop && stop(ctx)) {
            pthread_mutex_lock(&s->lock);
            s->closing = true;
            pthread_mutex_unlock(&s->lock);
            until = clock_now_s() + grace_s;
        }
        if (until != 0 && (!s->asked || clock_now_s() > until)) break;
        bool idle = !batching_writing(s->answering) && !batching_waiting(s->answering);
        take_queue(s, idle);
        rc = batching_step(s->answering, e);
        count(s, COUNT_STEPS, !idle);
        sweep(s);
        atomic_store(&s->writing, batching_writing(s->answering));
        atomic_store(&s->waiting, batching_waiting(s->answering));
        atomic_store(&s->pages_left, decoding_pages_left(s->c.decoding));
    }
    pthread_mutex_lock(&s->lock);
    s->closing = true; /* after an error too */
    pthread_mutex_unlock(&s->lock);
    take_queue(s, false);
    for (struct asked *q = s->asked, *next; q; q = next) {
        next = q->next;
        if (q->left && !q->err.code) err_set(&q->err, ERR_IO, "the server is closing");
        finish(s, q, false);
    }
    s->asked = NULL;
    return rc;
}

/* ---- create ---- */

int service_open(struct service **out, const struct service_config *c, struct err *e)
{
    *out = NULL;
    bool loopback = !strncmp(c->address, "127.", 4) || !strcmp(c->address, "::1");
    if (!loopback && !c->key)
        return err_set(e, ERR_REQUEST,
                       "%s: whoever reaches this address could use the server; give a key (--key-file), or 127.0.0.1",
                       c->address);
    struct service *s = xcalloc(1, sizeof *s);
    s->c = *c;
    s->created = (int64_t)time(NULL);
    s->last = &s->queue;
    pthread_mutex_init(&s->lock, NULL);
    cond_init(&s->came);
    atomic_store(&s->pages_left, decoding_pages_left(c->decoding));
    s->answering = batching_new(c->decoding, c->tokenizer);
    struct http_calls_config h = {.address = c->address,
                                  .port = c->port,
                                  .key = c->key,
                                  .max_clients = c->clients,
                                  .timeout_s = c->idle_s,
                                  .request_s = c->request_s,
                                  .max_body = c->max_body,
                                  .open = is_open,
                                  .refuse = refuse_text,
                                  .call = called,
                                  .ctx = s};
    int rc = desk_open(&s->desk, READERS, c->queue, read_request, end_request, s, e);
    if (!rc) rc = http_calls_open(&s->server, &h, e);
    if (rc) service_close(s);
    else *out = s;
    return rc;
}

int service_port(const struct service *s) { return http_calls_port(s->server); }

void service_close(struct service *s)
{
    if (!s) return;
    pthread_mutex_lock(&s->lock);
    s->closing = true;
    pthread_mutex_unlock(&s->lock);
    if (s->desk) desk_shut(s->desk);
    for (struct asked *q = s->queue, *next; q; q = next) { /* came after service_run had ended */
        next = q->next;
        answer_error(q->call, 503, "the server is closing");
        asked_free(q);
    }
    http_calls_close(s->server);
    desk_free(s->desk);
    batching_free(s->answering);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->came);
    xfree(s);
}
