/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_chat.c: readers of a GGUF take ChatML where it says no template, and write on behind a token that it does not
 * call an end. The format has names for three ends: of a text, of a turn (eot), of a message (eom); readers stop at any
 * of them. */
#include "hub/gguf_chat.h"

#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"

/* ---- templates ---- */
/* A list of named ones: "default" is the template, others stand beside it under their names. */
static int put_list(struct gguf_keys *k, const struct json *list, const char *what, struct err *e)
{
    size_t n = json_size(list), named = 0;
    struct str key = {0};
    int rc = OK;
    for (size_t i = 0; i < n && !rc; i++) {
        const char *name = json_string(json_get(json_at(list, i), "name"), NULL, NULL),
                   *text = json_string(json_get(json_at(list, i), "template"), NULL, NULL);
        if (!name || !text)
            rc = err_set(e, ERR_REQUEST, "%s: chat_template[%zu]: wanted a name and a template", what, i);
        if (rc) break;
        bool usual = !strcmp(name, "default");
        str_clear(&key);
        str_printf(&key, "tokenizer.chat_template%s%.60s", usual ? "" : ".", usual ? "" : name);
        gguf_key_text(k, key.p, text);
        named += !usual;
    }
    if (!rc && named) gguf_key_list(k, "tokenizer.chat_templates", GGUF_VALUE_STRING, named);
    for (size_t i = 0; i < n && !rc && named; i++) {
        const char *name = json_string(json_get(json_at(list, i), "name"), NULL, "");
        if (strcmp(name, "default")) gguf_put_text(&k->s, name, strnlen(name, 60));
    }
    str_free(&key);
    return rc;
}

static int put_template(struct gguf_keys *k, const char *alone, const struct json *config, const char *what,
                        struct err *e)
{
    const struct json *v = config ? json_get(config, "chat_template") : NULL;
    if (alone)
        gguf_key_text(k, "tokenizer.chat_template", alone); /* the file goes before the key, as in their library */
    if (alone || !v || json_kind(v) == JSON_NULL) return OK;
    if (json_kind(v) == JSON_ARRAY) return put_list(k, v, what, e);
    const char *text = json_string(v, NULL, NULL);
    if (!text) return err_set(e, ERR_REQUEST, "%s: chat_template: wanted a text, or a list of named ones", what);
    gguf_key_text(k, "tokenizer.chat_template", text);
    return OK;
}

/* ---- ends ---- */
/* The token of that text; -1: none. */
static int64_t id_of(const struct json *tokens, const char *text)
{
    const struct json *added = json_get(tokens, "added_tokens");
    for (size_t i = 0; added && i < json_size(added); i++)
        if (!strcmp(json_string(json_get(json_at(added, i), "content"), NULL, ""), text))
            return json_int(json_get(json_at(added, i), "id"), -1);
    return json_int(json_get(json_get(json_get(tokens, "model"), "vocab"), text), -1);
}

static const char *text_of(const struct json *tokens, int64_t id)
{
    const struct json *added = json_get(tokens, "added_tokens");
    for (size_t i = 0; added && i < json_size(added); i++)
        if (json_int(json_get(json_at(added, i), "id"), -1) == id)
            return json_string(json_get(json_at(added, i), "content"), NULL, "");
    return "";
}

/* The model's, and the one that its tokenizer_config.json calls so. */
static int list_ends(const struct hf_model *m, const struct json *tokens, const struct json *config,
                     int64_t ends[HF_EOS + 1])
{
    const struct json *v = config ? json_get(config, "eos_token") : NULL;
    const char *text = json_string(v, NULL, json_string(v ? json_get(v, "content") : NULL, NULL, NULL));
    int64_t own = text && tokens ? id_of(tokens, text) : -1;
    int n = m->n_eos;
    memcpy(ends, m->eos, to_size(n) * sizeof *ends);
    for (int i = 0; i < n; i++) own = ends[i] == own ? -1 : own;
    if (own >= 0 && own < m->model.vocab) ends[n++] = own;
    return n;
}

/* The first one is eos_token_id (gguf_tokens.c), where the model names any. */
static void put_ends(struct gguf_keys *k, const struct hf_model *m, const struct json *tokens,
                     const struct json *config)
{
    int64_t ends[HF_EOS + 1], turn = -1, message = -1;
    struct str left = {0};
    int n = list_ends(m, tokens, config, ends);
    if (!m->n_eos && n) gguf_key_u32(k, "tokenizer.ggml.eos_token_id", ends[0]);
    for (int i = 1; i < n; i++) {
        bool of_message = message < 0 && (strstr(text_of(tokens, ends[i]), "eom") || turn >= 0);
        if (of_message) message = ends[i];
        else if (turn < 0) turn = ends[i];
        else str_printf(&left, "%s%lld", left.n ? ", " : "", (long long)ends[i]);
    }
    if (turn >= 0) gguf_key_u32(k, "tokenizer.ggml.eot_token_id", turn);
    if (message >= 0) gguf_key_u32(k, "tokenizer.ggml.eom_token_id", message);
    if (left.n)
        log_warn("a GGUF says three ends of a text, a turn and a message: of this model's tokens %s are not called so",
                 left.p);
    str_free(&left);
}

static int read_json(const struct weights *w, const char *name, struct json **out, struct err *e)
{
    char *text = NULL;
    size_t n;
    *out = NULL;
    int rc = weights_file(w, name, &text, &n, e);
    if (!rc && text) rc = json_parse_published(out, text, n, name, e);
    xfree(text);
    return rc;
}

int gguf_chat(struct gguf_keys *k, const struct weights *w, const struct hf_model *m, struct err *e)
{
    struct json *config = NULL, *tokens = NULL;
    char *alone = NULL;
    size_t n;
    int rc = weights_file(w, "chat_template.jinja", &alone, &n, e);
    if (!rc) rc = read_json(w, "tokenizer_config.json", &config, e);
    if (!rc) rc = read_json(w, "tokenizer.json", &tokens, e);
    if (!rc) rc = put_template(k, alone, config, "tokenizer_config.json", e);
    if (!rc) put_ends(k, m, tokens, config);
    json_free(config);
    json_free(tokens);
    xfree(alone);
    return rc;
}
