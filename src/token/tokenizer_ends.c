/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_ends.c: which token ends a text, and which one is called its beginning.
 *
 * tokenizer.json does not say. In order, until something is said: tokenizer_config.json's eos_token / bos_token beside
 * it, special_tokens_map.json's, what the tokenizer_class that it names has without being told, config.json's
 * eos_token_id / bos_token_id, a template in the post_processor (its first special token is bos), the names everybody
 * uses, and the template's last special token (eos). A bos that is null is said: there is none. An end is looked for
 * further, because documents need one between them.
 *
 * Whether bos is put before a text is another question, and the template's alone (tokenizer_template.c).
 */
#include <string.h>

#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "token/tokenizer_impl.h"

enum { CONFIG_MAX = 16 << 20 };

/* What has been said so far. */
struct ends {
    const struct tokenizer *t;
    int32_t eos, bos; /* -1: none */
    bool bos_said;
};

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

static bool says_none(const struct json *v)
{
    size_t n = 1;
    return v && (json_kind(v) == JSON_NULL || (json_string(v, &n, NULL) && !n));
}

static int ask(struct ends *x, const struct json *root, const char *eos, const char *bos, const char *path,
               struct err *e)
{
    const char *const key[] = {eos, bos};
    for (int i = 0; i < 2; i++)
        if (json_get(root, key[i]) && json_kind(json_get(root, key[i])) == JSON_REAL)
            return err_set(e, ERR_REQUEST, "%s: %s: wanted a token, got %.17g", path, key[i],
                           json_real(json_get(root, key[i]), 0));
    if (x->eos < 0) x->eos = named(x->t, json_get(root, eos));
    if (x->bos_said) return OK;
    x->bos = named(x->t, json_get(root, bos));
    x->bos_said = x->bos >= 0 || says_none(json_get(root, bos));
    return OK;
}

/* What tokenizers of transformers have where their files do not say, by the class's name without "Fast"; NULL: none.
 * The first class is that of any tokenizer.json, and has nothing that it is not told. */
static const struct {
    const char *class, *bos, *eos;
} classes[] = {
    {"PreTrainedTokenizer", NULL, NULL},
    {"TokenizersBackend", NULL, NULL},
    {"AlbertTokenizer", "[CLS]", "[SEP]"},
    {"BertTokenizer", NULL, NULL},
    {"BloomTokenizer", "<s>", "</s>"},
    {"CamembertTokenizer", "<s>", "</s>"},
    {"CLIPTokenizer", "<|startoftext|>", "<|endoftext|>"},
    {"CodeGenTokenizer", "<|endoftext|>", "<|endoftext|>"},
    {"CodeLlamaTokenizer", "<s>", "</s>"},
    {"CohereTokenizer", "<BOS_TOKEN>", "<|END_OF_TURN_TOKEN|>"},
    {"DebertaTokenizer", "[CLS]", "[SEP]"},
    {"DebertaV2Tokenizer", "[CLS]", "[SEP]"},
    {"DistilBertTokenizer", NULL, NULL},
    {"ElectraTokenizer", NULL, NULL},
    {"GPT2Tokenizer", "<|endoftext|>", "<|endoftext|>"},
    {"GPTNeoXTokenizer", "<|endoftext|>", "<|endoftext|>"},
    {"GemmaTokenizer", "<bos>", "<eos>"},
    {"LlamaTokenizer", "<s>", "</s>"},
    {"Qwen2Tokenizer", NULL, "<|endoftext|>"},
    {"Qwen3_5Tokenizer", NULL, "<|endoftext|>"},
    {"RobertaTokenizer", "<s>", "</s>"},
    {"T5Tokenizer", NULL, "</s>"},
    {"WhisperTokenizer", "<|endoftext|>", "<|endoftext|>"},
    {"XLMRobertaTokenizer", "<s>", "</s>"},
    {"XLNetTokenizer", "<s>", "</s>"},
};

