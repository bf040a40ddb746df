/* SPDX-License-Identifier: Apache-2.0 */
/* A JSON object to a request, member by member. */
#include "serve/api_request.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

void api_request_fini(struct api_request *r)
{
    for (int i = 0; i < API_PROMPTS; i++) {
        tokens_free(&r->prompt[i]);
        xfree(r->echoed[i]);
    }
    for (int i = 0; i < r->n_stop; i++) xfree(r->stop[i]);
    *r = (struct api_request){0};
}

/* A member that may be null, which is as good as absent. */
static const struct json *member(const struct json *o, const char *key)
{
    const struct json *v = json_get(o, key);
    return v && json_kind(v) != JSON_NULL ? v : NULL;
}

static int take_real(const struct json *o, const char *key, double lo, double hi, double *out, struct err *e)
{
    const struct json *v = member(o, key);
    if (!v) return OK;
    double x = json_real(v, NAN);
    if (!(x >= lo && x <= hi)) return err_set(e, ERR_REQUEST, "%s: wanted a number from %g to %g", key, lo, hi);
    *out = x;
    return OK;
}

static int take_int(const struct json *o, const char *key, int64_t lo, int64_t hi, int64_t *out, struct err *e)
{
    const struct json *v = member(o, key);
    if (!v) return OK;
    if (json_kind(v) != JSON_INT || json_int(v, lo - 1) < lo || json_int(v, hi + 1) > hi)
        return err_set(e, ERR_REQUEST, "%s: wanted an integer from %lld to %lld", key, (long long)lo, (long long)hi);
    *out = json_int(v, 0);
    return OK;
}

static int take_bool(const struct json *o, const char *key, bool *out, struct err *e)
{
    const struct json *v = member(o, key);
    if (v && json_kind(v) != JSON_BOOL) return err_set(e, ERR_REQUEST, "%s: wanted true or false", key);
    if (v) *out = json_bool(v, false);
    return OK;
}

/* Whether a member asks for nothing: an empty list or object, "none", and one beam, or the best of one. */
static bool asks_for_nothing(const char *name, const struct json *v)
{
    bool count = !strcmp(name, "best_of") || !strcmp(name, "num_beams") || !strcmp(name, "beam_width");
    switch (json_kind(v)) {
    case JSON_ARRAY:
    case JSON_OBJECT: return !json_size(v);
    case JSON_STRING: return !strcmp(json_string(v, NULL, ""), "none");
    case JSON_INT: return count && json_int(v, 0) == 1;
    case JSON_BOOL: return !strcmp(name, "use_beam_search") && !json_bool(v, true);
    default: return false;
    }
}

/* What is understood elsewhere and would change the answer. */
static int refuse_others(const struct json *o, struct err *e)
{
    static const char *const not_here[] = {"tools",      "functions",  "function_call",   "tool_choice",
                                           "logit_bias", "audio",      "modalities",      "guided_json",
                                           "grammar",    "prediction", "suffix",          "best_of",
                                           "num_beams",  "beam_width", "use_beam_search", "web_search_options"};
    for (size_t i = 0; i < sizeof not_here / sizeof *not_here; i++) {
        const struct json *v = member(o, not_here[i]);
        if (v && !asks_for_nothing(not_here[i], v))
            return err_set(e, ERR_REQUEST, "%s: is not supported here; leave it out", not_here[i]);
    }
    const struct json *format = member(member(o, "response_format"), "type");
    if (format && strcmp(json_string(format, NULL, ""), "text"))
        return err_set(e, ERR_REQUEST, "response_format: only text is supported here");
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
    int rc = tokenizer_encode(t, text, n, &r->prompt[i], e);
    int32_t start = tokenizer_start(t, l->vocab);
    if (!rc && !r->prompt[i].n && start >= 0) tokens_push(&r->prompt[i], start); /* an empty one starts a document */
    return rc;
}

