/* SPDX-License-Identifier: Apache-2.0 */
/* A JSON object to a request, member by member. */
#include "serve/api_request.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "serve/api_members.h"
#include "serve/api_messages.h"

void api_request_fini(struct api_request *r)
{
    for (int i = 0; i < API_PROMPTS; i++) {
        tokens_free(&r->prompt[i]);
        xfree(r->echoed[i]);
    }
    for (int i = 0; i < r->n_stop; i++) xfree(r->stop[i]);
    xfree(r->stop_id);
    xfree(r->bias);
    *r = (struct api_request){0};
}

static int take_real(const struct json *o, const char *key, double lo, double hi, double *out, struct err *e)
{
    const struct json *v = api_member(o, key);
    if (!v) return OK;
    double x = json_real(v, NAN);
    if (!(x >= lo && x <= hi)) return err_set(e, ERR_REQUEST, "%s: wanted a number from %g to %g", key, lo, hi);
    *out = x;
    return OK;
}

static int take_int(const struct json *o, const char *key, int64_t lo, int64_t hi, int64_t *out, struct err *e)
{
    const struct json *v = api_member(o, key);
    if (!v) return OK;
    if (json_kind(v) != JSON_INT || json_int(v, lo - 1) < lo || json_int(v, hi + 1) > hi)
        return err_set(e, ERR_REQUEST, "%s: wanted an integer from %lld to %lld", key, (long long)lo, (long long)hi);
    *out = json_int(v, 0);
    return OK;
}

static int take_bool(const struct json *o, const char *key, bool *out, struct err *e)
{
    const struct json *v = api_member(o, key);
    if (v && json_kind(v) != JSON_BOOL) return err_set(e, ERR_REQUEST, "%s: wanted true or false", key);
    if (v) *out = json_bool(v, false);
    return OK;
}

static int take_stop(struct api_request *r, const struct json *v, struct err *e)
{
    bool list = v && json_kind(v) == JSON_ARRAY;
    size_t n = list ? json_size(v) : v != NULL;
    if (n > ANSWER_STOPS) return err_set(e, ERR_REQUEST, "stop: at most %d texts", ANSWER_STOPS);
    for (size_t i = 0; i < n; i++) {
        size_t size;
        const char *text = json_string(list ? json_at(v, i) : v, &size, NULL);
        if (!text || !size || memchr(text, 0, size))
            return err_set(e, ERR_REQUEST, "stop: wanted a text that is not empty, or a list of such");
        r->stop[r->n_stop++] = xstrdup(text);
    }
    return OK;
}

static int take_stop_ids(struct api_request *r, const struct json *v, int64_t vocab, struct err *e)
{
    size_t n = v && json_kind(v) == JSON_ARRAY ? json_size(v) : 0;
    if ((v && json_kind(v) != JSON_ARRAY) || n > ANSWER_STOP_IDS)
        return err_set(e, ERR_REQUEST, "stop_token_ids: wanted a list of at most %d tokens", ANSWER_STOP_IDS);
    r->stop_id = xcalloc(n + 1, sizeof *r->stop_id);
    for (size_t i = 0; i < n; i++) {
        int64_t id = json_int(json_at(v, i), -1);
        if (id < 0 || id >= vocab)
            return err_set(e, ERR_REQUEST, "stop_token_ids[%zu]: wanted a token, 0 to %lld", i, (long long)vocab - 1);
        r->stop_id[r->n_stop_ids++] = (int32_t)id;
    }
    return OK;
}

/* {"TOKEN": -100 to 100}. */
static int take_bias(struct api_request *r, const struct json *v, int64_t vocab, struct err *e)
{
    size_t n = v && json_kind(v) == JSON_OBJECT ? json_size(v) : 0;
    if ((v && json_kind(v) != JSON_OBJECT) || n > ANSWER_BIASES)
        return err_set(e, ERR_REQUEST, "logit_bias: wanted an object of at most %d tokens", ANSWER_BIASES);
    r->bias = xcalloc(n + 1, sizeof *r->bias);
    for (void *it = n ? json_iter(v) : NULL; it; it = json_iter_next(v, it)) {
        const char *name = json_iter_key(it);
        char *end;
        errno = 0;
        long long id = *name >= '0' && *name <= '9' ? strtoll(name, &end, 10) : -1;
        double by = json_real(json_iter_value(it), NAN);
        if (id < 0 || errno || *end || id >= vocab || !(by >= -100 && by <= 100))
            return err_set(e, ERR_REQUEST,
                           "logit_bias: \"%.40s\": wanted a token, \"0\" to \"%lld\", and a number from -100 to 100",
                           name, (long long)vocab - 1);
        r->bias[r->n_bias++] = (struct answer_bias){(int32_t)id, (float)by};
    }
    return OK;
}

/* ---- prompts ---- */

