/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/api_reply.h"

#include <math.h>
#include <string.h>

#include "base/json.h"
#include "text/utf8.h"

/* Text of a model may hold NUL, which our JSON does not: it is told as U+FFFD. */
static void put_text(struct json_out *o, const char *key, const char *text, size_t n)
{
    struct str s = {0};
    for (size_t i = 0; i < n; i++)
        if (text[i]) str_putc(&s, text[i]);
        else str_puts(&s, "\xEF\xBF\xBD");
    json_put_string(o, key, str_text(&s));
    str_free(&s);
}

/* A token's bytes as a text; what is no UTF-8 by its bytes, so that tokens can be told apart. */
static void name_token(const struct tokenizer *t, int32_t id, struct str *out)
{
    size_t n;
    const char *p = tokenizer_piece(t, id, &n);
    str_clear(out);
    bool text = true;
    for (size_t i = 0; text && i < n;) {
        int len = p[i] ? str_utf8(p + i, NULL) : 0;
        text = len > 0 && i + (size_t)len <= n;
        i += (size_t)(len > 0 ? len : 1);
    }
    if (text) {
        str_add(out, p, n);
        return;
    }
    str_puts(out, "bytes:");
    for (size_t i = 0; i < n; i++) str_printf(out, "\\x%02x", (unsigned)(unsigned char)p[i]);
}

static void put_logprob(struct json_out *o, const char *key, double x)
{
    if (isnan(x)) json_put_null(o, key);
    else json_put_real(o, key, x < -1e30 ? -9999 : x);
}

static void put_bytes(struct json_out *o, const struct tokenizer *t, int32_t id)
{
    size_t n;
    const char *p = tokenizer_piece(t, id, &n);
    json_begin_array(o, "bytes");
    for (size_t i = 0; i < n; i++) json_put_int(o, NULL, (unsigned char)p[i]);
    json_end_array(o);
}

static void put_chat_token(struct json_out *o, const struct api_head *h, int32_t id, double logprob, struct str *name)
{
    name_token(h->t, id, name);
    json_put_string(o, "token", str_text(name));
    put_logprob(o, "logprob", logprob);
    put_bytes(o, h->t, id);
}

static void put_chat_logprobs(struct json_out *o, const struct api_head *h, const struct api_choice *c)
{
    struct str name = {0};
    json_begin_object(o, "logprobs");
    json_begin_array(o, "content");
    for (int64_t i = 0; i < c->n_tokens; i++) {
        const struct api_token *t = &c->token[i];
        json_begin_object(o, NULL);
        put_chat_token(o, h, t->id, t->logprob, &name);
        json_begin_array(o, "top_logprobs");
        for (int k = 0; k < t->n_top; k++) {
            json_begin_object(o, NULL);
            put_chat_token(o, h, c->likely[t->top + k].id, c->likely[t->top + k].logprob, &name);
            json_end_object(o);
        }
        json_end_array(o);
        json_end_object(o);
    }
    json_end_array(o);
    json_end_object(o);
    str_free(&name);
}

static void put_logprobs(struct json_out *o, const struct api_head *h, const struct api_choice *c)
{
    struct str name = {0};
    json_begin_object(o, "logprobs");
    json_begin_array(o, "tokens");
    for (int64_t i = 0; i < c->n_tokens; i++) {
        name_token(h->t, c->token[i].id, &name);
        json_put_string(o, NULL, str_text(&name));
    }
    json_end_array(o);
    json_begin_array(o, "token_logprobs");
    for (int64_t i = 0; i < c->n_tokens; i++) put_logprob(o, NULL, c->token[i].logprob);
    json_end_array(o);
    json_begin_array(o, "top_logprobs");
    for (int64_t i = 0; i < c->n_tokens; i++) {
        const struct api_token *t = &c->token[i];
        if (isnan(t->logprob)) {
            json_put_null(o, NULL);
            continue;
        }
        json_begin_object(o, NULL);
        for (int k = 0; k < t->n_top; k++) {
            name_token(h->t, c->likely[t->top + k].id, &name);
            put_logprob(o, str_text(&name), c->likely[t->top + k].logprob);
        }
        json_end_object(o);
    }
    json_end_array(o);
    json_begin_array(o, "text_offset");
    for (int64_t i = 0; i < c->n_tokens; i++) json_put_int(o, NULL, (int64_t)c->token[i].offset);
    json_end_array(o);
    json_end_object(o);
    str_free(&name);
}

