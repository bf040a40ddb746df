/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_ends.c: which token ends a text, and which begins one.
 *
 * tokenizer.json does not say. In order: tokenizer_config.json's eos_token / bos_token beside it, config.json's
 * eos_token_id / bos_token_id, a template in the post_processor (its first special token is bos), the names everybody
 * uses, and the template's last special token (eos).
 */
#include <string.h>

#include "base/fs.h"
#include "base/json.h"
#include "base/mem.h"
#include "token/tokenizer_impl.h"

enum { CONFIG_MAX = 16 << 20 };

/* A token named as text, as {"content": text}, or by id; -1 when it is none of these or not in the vocabulary. */
static int32_t named(const struct tokenizer *t, const struct json *v)
{
    if (v && json_kind(v) == JSON_ARRAY) v = json_at(v, 0); /* several ends: the first */
    if (v && json_kind(v) == JSON_OBJECT) v = json_get(v, "content");
    if (!v) return -1;
    if (json_kind(v) == JSON_INT) {
        int64_t id = json_int(v, -1);
        return id >= 0 && id < t->vocab ? (int32_t)id : -1;
    }
    size_t n = 0;
    const char *text = json_string(v, &n, NULL);
    return text ? tokenizer_find(t, text, n) : -1;
}

static int end_of(const struct tokenizer *t, const struct json *root, const char *key, const char *path, int32_t *id,
                  struct err *e)
{
    const struct json *v = json_get(root, key);
    if (*id >= 0) return OK;
    if (v && json_kind(v) == JSON_REAL)
        return err_set(e, ERR_REQUEST, "%s: %s: wanted a token, got %.17g", path, key, json_real(v, 0));
    *id = named(t, v);
    return OK;
}

static int ask_file(struct tokenizer *t, const char *dir, const char *name, const char *eos_key, const char *bos_key,
                    int32_t *eos, int32_t *bos, struct err *e)
{
    char *path = fs_join(dir, name);
    struct json *root = NULL;
    int code = !fs_absent(path) ? json_parse_published_file(&root, path, CONFIG_MAX, e) : OK;
    if (!code && root) code = end_of(t, root, eos_key, path, eos, e);
    if (!code && root) code = end_of(t, root, bos_key, path, bos, e);
    json_free(root);
    xfree(path);
    return code;
}

/* The first of these names that is a special token. */
static int32_t usual(const struct tokenizer *t, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int32_t id = tokenizer_find(t, names[i], strlen(names[i]));
        if (tokenizer_is_special(t, id)) return id;
    }
    return -1;
}

int tokenizer_find_ends(struct tokenizer *t, const char *dir, struct err *e)
{
    static const char *const ends[] = {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "[EOS]"};
    static const char *const beginnings[] = {"<|begin_of_text|>", "<s>", "<bos>", "[BOS]"};
    int32_t eos = -1, bos = -1;
    int code = OK;
    if (dir) code = ask_file(t, dir, "tokenizer_config.json", "eos_token", "bos_token", &eos, &bos, e);
    if (dir && !code) code = ask_file(t, dir, "config.json", "eos_token_id", "bos_token_id", &eos, &bos, e);
    if (code) return code;
    if (bos < 0) bos = t->bos; /* the template's */
    t->eos = eos >= 0 ? eos : usual(t, ends, sizeof ends / sizeof *ends);
    t->bos = bos >= 0 ? bos : usual(t, beginnings, sizeof beginnings / sizeof *beginnings);
    if (t->eos < 0) t->eos = t->template_end;
    return OK;
}

int tokenizer_take_ends(struct tokenizer *t, const char *config, size_t n, const char *what, struct err *e)
{
    struct json *root;
    int code = json_parse_published(&root, config, n, what, e);
    if (code) return code;
    int32_t eos = named(t, json_get(root, "eos_token")), bos = named(t, json_get(root, "bos_token"));
    if (eos >= 0) t->eos = eos;
    if (bos >= 0) t->bos = bos;
    json_free(root);
    return OK;
}