static int take_prompts(struct api_request *r, const struct json *o, const struct tokenizer *t,
                        const struct api_limits *l, struct err *e)
{
    const struct json *v = member(o, "prompt");
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

/* Contents of parts are joined where all parts are text. */
static int put_content(struct json_out *o, const struct json *v, size_t at, struct err *e)
{
    struct str all = {0};
    int rc = OK;
    size_t n;
    const char *text = json_string(v, &n, NULL);
    if (text) str_add(&all, text, n);
    for (size_t i = 0; v && !text && !rc && i < json_size(v); i++) {
        const struct json *part = json_at(v, i);
        const char *piece = json_string(json_get(part, "text"), &n, NULL);
        if (!piece || strcmp(json_string(json_get(part, "type"), NULL, ""), "text"))
            rc = err_set(e, ERR_REQUEST, "messages[%zu].content: only text is understood here", at);
        else str_add(&all, piece, n);
    }
    if (!rc && ((!text && (!v || json_kind(v) != JSON_ARRAY)) || (all.n && memchr(all.p, 0, all.n))))
        rc = err_set(e, ERR_REQUEST, "messages[%zu].content: wanted a text without NUL", at);
    if (!rc) json_put_string(o, "content", str_text(&all));
    str_free(&all);
    return rc;
}

/* Roles and contents alone go on to the template. */
static int take_messages(struct api_request *r, const struct json *o, const struct chat *chat, struct err *e)
{
    const struct json *list = member(o, "messages");
    if (!list || json_kind(list) != JSON_ARRAY || !json_size(list))
        return err_set(e, ERR_REQUEST, "messages: wanted a list of {\"role\", \"content\"}");
    if (!chat)
        return err_set(e, ERR_REQUEST,
                       "messages: the model has no chat template; give the server one "
                       "(--chat-template), or ask /v1/completions");
    struct str text = {0};
    struct json_out out = {.s = &text};
    struct json *own = NULL;
    int rc = OK;
    json_begin_array(&out, NULL);
    for (size_t i = 0; !rc && i < json_size(list); i++) {
        const struct json *m = json_at(list, i);
        size_t n;
        const char *role = json_string(json_get(m, "role"), &n, NULL);
        if (!role || !n || strlen(role) != n) {
            rc = err_set(e, ERR_REQUEST, "messages[%zu].role: wanted a text", i);
            break;
        }
        json_begin_object(&out, NULL);
        json_put_string(&out, "role", role);
        rc = put_content(&out, json_get(m, "content"), i, e);
        json_end_object(&out);
    }
    json_end_array(&out);
    if (!rc) rc = json_parse(&own, str_text(&text), text.n, "messages", e);
    if (!rc) {
        struct chat_work *w = chat_work_new(chat);
        rc = chat_prompt(w, own, "messages", &r->prompt[0], e);
        if (rc) rc = e->code = ERR_REQUEST;
        chat_work_free(w);
    }
    r->n_prompts = 1;
    json_free(own);
    str_free(&text);
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
    r->seeded = member(o, "seed") != NULL;
    if (!rc) rc = sample_check(s, e);
    return rc ? rc : sample_before_check(&r->before, e);
}

static int read_members(struct api_request *r, const struct json *o, const struct tokenizer *t, const struct chat *chat,
                        const struct api_limits *l, struct err *e)
{
    int64_t n = 1;
    size_t size;
    const char *model = json_string(member(o, "model"), &size, NULL);
    if (json_kind(o) != JSON_OBJECT) return err_set(e, ERR_REQUEST, "the body: wanted a JSON object");
    if (member(o, "model") && (!model || strcmp(model, l->model)))
        return err_set(e, ERR_REQUEST, "model: this server has %s only", l->model);
    int rc = refuse_others(o, e);
    if (!rc) rc = take_int(o, "n", 1, API_CHOICES, &n, e);
    if (!rc) rc = take_bool(o, "stream", &r->stream, e);
    if (!rc) rc = take_bool(member(o, "stream_options"), "include_usage", &r->usage, e);
    if (!rc) rc = take_bool(o, "ignore_eos", &r->past_end, e);
    if (!rc && !r->chat) rc = take_bool(o, "echo", &r->echo, e);
    if (!rc) rc = take_sampling(r, o, e);
    if (!rc) rc = take_stop(r, member(o, "stop"), e);
    if (!rc) rc = take_logprobs(r, o, e);
    if (!rc) rc = r->chat ? take_messages(r, o, chat, e) : take_prompts(r, o, t, l, e);
    if (!rc) rc = take_lengths(r, o, l, e);
    r->n = (int)n;
    return rc;
}

int api_request_read(struct api_request *r, bool is_chat, const char *body, size_t n, const struct tokenizer *t,
                     const struct chat *chat, const struct api_limits *limits, struct err *e)
{
    struct json *o = NULL;
    *r = (struct api_request){.chat = is_chat};
    int rc = json_parse_published(&o, body, n, "the body", e);
    if (rc) rc = e->code = ERR_REQUEST;
    if (!rc) rc = read_members(r, o, t, chat, limits, e);
    json_free(o);
    if (rc) api_request_fini(r);
    return rc;
}