static int take_ids(struct tokens *to, const struct json *list, const struct api_limits *l, struct err *e)
{
    for (size_t i = 0; i < json_size(list); i++) {
        int64_t id = json_int(json_at(list, i), -1);
        if (id < 0 || id >= l->vocab)
            return err_set(e, ERR_REQUEST, "prompt: token %zu is not one of 0 to %lld", i, (long long)l->vocab - 1);
        tokens_push(to, (int32_t)id);
    }
    return json_size(list) ? OK : err_set(e, ERR_REQUEST, "prompt: is empty");
}

static int take_text(struct api_request *r, int i, const struct json *v, const struct tokenizer *t,
                     const struct api_limits *l, struct err *e)
{
    size_t n;
    const char *text = json_string(v, &n, NULL);
    if (!text || memchr(text, 0, n))
        return err_set(e, ERR_REQUEST, "prompt: wanted a text without NUL, tokens, or a list of either");
    r->echoed[i] = xstrdup(text);
    int rc = tokenizer_encode_text(t, text, n, &r->prompt[i], e);
    int32_t start = tokenizer_start(t, l->vocab);
    if (!rc && !r->prompt[i].n && start >= 0) tokens_push(&r->prompt[i], start); /* an empty one starts a document */
    return rc;
}

static int take_prompts(struct api_request *r, const struct json *o, const struct tokenizer *t,
                        const struct api_limits *l, struct err *e)
{
    const struct json *v = api_member(o, "prompt");
    bool list = v && json_kind(v) == JSON_ARRAY, ids = list && json_size(v) && json_kind(json_at(v, 0)) == JSON_INT;
    size_t n = list && !ids ? json_size(v) : 1;
    if (!v || n < 1 || n > API_PROMPTS)
        return err_set(e, ERR_REQUEST, "prompt: wanted a text, tokens, or a list of 1 to %d of either", API_PROMPTS);
    int rc = OK;
    for (size_t i = 0; !rc && i < n; i++) {
        const struct json *one = list && !ids ? json_at(v, i) : v;
        rc = json_kind(one) == JSON_ARRAY ? take_ids(&r->prompt[i], one, l, e) : take_text(r, (int)i, one, t, l, e);
    }
    r->n_prompts = (int)n;
    return rc;
}

/* ---- the rest ---- */

static int take_logprobs(struct api_request *r, const struct json *o, struct err *e)
{
    int64_t n = -1;
    bool wanted = false;
    if (!r->chat) {
        int rc = take_int(o, "logprobs", 0, ANSWER_TOP, &n, e);
        r->logprobs = (int)n;
        return rc;
    }
    int rc = take_bool(o, "logprobs", &wanted, e);
    if (!rc) rc = take_int(o, "top_logprobs", 0, ANSWER_TOP, &n, e);
    if (!rc && n >= 0 && !wanted) return err_set(e, ERR_REQUEST, "top_logprobs: needs logprobs: true");
    r->logprobs = !wanted ? -1 : n < 0 ? 0 : (int)n;
    return rc;
}

static int take_lengths(struct api_request *r, const struct json *o, const struct api_limits *l, struct err *e)
{
    int64_t most = r->chat ? l->max_tokens : 16;
    int rc = take_int(o, "max_tokens", 0, INT32_MAX, &most, e);
    if (!rc) rc = take_int(o, "max_completion_tokens", 0, INT32_MAX, &most, e);
    r->max_tokens = most < l->max_tokens ? most : l->max_tokens;
    if (!rc) rc = take_int(o, "min_tokens", 0, INT32_MAX, &r->min_tokens, e);
    if (!rc && r->min_tokens > r->max_tokens)
        rc = err_set(e, ERR_REQUEST, "min_tokens: %lld, and an answer has at most %lld here (max_tokens)",
                     (long long)r->min_tokens, (long long)r->max_tokens);
    for (int i = 0; !rc && i < r->n_prompts; i++)
        if (r->prompt[i].n > l->room)
            rc = err_set(e, ERR_REQUEST, "the prompt is %lld tokens long, and there is room for %lld; shorten it",
                         (long long)r->prompt[i].n, (long long)l->room);
        else if (r->prompt[i].n < 1) rc = err_set(e, ERR_REQUEST, "the prompt has no tokens");
        else
            for (int64_t k = 0; !rc && k < r->prompt[i].n; k++)
                if (r->prompt[i].ids[k] >= l->vocab)
                    rc = err_set(e, ERR_REQUEST, "the prompt: token %d is not below the model's vocabulary of %lld",
                                 r->prompt[i].ids[k], (long long)l->vocab);
    return rc;
}