static void put_choice(struct json_out *o, const struct api_head *h, const struct api_choice *c, bool chunk)
{
    json_begin_object(o, NULL);
    json_put_int(o, "index", c->index);
    if (h->chat) {
        json_begin_object(o, chunk ? "delta" : "message");
        if (!chunk || h->first) json_put_string(o, "role", "assistant");
        if (!chunk || c->text.n || h->first) put_text(o, "content", str_text(&c->text), c->text.n);
        json_end_object(o);
    } else {
        put_text(o, "text", str_text(&c->text), c->text.n);
    }
    if (h->logprobs < 0 || (chunk && !c->n_tokens)) json_put_null(o, "logprobs");
    else if (h->chat) put_chat_logprobs(o, h, c);
    else put_logprobs(o, h, c);
    if (c->finish) json_put_string(o, "finish_reason", c->finish);
    else json_put_null(o, "finish_reason");
    json_end_object(o);
}

static void put_usage(struct json_out *o, const struct api_usage *u)
{
    json_begin_object(o, "usage");
    json_put_int(o, "prompt_tokens", u->prompt);
    json_put_int(o, "completion_tokens", u->written);
    json_put_int(o, "total_tokens", u->prompt + u->written);
    json_begin_object(o, "prompt_tokens_details");
    json_put_int(o, "cached_tokens", u->cached);
    json_end_object(o);
    json_end_object(o);
}

static void put(struct str *out, const struct api_head *h, const struct api_choice *c, int n, const struct api_usage *u,
                bool chunk)
{
    struct json_out o = {.s = out};
    json_begin_object(&o, NULL);
    json_put_string(&o, "id", h->id);
    json_put_string(&o, "object", !h->chat ? "text_completion" : chunk ? "chat.completion.chunk" : "chat.completion");
    json_put_int(&o, "created", h->created);
    json_put_string(&o, "model", h->model);
    json_begin_array(&o, "choices");
    for (int i = 0; i < n; i++) put_choice(&o, h, &c[i], chunk);
    json_end_array(&o);
    if (u) put_usage(&o, u);
    json_end_object(&o);
}

void api_put_whole(struct str *out, const struct api_head *h, const struct api_choice *c, int n,
                   const struct api_usage *u)
{
    put(out, h, c, n, u, false);
}

void api_put_chunk(struct str *out, const struct api_head *h, const struct api_choice *c, const struct api_usage *u)
{
    str_puts(out, "data: ");
    put(out, h, c, c != NULL, u, true);
    str_puts(out, "\n\n");
}

void api_put_error(struct str *out, int status, const char *why)
{
    struct json_out o = {.s = out};
    json_begin_object(&o, NULL);
    json_begin_object(&o, "error");
    json_put_string(&o, "message", why);
    json_put_string(&o, "type", status < 500 ? "invalid_request_error" : "server_error");
    json_put_null(&o, "param");
    json_put_int(&o, "code", status);
    json_end_object(&o);
    json_end_object(&o);
}

static void put_model(struct json_out *o, const char *model, int64_t created, int64_t room)
{
    json_begin_object(o, NULL);
    json_put_string(o, "id", model);
    json_put_string(o, "object", "model");
    json_put_int(o, "created", created);
    json_put_string(o, "owned_by", "tutti");
    json_put_int(o, "max_model_len", room);
    json_end_object(o);
}

void api_put_model(struct str *out, const char *model, int64_t created, int64_t room)
{
    struct json_out o = {.s = out};
    put_model(&o, model, created, room);
}

void api_put_models(struct str *out, const char *model, int64_t created, int64_t room)
{
    struct json_out o = {.s = out};
    json_begin_object(&o, NULL);
    json_put_string(&o, "object", "list");
    json_begin_array(&o, "data");
    put_model(&o, model, created, room);
    json_end_array(&o);
    json_end_object(&o);
}

size_t api_told_bytes(bool chat, int top)
{
    size_t spelt = chat ? 128 : 48; /* with its bytes as numbers, or without */
    return sizeof(struct api_token) + spelt + (size_t)top * (sizeof(struct api_likely) + spelt);
}
