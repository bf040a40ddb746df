/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/gguf_tokens.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "token/tokenizer.h"

/* The format's numbers of kinds of tokens. */
enum { TOKEN_NORMAL = 1, TOKEN_UNKNOWN, TOKEN_CONTROL, TOKEN_USER, TOKEN_UNUSED, TOKEN_BYTE };

/* ---- how texts are cut before merging ---- */

/* Rules of published tokenizers, and the words by which readers know them. */
#define WORDS_OF_CL100K(digits)                                                                                        \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits                                               \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define WORDS_OF_GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
static const struct cutting {
    const char *rule;
    bool whole; /* a piece that is a token is not merged (ignore_merges) */
    const char *name;
} cuttings[] = {
    {WORDS_OF_GPT2, false, "gpt-2"},
    {WORDS_OF_CL100K("\\p{N}{1,3}"), true, "llama-bpe"},
    {WORDS_OF_CL100K("\\p{N}{1,3}"), false, "dbrx"},
    {WORDS_OF_CL100K("\\p{N}"), false, "qwen2"},
};

static const char *type_of(const struct json *step) { return json_string(json_get(step, "type"), NULL, ""); }
static bool is(const struct json *step, const char *type) { return !strcmp(type_of(step), type); }

/* The steps of a Sequence, or the one step that there is. */
static size_t steps_of(const struct json *step, const char *list)
{
    if (!step || json_kind(step) != JSON_OBJECT) return 0;
    return is(step, "Sequence") ? json_size(json_get(step, list)) : 1;
}
static const struct json *step_at(const struct json *step, const char *list, size_t i)
{
    return is(step, "Sequence") ? json_at(json_get(step, list), i) : step;
}

/* The name of the rule of a byte-level tokenizer; NULL: readers know none. */
static const char *cutting_of(const struct json *root)
{
    const struct json *before = json_get(root, "pre_tokenizer"), *merges = json_get(json_get(root, "model"), "merges");
    size_t n = steps_of(before, "pretokenizers");
    if (n == 1 && is(before, "ByteLevel") && !json_bool(json_get(before, "add_prefix_space"), true) && merges &&
        !json_size(merges))
        return "gpt-2"; /* nothing is merged, so it does not matter where texts are cut */
    if (n < 1 || n > 2) return NULL;
    const struct json *bytes = step_at(before, "pretokenizers", n - 1);
    if (!is(bytes, "ByteLevel") || json_bool(json_get(bytes, "add_prefix_space"), true)) return NULL;
    bool whole = json_bool(json_get(json_get(root, "model"), "ignore_merges"), false),
         words = json_bool(json_get(bytes, "use_regex"), true);
    const char *rule = words ? WORDS_OF_GPT2 : "";
    if (n == 2) {
        const struct json *first = step_at(before, "pretokenizers", 0);
        if (is(first, "Digits") && words && !whole)
            return json_bool(json_get(first, "individual_digits"), false) ? "smollm" : NULL;
        if (!is(first, "Split") || words || json_bool(json_get(first, "invert"), false) ||
            strcmp(json_string(json_get(first, "behavior"), NULL, ""), "Isolated"))
            return NULL;
        rule = json_string(json_get(json_get(first, "pattern"), "Regex"), NULL, "");
    }
    for (size_t i = 0; i < sizeof cuttings / sizeof cuttings[0]; i++)
        if (!strcmp(cuttings[i].rule, rule) && cuttings[i].whole == whole) return cuttings[i].name;
    return NULL;
}