static int take_sampling(struct api_request *r, const struct json *o, struct err *e)
{
    struct sample_spec *s = &r->sample;
    int64_t seed = 0, top_k = 0;
    *s = (struct sample_spec){.temperature = 1, .top_p = 1};
    int rc = take_real(o, "temperature", 0, 100, &s->temperature, e);
    if (!rc) rc = take_real(o, "top_p", 1e-9, 1, &s->top_p, e);
    if (!rc) rc = take_int(o, "top_k", -1, INT32_MAX, &top_k, e);
    if (!rc) rc = take_real(o, "min_p", 0, 1, &r->before.min_p, e);
    if (!rc) rc = take_real(o, "presence_penalty", -2, 2, &r->before.presence, e);
    if (!rc) rc = take_real(o, "frequency_penalty", -2, 2, &r->before.frequency, e);
    if (!rc) rc = take_real(o, "repetition_penalty", 1e-3, 1e3, &r->before.repetition, e);
    if (!rc) rc = take_int(o, "seed", INT64_MIN + 1, INT64_MAX - 1, &seed, e);
    s->top_k = top_k < 0 ? 0 : top_k;
    s->seed = (uint64_t)seed;
    r->seeded = api_member(o, "seed") != NULL;
    if (!rc) rc = sample_check(s, e);
    return rc ? rc : sample_before_check(&r->before, e);
}

/* include_usage is done; padding against who listens is not, and changes no answer. */
static int take_stream_options(struct api_request *r, const struct json *v, struct err *e)
{
    if (!v) return OK;
    if (json_kind(v) != JSON_OBJECT) return err_set(e, ERR_REQUEST, "stream_options: wanted an object");
    for (void *it = json_iter(v); it; it = json_iter_next(v, it)) {
        const char *name = json_iter_key(it);
        if (!strcmp(name, "include_usage") || !strcmp(name, "include_obfuscation")) continue;
        if (!strcmp(name, "continuous_usage_stats") && api_member_neutral("false", json_iter_value(it))) continue;
        return err_set(e, ERR_REQUEST, "stream_options.%.100s: is not supported here; leave it out", name);
    }
    bool padded;
    int rc = take_bool(v, "include_obfuscation", &padded, e);
    return rc ? rc : take_bool(v, "include_usage", &r->usage, e);
}

static int read_members(struct api_request *r, const struct json *o, const struct tokenizer *t, const struct chat *chat,
                        const struct api_limits *l, struct err *e)
{
    int64_t n = 1;
    int rc = api_members_check(o, r->chat ? API_CHAT : API_TEXT, e);
    if (!rc) rc = take_int(o, "n", 1, API_CHOICES, &n, e);
    if (!rc) rc = take_bool(o, "stream", &r->stream, e);
    if (!rc) rc = take_stream_options(r, api_member(o, "stream_options"), e);
    if (!rc) rc = take_bool(o, "ignore_eos", &r->past_end, e);
    if (!rc && !r->chat) rc = take_bool(o, "echo", &r->echo, e);
    if (!rc) rc = take_sampling(r, o, e);
    if (!rc) rc = take_bias(r, api_member(o, "logit_bias"), l->vocab, e);
    if (!rc) rc = take_stop(r, api_member(o, "stop"), e);
    if (!rc) rc = take_stop_ids(r, api_member(o, "stop_token_ids"), l->vocab, e);
    if (!rc) rc = take_logprobs(r, o, e);
    if (!rc && r->chat) rc = api_messages_read(o, chat, &r->prompt[0], e);
    if (!rc && r->chat) r->n_prompts = 1;
    if (!rc && !r->chat) rc = take_prompts(r, o, t, l, e);
    if (!rc) rc = take_lengths(r, o, l, e);
    r->n = (int)n;
    return rc;
}

/* Whether it is asked of another model. */
static int look_for_model(const struct json *o, const char *name, int *status, struct err *e)
{
    const struct json *v = api_member(o, "model");
    size_t n;
    const char *model = json_string(v, &n, NULL);
    if (!v) return OK;
    if (!model) return err_set(e, ERR_REQUEST, "model: wanted a text");
    if (n == strlen(name) && !memcmp(model, name, n)) return OK;
    *status = 404;
    return err_set(e, ERR_REQUEST, "model: there is no %.200s here; this server has %s", model, name);
}

int api_request_read(struct api_request *r, bool is_chat, const char *body, size_t n, const struct tokenizer *t,
                     const struct chat *chat, const struct api_limits *limits, int *status, struct err *e)
{
    struct json *o = NULL;
    *r = (struct api_request){.chat = is_chat};
    *status = 400;
    int rc = json_parse_published(&o, body, n, "the body", e);
    if (!rc && json_kind(o) != JSON_OBJECT) rc = err_set(e, ERR_REQUEST, "the body: wanted a JSON object");
    if (!rc) rc = look_for_model(o, limits->model, status, e);
    if (!rc) rc = read_members(r, o, t, chat, limits, e);
    if (rc) rc = e->code = ERR_REQUEST;
    json_free(o);
    if (rc) api_request_fini(r);
    return rc;
}