static void ask_class(struct ends *x, const struct json *config)
{
    const char *class = json_string(json_get(config, "tokenizer_class"), NULL, "");
    size_t n = strlen(class) - (str_ends(class, "Fast") ? 4 : 0);
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        if (strlen(classes[i].class) != n || strncmp(classes[i].class, class, n) != 0) continue;
        const char *bos = classes[i].bos, *eos = classes[i].eos;
        if (x->eos < 0 && eos) x->eos = tokenizer_find(x->t, eos, strlen(eos));
        if (x->bos_said) return;
        x->bos = bos ? tokenizer_find(x->t, bos, strlen(bos)) : -1;
        x->bos_said = !bos || x->bos >= 0;
        return;
    }
}

/* The template alone decides what comes before a text, and older readers go by this key. */
static void tell_other_readers(const struct tokenizer *t, const struct json *config, int32_t bos, const char *path)
{
    const struct json *add = json_get(config, "add_bos_token");
    bool begins = t->begin.n > 0;
    if (!add || json_kind(add) != JSON_BOOL || json_bool(add, false) == begins || (bos < 0 && !begins)) return;
    log_warn("%s: add_bos_token is %s, and tokenizer.json's post_processor puts %s token before a text; that is gone "
             "by "
             "here, as transformers does, and older readers go by the key",
             path, begins ? "false" : "true", begins ? "a" : "no");
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

/* What nobody said. */
static void settle(struct tokenizer *t, const struct ends *x)
{
    static const char *const ends[] = {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "[EOS]"};
    static const char *const beginnings[] = {"<|begin_of_text|>", "<s>", "<bos>", "[BOS]"};
    t->eos = x->eos >= 0 ? x->eos : usual(t, ends, sizeof ends / sizeof *ends);
    if (t->eos < 0) t->eos = t->template_end;
    t->bos = x->bos_said  ? x->bos
             : t->begin.n ? t->begin.ids[0]
                          : usual(t, beginnings, sizeof beginnings / sizeof *beginnings);
}

static int read_beside(struct json **root, const char *dir, const char *name, char **path, struct err *e)
{
    *root = NULL;
    *path = fs_join(dir, name);
    return !fs_absent(*path) ? json_parse_published_file(root, *path, CONFIG_MAX, e) : OK;
}

/* NULL: there is no such file. */
static int ask_beside(struct ends *x, const char *dir, const char *name, const char *eos, const char *bos,
                      struct err *e)
{
    struct json *root;
    char *path;
    int code = read_beside(&root, dir, name, &path, e);
    if (!code && root) code = ask(x, root, eos, bos, path, e);
    json_free(root);
    xfree(path);
    return code;
}

static int ask_config(struct ends *x, const struct json *config, const char *dir, const char *path, struct err *e)
{
    int code = ask(x, config, "eos_token", "bos_token", path, e);
    if (!code && dir) code = ask_beside(x, dir, "special_tokens_map.json", "eos_token", "bos_token", e);
    if (!code) ask_class(x, config);
    if (!code) tell_other_readers(x->t, config, x->bos, path);
    return code;
}

int tokenizer_find_ends(struct tokenizer *t, const char *dir, struct err *e)
{
    struct ends x = {.t = t, .eos = -1, .bos = -1};
    int code = OK;
    if (dir) {
        struct json *config;
        char *path;
        code = read_beside(&config, dir, "tokenizer_config.json", &path, e);
        if (!code && config) code = ask_config(&x, config, dir, path, e);
        if (!code) code = ask_beside(&x, dir, "config.json", "eos_token_id", "bos_token_id", e);
        json_free(config);
        xfree(path);
    }
    if (!code) settle(t, &x);
    return code;
}

int tokenizer_take_ends(struct tokenizer *t, const char *config, size_t n, int64_t eos, int64_t bos, const char *what,
                        struct err *e)
{
    struct ends x = {.t = t, .eos = -1, .bos = -1};
    struct json *root = NULL;
    int code = config ? json_parse_published(&root, config, n, what, e) : OK;
    if (!code && root) code = ask_config(&x, root, NULL, what, e);
    if (x.eos < 0 && eos >= 0 && eos < t->vocab) x.eos = (int32_t)eos;
    if (!x.bos_said && bos >= 0 && bos < t->vocab) {
        x.bos = (int32_t)bos;
        x.bos_said = true;
    }
    if (!code) settle(t, &x);
    json_free(root);
    return code;
}