/* What is done to a text before it is cut. Readers of a byte-level BPE do nothing. */
static int check_normal(const struct json *root, struct err *e)
{
    const struct json *normal = json_get(root, "normalizer"), *model = json_get(root, "model");
    static const char *const marks[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (size_t i = 0; i < 2; i++)
        if (*json_string(json_get(model, marks[i]), NULL, ""))
            return err_set(e, ERR_REQUEST, "tokenizer.json: model.%s: readers of GGUF know no such marks", marks[i]);
    for (size_t i = 0; i < steps_of(normal, "normalizers"); i++) {
        const struct json *step = step_at(normal, "normalizers", i);
        if (!is(step, "NFC"))
            return err_set(e, ERR_REQUEST,
                           "tokenizer.json: normalizer: %.40s changes texts before they are cut, and readers of GGUF "
                           "change nothing: they would give other tokens",
                           type_of(step));
        log_warn("tokenizer.json brings texts into the normal form NFC, and readers of GGUF do not: one that is in "
                 "another (letters and their accents apart) has other tokens there; bring it into NFC first");
    }
    return OK;
}

/* ---- tokens ---- */

struct vocabulary {
    const char **text; /* by id, in the spelling of the file */
    unsigned char *kind;
    int64_t n;
    int64_t unknown; /* -1: none */
};

static int take_token(struct vocabulary *v, const char *text, int64_t id, unsigned char kind, struct err *e)
{
    if (id < 0 || id >= v->n)
        return err_set(e, ERR_REQUEST, "tokenizer.json: token %.60s is %lld, the model's vocabulary has %lld", text,
                       (long long)id, (long long)v->n);
    v->text[id] = text;
    v->kind[id] = kind;
    return OK;
}

static bool is_byte(const char *text)
{
    unsigned value;
    int end = 0;
    return strlen(text) == 6 && sscanf(text, "<0x%2X>%n", &value, &end) == 1 && end == 6;
}

static int take_tokens(struct vocabulary *v, const struct json *root, bool bytes, struct err *e)
{
    const struct json *model = json_get(root, "model"), *vocab = json_get(model, "vocab"),
                      *added = json_get(root, "added_tokens");
    const char *unknown = json_string(json_get(model, "unk_token"), NULL, "");
    int rc = OK;
    v->unknown = -1;
    for (void *it = json_iter(vocab); it && !rc; it = json_iter_next(vocab, it)) {
        const char *text = json_iter_key(it);
        int64_t id = json_int(json_iter_value(it), -1);
        rc = take_token(v, text, id, bytes && is_byte(text) ? TOKEN_BYTE : TOKEN_NORMAL, e);
    }
    for (size_t i = 0; added && !rc && i < json_size(added); i++) {
        const struct json *a = json_at(added, i);
        rc = take_token(v, json_string(json_get(a, "content"), NULL, ""), json_int(json_get(a, "id"), -1),
                        json_bool(json_get(a, "special"), false) ? TOKEN_CONTROL : TOKEN_USER, e);
    }
    if (!rc && unknown[0] && json_get(vocab, unknown)) v->unknown = json_int(json_get(vocab, unknown), -1);
    if (!rc && v->unknown >= 0) v->kind[v->unknown] = TOKEN_UNKNOWN;
    return rc;
}

static void put_tokens(struct gguf_keys *k, const struct vocabulary *v)
{
    char room[32];
    gguf_key_list(k, "tokenizer.ggml.tokens", GGUF_VALUE_STRING, (uint64_t)v->n);
    for (int64_t i = 0; i < v->n; i++) {
        if (!v->text[i]) snprintf(room, sizeof room, "[PAD%lld]", (long long)i);
        gguf_put_text(&k->s, v->text[i] ? v->text[i] : room, strlen(v->text[i] ? v->text[i] : room));
    }
    gguf_key_list(k, "tokenizer.ggml.token_type", GGUF_VALUE_I32, (uint64_t)v->n);
    for (int64_t i = 0; i < v->n; i++) gguf_put_u32(&k->s, v->text[i] ? v->kind[i] : TOKEN_UNUSED);
}

/* begin: what the tokenizer puts before a text; -1: nothing. */
static void put_ends(struct gguf_keys *k, const struct hf_model *m, int64_t begin)
{
    int64_t bos = begin >= 0 ? begin : m->bos;
    if (bos >= 0) gguf_key_u32(k, "tokenizer.ggml.bos_token_id", bos);
    if (m->n_eos) gguf_key_u32(k, "tokenizer.ggml.eos_token_id", m->eos[0]);
    gguf_key_bool(k, "tokenizer.ggml.add_bos_token", begin >= 0);
    gguf_key_bool(k, "tokenizer.ggml.add_eos_token", false);
}

/* By the rule that tutti itself goes by when the model is asked. A GGUF says one token, or none. */
static int find_begin(const struct json *root, int64_t vocab, int64_t *begin, struct err *e)
{
    struct tokens before = {0};
    int32_t end;
    int rc = tokenizer_template(root, vocab, "tokenizer.json", &before, &end, e);
    *begin = before.n ? before.ids[0] : -1;
    if (!rc && before.n > 1)
        rc = err_set(e, ERR_REQUEST,
                     "tokenizer.json: puts %lld tokens before a text (post_processor), and a GGUF says one at most",
                     (long long)before.n);
    tokens_free(&before);
    return rc;
}

/* ---- byte-level BPE ---- */

static void put_merge(struct str *s, const struct json *m)
{
    if (json_kind(m) != JSON_ARRAY) {
        const char *text = json_string(m, NULL, "");
        gguf_put_text(s, text, strlen(text));
        return;
    }
    struct str pair = {0};
    str_printf(&pair, "%s %s", json_string(json_at(m, 0), NULL, ""), json_string(json_at(m, 1), NULL, ""));
    gguf_put_text(s, str_text(&pair), pair.n);
    str_free(&pair);
}

static int put_byte_level(struct gguf_keys *k, const struct hf_model *m, const struct json *root,
                          const struct vocabulary *v, int64_t begin, struct err *e)
{
    const struct json *merges = json_get(json_get(root, "model"), "merges");
    const char *cutting = cutting_of(root);
    if (!cutting)
        return err_set(e, ERR_REQUEST,
                       "tokenizer.json: readers of GGUF know no name for how this byte-level BPE cuts texts "
                       "(pre_tokenizer, ignore_merges); those of GPT-2, Llama 3, Qwen 2 and SmolLM have one");
    gguf_key_text(k, "tokenizer.ggml.model", "gpt2");
    gguf_key_text(k, "tokenizer.ggml.pre", cutting);
    put_tokens(k, v);
    size_t n = merges ? json_size(merges) : 0;
    gguf_key_list(k, "tokenizer.ggml.merges", GGUF_VALUE_STRING, n);
    for (size_t i = 0; i < n; i++) put_merge(&k->s, json_at(merges, i));
    put_ends(k, m, begin);
    return OK;
}

/* ---- characters and bytes ---- */

/* A merge's result, in `whole` of room bytes; its id; -1: it is no token. */
static int64_t merged(const struct json *vocab, const struct json *m, char *whole, size_t room)
{
    int n;
    if (json_kind(m) == JSON_ARRAY) {
        n = snprintf(whole, room, "%s%s", json_string(json_at(m, 0), NULL, ""), json_string(json_at(m, 1), NULL, ""));
    } else {
        const char *text = json_string(m, NULL, ""), *space = strchr(text, ' ');
        int at = space ? (int)(space - text) : 0;
        n = snprintf(whole, room, "%.*s%s", at, text, space ? space + 1 : "");
    }
    const struct json *id = n >= 0 && (size_t)n < room ? json_get(vocab, whole) : NULL; /* longer than any token */
    return id ? json_int(id, -1) : -1;
}

/* In how many ways a token is two others. */
static int64_t ways_to_merge(const struct json *vocab, const char *token, char *first)
{
    size_t n = strlen(token);
    int64_t ways = 0;
    for (size_t at = 1; at < n; at++) {
        if (((unsigned char)token[at] & 0xC0) == 0x80) continue; /* inside of a character */
        memcpy(first, token, at);
        first[at] = 0;
        ways += json_get(vocab, first) && json_get(vocab, token + at);
    }
    return ways;
}

/* A score for each token: what is merged earlier has a better one. Readers merge any two tokens that are one together,
 * so all such pairs must be in the list. */
static int score_tokens(const struct vocabulary *v, const struct json *model, float *score, struct err *e)
{
    const struct json *vocab = json_get(model, "vocab"), *merges = json_get(model, "merges");
    size_t longest = 1, n = merges ? json_size(merges) : 0;
    for (int64_t i = 0; i < v->n; i++)
        longest = v->text[i] && strlen(v->text[i]) > longest ? strlen(v->text[i]) : longest;
    char *room = xmalloc(longest + 1);
    int64_t *listed = xcalloc(to_size(v->n + 1), sizeof *listed);
    int rc = OK;
    for (size_t i = 0; i < n && !rc; i++) {
        int64_t id = merged(vocab, json_at(merges, i), room, longest + 1);
        if (id < 0 || id >= v->n) rc = err_set(e, ERR_REQUEST, "tokenizer.json: merge %zu makes no token", i);
        else if (!listed[id]++) score[id] = -(float)(i + 1);
    }
    for (int64_t i = 0; i < v->n && !rc; i++) {
        if (v->kind[i] != TOKEN_NORMAL || !v->text[i]) continue;
        int64_t ways = ways_to_merge(vocab, v->text[i], room);
        if (ways != listed[i])
            rc = err_set(e, ERR_REQUEST,
                         "tokenizer.json: \"%.60s\" is two tokens in %lld ways and merged in %lld of them; readers of "
                         "GGUF merge in all, as SentencePiece does",
                         v->text[i], (long long)ways, (long long)listed[i]);
    }
    xfree(listed);
    xfree(room);
    return rc;
}

/* What stands before a text: 1 a space, 0 nothing, -1 another thing than readers know. Spaces are a letter of their
 * own, and nothing else is changed or cut but at spaces. */
static int space_before(const struct json *root)
{
    const struct json *normal = json_get(root, "normalizer"), *before = json_get(root, "pre_tokenizer");
    bool spaces = false, put = false;
    for (size_t i = 0; i < steps_of(normal, "normalizers"); i++) {
        const struct json *s = step_at(normal, "normalizers", i);
        if (is(s, "Prepend") && !strcmp(json_string(json_get(s, "prepend"), NULL, ""), "\xE2\x96\x81") && !spaces)
            put = true;
        else if (is(s, "Replace") && !strcmp(json_string(json_get(json_get(s, "pattern"), "String"), NULL, ""), " ") &&
                 !strcmp(json_string(json_get(s, "content"), NULL, ""), "\xE2\x96\x81"))
            spaces = true;
        else return -1;
    }
    for (size_t i = 0; i < steps_of(before, "pretokenizers"); i++) {
        const struct json *s = step_at(before, "pretokenizers", i);
        if (is(s, "Split") && spaces && !strcmp(json_string(json_get(json_get(s, "pattern"), "String"), NULL, ""), " "))
            continue; /* no space is left there */
        if (!is(s, "Metaspace") || strcmp(json_string(json_get(s, "replacement"), NULL, ""), "\xE2\x96\x81") ||
            json_bool(json_get(s, "split"), true))
            return -1;
        const char *scheme = json_string(json_get(s, "prepend_scheme"), NULL, "always");
        spaces = true;
        put |= strcmp(scheme, "never") != 0;
    }
    return spaces ? put : -1;
}

static int put_characters(struct gguf_keys *k, const struct hf_model *m, const struct json *root,
                          const struct vocabulary *v, int64_t begin, struct err *e)
{
    int before = space_before(root);
    if (before < 0)
        return err_set(e, ERR_REQUEST,
                       "tokenizer.json: the normalizer or pre_tokenizer does more than SentencePiece's (a sign for "
                       "spaces, "
                       "one before the text), and a GGUF says no more");
    float *score = xcalloc(to_size(v->n + 1), sizeof *score);
    int rc = score_tokens(v, json_get(root, "model"), score, e);
    if (!rc) {
        gguf_key_text(k, "tokenizer.ggml.model", "llama");
        gguf_key_text(k, "tokenizer.ggml.pre", "default");
        put_tokens(k, v);
        gguf_key_list(k, "tokenizer.ggml.scores", GGUF_VALUE_F32, (uint64_t)v->n);
        for (int64_t i = 0; i < v->n; i++) gguf_put_f32(&k->s, score[i]);
        if (v->unknown >= 0) gguf_key_u32(k, "tokenizer.ggml.unknown_token_id", v->unknown);
        gguf_key_bool(k, "tokenizer.ggml.add_space_prefix", before);
        put_ends(k, m, begin);
    }
    xfree(score);
    return rc;
}

/* llama.cpp looks these up by their texts in a Phi-3, and does not read a file without them. */
static int check_phi3(const struct vocabulary *v, struct err *e)
{
    static const char *const wanted[] = {"<unk>", "<s>", "</s>", "<|endoftext|>"};
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        int64_t id = 0;
        while (id < v->n && !(v->text[id] && !strcmp(v->text[id], wanted[i]))) id++;
        if (id == v->n)
            return err_set(e, ERR_REQUEST,
                           "tokenizer.json: has no token %s, without which llama.cpp does not read a GGUF of a phi3",
                           wanted[i]);
    }
    return OK;
}

int gguf_tokens(struct gguf_keys *k, const struct hf_model *m, const char *text, size_t n, struct err *e)
{
    struct json *root = NULL;
    int rc = json_parse_published(&root, text, n, "tokenizer.json", e);
    if (rc) return rc;
    const struct json *model = json_get(root, "model");
    bool bpe = is(model, "BPE"), bytes = json_bool(json_get(model, "byte_fallback"), false);
    struct vocabulary v = {.n = m->model.vocab};
    v.text = xcalloc(to_size(v.n), sizeof *v.text);
    v.kind = xcalloc(to_size(v.n), 1);
    if (!bpe)
        rc = err_set(e, ERR_REQUEST,
                     "tokenizer.json: the tokenizer is a %.40s; byte-level BPE and SentencePiece's are written "
                     "into a GGUF",
                     type_of(model));
    if (!rc) rc = take_tokens(&v, root, bytes, e);
    if (!rc && !bytes) rc = check_normal(root, e);
    if (!rc && m->model.family == MODEL_PHI3) rc = check_phi3(&v, e);
    int64_t begin = -1;
    if (!rc) rc = find_begin(root, v.n, &begin, e);
    if (!rc) rc = bytes ? put_characters(k, m, root, &v, begin, e) : put_byte_level(k, m, root, &v, begin, e);
    xfree(v.text);
    xfree(v.kind);
    json_free(root);
    return rc;
}
