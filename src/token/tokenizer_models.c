/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_models.c: the `model` of a tokenizer.json: which kind it is, its vocabulary and its rules.
 *
 * BPE behind ByteLevel, with a token for every byte, works on bytes (bpe.h); any other on characters (char_bpe.h).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "token/byte_level.h"
#include "token/tokenizer_read.h"

enum { MERGES_MAX = 1 << 24 };

/* -- which kind ----------------------------------------------------------------------------------------------- */

static bool has_text(const struct json *v, const char *key) { return *json_string(json_get(v, key), NULL, "") != 0; }

/* The steps end with ByteLevel and have no other. */
static bool ends_in_bytes(const struct json *v)
{
    if (strcmp(json_type(v), "Sequence")) return !strcmp(json_type(v), "ByteLevel");
    const struct json *list = json_get(v, "pretokenizers");
    size_t n = json_size(list);
    for (size_t i = 0; i < n; i++)
        if (!strcmp(json_type(json_at(list, i)), "ByteLevel") != (i + 1 == n)) return false;
    return n > 0;
}

static bool normalizes_to_bytes(const struct json *v)
{
    const struct json *list = json_get(v, "normalizers");
    for (size_t i = 0; i < json_size(list); i++)
        if (normalizes_to_bytes(json_at(list, i))) return true;
    return !strcmp(json_type(v), "ByteLevel");
}

static bool has_all_bytes(const struct json *vocab)
{
    struct str letter = {0};
    bool all = true;
    for (int i = 0; i < 256 && all; i++) {
        unsigned char byte = (unsigned char)i;
        str_clear(&letter);
        byte_level_write(&letter, &byte, 1);
        all = json_get(vocab, letter.p);
    }
    str_free(&letter);
    return all;
}

/* A file without a type is from before there was one. */
static const char *type_of_model(const struct json *m)
{
    const struct json *type = json_get(m, "type");
    if (json_is_set(type)) return json_string(type, NULL, "(no text)");
    if (json_get(m, "merges")) return "BPE";
    if (json_is(json_get(m, "vocab"), JSON_ARRAY)) return "Unigram";
    return json_get(m, "max_input_chars_per_word") ? "WordPiece" : json_get(m, "unk_token") ? "WordLevel" : "BPE";
}

static int bpe_kind(struct reader *r)
{
    const struct json *m = r->model, *dropout = json_get(m, "dropout");
    if (json_is_set(dropout) && json_real(dropout, 1) != 0) return reader_unsupported(r, "model", "dropout");
    bool bytes = ends_in_bytes(json_get(r->root, "pre_tokenizer")) &&
                 !normalizes_to_bytes(json_get(r->root, "normalizer")) && has_all_bytes(json_get(m, "vocab")) &&
                 !has_text(m, "continuing_subword_prefix") && !has_text(m, "end_of_word_suffix");
    r->t->kind = bytes ? TOKENIZER_BPE : TOKENIZER_CHAR_BPE;
    return OK;
}

int reader_kind(struct reader *r)
{
    const char *type = type_of_model(r->model);
    static const struct {
        const char *type;
        enum tokenizer_kind kind;
    } kinds[] = {{"Unigram", TOKENIZER_UNIGRAM},
                 {"WordPiece", TOKENIZER_WORD_PIECE},
                 {"WordLevel", TOKENIZER_WORD_LEVEL}};
    if (!strcmp(type, "BPE")) return bpe_kind(r);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(type, kinds[i].type)) {
            r->t->kind = kinds[i].kind;
            return OK;
        }
    return reader_unsupported(r, "model.type", type);
}

/* -- vocabulary ----------------------------------------------------------------------------------------------- */

static int read_object(struct reader *r, const struct json *vocab)
{
    if (!json_is(vocab, JSON_OBJECT)) return reader_corrupt(r, "model.vocab", "wanted an object of token: id");
    int code = OK;
    for (void *it = json_iter(vocab); it && !code; it = json_iter_next(vocab, it)) {
        size_t n;
        const char *key = json_iter_key_bytes(it, &n);
        code = reader_token(r, key, n, json_int(json_iter_value(it), -1));
    }
    return code;
}

/* 10 to the power of n >= 0. */
static double power_of_ten(int n)
{
    static const double exact[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                   1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    char text[16];
    if (n < (int)(sizeof exact / sizeof *exact)) return exact[n];
    snprintf(text, sizeof text, "1e%d", n);
    return strtod(text, NULL);
}

/* The number that the reference's reader makes of this one. It takes the digits as an integer, as a double, and
 * multiplies or divides by a power of ten: two roundings, so its result is often the neighbour of the nearest double,
 * and scores that are a tie for us are none for it. Digits that its 64 bits have no room for it passes over. */
static double score_as_read(const struct json *v)
{
    const char *p = json_real_text(v);
    if (!p) return json_real(v, NAN);
    bool negative = *p == '-', point = false, full = false;
    uint64_t significand = 0;
    int64_t exponent = 0;
    const char *start = p;
    for (p += negative; *p && *p != 'e' && *p != 'E'; p++) {
        if (*p == '.') {
            point = true;
            continue;
        }
        if (*p < '0' || *p > '9') return json_real(v, NAN); /* no number */
        uint64_t digit = (uint64_t)(*p - '0');
        full = full || (p - start >= 19 && significand > (UINT64_MAX - digit) / 10);
        if (!full) significand = significand * 10 + digit;
        exponent += full ? !point : -(int64_t)point;
    }
    if (*p) exponent += strtol(p + 1, NULL, 10);
    if (!significand || exponent > 308 || exponent < -308) return json_real(v, NAN);
    double x = (double)significand, ten = power_of_ten((int)(exponent < 0 ? -exponent : exponent));
    x = exponent < 0 ? x / ten : x * ten;
    return negative ? -x : x;
}

/* [token, score], by id. */
static int read_list(struct reader *r, const struct json *vocab)
{
    if (!json_is(vocab, JSON_ARRAY)) return reader_corrupt(r, "model.vocab", "wanted a list of [token, score]");
    size_t n = json_size(vocab);
    r->scores = xcalloc(n + 1, sizeof *r->scores);
    for (size_t i = 0; i < n; i++) {
        const struct json *row = json_at(vocab, i);
        size_t text_n = 0;
        const char *text = json_string(json_at(row, 0), &text_n, NULL);
        double score = json_at(row, 1) ? score_as_read(json_at(row, 1)) : NAN;
        if (!text || !isfinite(score) || fabs(score) > 1e30)
            return err_set(r->e, ERR_CORRUPT,
                           "%s: model.vocab[%zu]: wanted [token, score], the score a number up to 1e30", r->what, i);
        r->scores[i] = score;
        int code = reader_token(r, text, text_n, (int64_t)i);
        if (code) return code;
    }
    return OK;
}

int reader_vocab(struct reader *r)
{
    const struct json *vocab = json_get(r->model, "vocab");
    int code = r->t->kind == TOKENIZER_UNIGRAM ? read_list(r, vocab) : read_object(r, vocab);
    if (code) return code;
    return r->t->vocab ? OK : reader_corrupt(r, "model.vocab", "is empty");
}

int64_t reader_find(const struct reader *r, const char *text, size_t n)
{
    if (r->scores) return piece_map_get(&r->t->model_ids, (const unsigned char *)text, n);
    return memchr(text, 0, n) ? -1 : json_int(json_get(json_get(r->model, "vocab"), text), -1);
}

/* -- BPE ------------------------------------------------------------------------------------------------------ */

/* A merge is "left right" or ["left", "right"]. */
static bool merge_sides(const struct json *v, const char **left, size_t *left_n, const char **right, size_t *right_n)
{
    if (json_is(v, JSON_ARRAY)) {
        *left = json_string(json_at(v, 0), left_n, NULL);
        *right = json_string(json_at(v, 1), right_n, NULL);
        return json_size(v) == 2 && *left && *right;
    }
    size_t n = 0;
    const char *text = json_string(v, &n, NULL), *space = text ? memchr(text, ' ', n) : NULL;
    if (!space) return false;
    *left = text;
    *left_n = (size_t)(space - text);
    *right = space + 1;
    *right_n = n - *left_n - 1;
    return !memchr(*right, ' ', *right_n);
}

/* Rules are read some at a time, so that a large vocabulary's memory is waited for together (json_ask). They name
 * their results mostly in the vocabulary's order, several in a row the same one: a look at the next few members finds
 * most of them. */
enum { BATCH = 64, GUESSES = 4 };
struct side {
    const char *text;
    size_t n;
};
struct batch {
    const struct json *vocab;
    void *guess; /* the member that the last result was */
    struct side left[BATCH], right[BATCH];
    struct json_asked sides[2 * BATCH], results[BATCH];
    int n_results;
    int result_of[BATCH];    /* which rule's */
    size_t result_at[BATCH]; /* in bytes */
    void *result[BATCH];     /* by rule */
    struct str bytes;
};

/* What is joined: the right side without the prefix, which it may be too short for. */
static size_t prefix_of(const struct reader *r, const struct side *right)
{
    size_t prefix = r->t->kind == TOKENIZER_BPE ? 0 : r->t->chars.prefix.n;
    return right->n < prefix ? 0 : prefix;
}

static bool same(const char *a, const char *b, size_t n)
{
    return piece_same((const unsigned char *)a, (const unsigned char *)b, n);
}

static void *guess_result(struct batch *b, const struct side *left, const char *right, size_t right_n)
{
    void *it = b->guess;
    for (int i = 0; it && i < GUESSES; i++, it = json_iter_next(b->vocab, it)) {
        size_t n;
        const char *key = json_iter_key_bytes(it, &n);
        if (n != left->n + right_n || !same(key, left->text, left->n) || !same(key + left->n, right, right_n)) continue;
        b->guess = it;
        return it;
    }
    return NULL;
}

/* The i-th rule of the batch: what it asks the vocabulary for. */
static void put_rule(const struct reader *r, struct batch *b, int i)
{
    const struct side *left = &b->left[i], *right = &b->right[i];
    size_t prefix = prefix_of(r, right), right_n = right->n - prefix;
    b->sides[2 * i] = (struct json_asked){.key = left->text, .n = left->n};
    b->sides[2 * i + 1] = (struct json_asked){.key = right->text, .n = right->n};
    b->result[i] = guess_result(b, left, right->text + prefix, right_n);
    if (b->result[i]) return;
    b->result_of[b->n_results] = i;
    b->result_at[b->n_results] = b->bytes.n;
    b->results[b->n_results++].n = left->n + right_n;
    str_add(&b->bytes, left->text, left->n);
    str_add(&b->bytes, right->text + prefix, right_n);
}

static void ask_batch(const struct reader *r, struct batch *b, int n)
{
    for (int i = 0; i < b->n_results; i++) b->results[i].key = str_text(&b->bytes) + b->result_at[i];
    json_ask(b->vocab, b->sides, 2 * (size_t)n);
    json_ask(b->vocab, b->results, (size_t)b->n_results);
    for (int i = 0; i < b->n_results; i++) {
        b->result[b->result_of[i]] = b->results[i].it;
        if (b->results[i].it) b->guess = b->results[i].it;
    }
    const struct bpe *rules = r->t->kind == TOKENIZER_BPE ? &r->t->bpe : &r->t->chars.rules;
    for (int i = 0; i < n; i++) {
        void *left = b->sides[2 * i].it, *right = b->sides[2 * i + 1].it;
        if (left && right)
            bpe_expect(rules, (int32_t)json_int(json_iter_value(left), -1),
                       (int32_t)json_int(json_iter_value(right), -1));
    }
}

/* The id of a member of the vocabulary; -1: there is none, or (of a vocabulary of bytes) it does not stand for the
 * bytes that its letters are. */
static int32_t id_of(const struct reader *r, void *it)
{
    int32_t id = it ? (int32_t)json_int(json_iter_value(it), -1) : -1;
    return id >= 0 && r->odd && (!r->entries[id].letters || r->entries[id].renamed) ? -1 : id;
}

/* A side as bytes: its id; -1: not of the letters of bytes, or no token. A token that is not the model's own counts
 * too. */
static int32_t side_as_bytes(const struct reader *r, const struct side *s, struct str *bytes)
{
    size_t before = bytes->n;
    if (!byte_level_read(bytes, s->text, s->n)) return -1;
    return piece_map_get(&r->t->ids, (const unsigned char *)str_text(bytes) + before, bytes->n - before);
}

/* The same three ids as bytes: what a rule is that does not name three members of the vocabulary. */
static void ask_as_bytes(const struct reader *r, const struct side *left, const struct side *right, int32_t id[3])
{
    struct str bytes = {0};
    id[0] = side_as_bytes(r, left, &bytes);
    size_t left_n = bytes.n;
    id[1] = side_as_bytes(r, right, &bytes);
    bool letters = (left_n || !left->n) && (bytes.n > left_n || !right->n);
    id[2] = letters ? piece_map_get(&r->t->ids, (const unsigned char *)str_text(&bytes), bytes.n) : -1;
    if (!letters) id[0] = -1;
    str_free(&bytes);
}

/* NULL, or which token is missing. */
static const char *take_rule(struct reader *r, const struct batch *b, int i, int32_t rank)
{
    int32_t id[] = {id_of(r, b->sides[2 * i].it), id_of(r, b->sides[2 * i + 1].it), id_of(r, b->result[i])};
    if (r->t->kind != TOKENIZER_BPE)
        return char_bpe_put(&r->t->chars, b->left[i].text, b->left[i].n, b->right[i].text, b->right[i].n, id, rank);
    if (id[0] < 0 || id[1] < 0 || id[2] < 0) ask_as_bytes(r, &b->left[i], &b->right[i], id);
    if (id[0] < 0 || id[1] < 0 || id[2] < 0)
        return id[0] < 0 ? "the left part" : id[1] < 0 ? "the right part" : "the result";
    bpe_put(&r->t->bpe, id[0], id[1], rank, id[2]);
    return NULL;
}

/* Rules `from` up to from + n. */
static int read_batch(struct reader *r, const struct json *merges, size_t from, int n, struct batch *b)
{
    int whole = 0;
    str_clear(&b->bytes);
    b->n_results = 0;
    for (; whole < n; whole++) {
        struct side *left = &b->left[whole], *right = &b->right[whole];
        if (!merge_sides(json_at(merges, from + (size_t)whole), &left->text, &left->n, &right->text, &right->n)) break;
        put_rule(r, b, whole);
    }
    ask_batch(r, b, whole);
    for (int i = 0; i < whole; i++) {
        const char *missing = take_rule(r, b, i, (int32_t)from + i);
        const struct side *left = &b->left[i], *right = &b->right[i];
        if (missing)
            return err_set(r->e, ERR_CORRUPT, "%s: model.merges[%d]: \"%.*s\" + \"%.*s\": %s is not in model.vocab",
                           r->what, (int)from + i, (int)(left->n < 60 ? left->n : 60), left->text,
                           (int)(right->n < 60 ? right->n : 60), right->text, missing);
    }
    if (whole == n) return OK;
    return err_set(r->e, ERR_CORRUPT, "%s: model.merges[%d]: wanted \"left right\" or [\"left\", \"right\"]", r->what,
                   (int)from + whole);
}

static int read_merges(struct reader *r)
{
    const struct json *merges = json_get(r->model, "merges");
    if (!json_is(merges, JSON_ARRAY)) return reader_corrupt(r, "model.merges", "wanted a list");
    size_t n = json_size(merges);
    if (n > MERGES_MAX) return reader_corrupt(r, "model.merges", "more than 16777216 of them");
    struct batch *b = xcalloc(1, sizeof *b);
    b->vocab = json_get(r->model, "vocab");
    b->guess = json_iter(b->vocab);
    int code = OK;
    if (r->t->kind == TOKENIZER_BPE) bpe_init(&r->t->bpe, (int64_t)n);
    else char_bpe_start(&r->t->chars, (int64_t)n);
    for (size_t i = 0; i < n && !code; i += BATCH)
        code = read_batch(r, merges, i, n - i < BATCH ? (int)(n - i) : BATCH, b);
    str_free(&b->bytes);
    xfree(b);
    return code;
}

static int read_bytes(struct reader *r)
{
    struct tokenizer *t = r->t;
    bool identity = true;
    for (int i = 0; i < 256; i++) {
        unsigned char byte = (unsigned char)i;
        int32_t id = piece_map_get(&t->ids, &byte, 1);
        if (id < 0)
            return err_set(r->e, ERR_CORRUPT, "%s: model.vocab has no token for byte 0x%02X", r->what, (unsigned)i);
        t->bpe.byte_id[i] = id;
        identity = identity && id == i;
    }
    bool no_merges = json_size(json_get(r->model, "merges")) == 0;
    bool plain = !t->cut.normalizer && split_keeps_text(t->cut.split);
    if (identity && no_merges && t->vocab <= 257 && plain) t->kind = TOKENIZER_BYTE;
    if (json_bool(json_get(r->model, "ignore_merges"), false)) t->bpe.whole = &t->ids;
    return OK;
}

/* The token of this key's text: required, or -1 where the key may be null. */
static int read_unknown(struct reader *r, bool required, int32_t *id)
{
    const struct json *v = json_get(r->model, "unk_token");
    size_t n = 0;
    const char *text = json_string(v, &n, NULL);
    *id = text ? piece_map_get(&r->t->model_ids, (const unsigned char *)text, n) : -1;
    if (*id >= 0 || (!required && !json_is_set(v))) return OK;
    return err_set(r->e, ERR_CORRUPT, "%s: model.unk_token: \"%.60s\" is not in model.vocab", r->what,
                   text ? text : "(none)");
}

static void keep_text(struct str *s, const struct json *v)
{
    size_t n = 0;
    const char *text = json_string(v, &n, NULL);
    if (text) str_add(s, text, n);
}

static int read_char_bpe(struct reader *r)
{
    struct char_bpe *b = &r->t->chars;
    b->ids = &r->t->model_ids;
    b->fallback = json_bool(json_get(r->model, "byte_fallback"), false);
    b->fuse_unknown = json_bool(json_get(r->model, "fuse_unk"), false);
    b->whole = json_bool(json_get(r->model, "ignore_merges"), false);
    keep_text(&b->prefix, json_get(r->model, "continuing_subword_prefix"));
    keep_text(&b->suffix, json_get(r->model, "end_of_word_suffix"));
    int code = read_unknown(r, false, &b->unknown);
    if (!code) code = read_merges(r);
    if (code) return code;
    char_bpe_finish(b);
    bool all = b->fallback;
    for (int i = 0; i < 256 && all; i++) all = b->byte_token[i] >= 0;
    r->t->cut.repairs = !all;
    return OK;
}

/* -- the others ------------------------------------------------------------------------------------------------ */

static int read_unigram(struct reader *r)
{
    struct tokenizer *t = r->t;
    int64_t n = (int64_t)json_size(json_get(r->model, "vocab")), unknown = json_int(json_get(r->model, "unk_id"), -1);
    if (unknown < 0 || unknown >= n)
        return err_set(r->e, ERR_CORRUPT,
                       "%s: model.unk_id: wanted a token from 0 to %lld: what is not in the vocabulary could not be "
                       "encoded",
                       r->what, (long long)n - 1);
    struct unigram_token *tokens = xmalloc(to_size(n) * sizeof *tokens);
    for (int64_t i = 0; i < n; i++)
        tokens[i] = (struct unigram_token){.p = (unsigned char *)t->bytes + t->at[i],
                                           .n = (size_t)(t->at[i + 1] - t->at[i] - 1),
                                           .score = r->scores[i]};
    bool fallback = json_bool(json_get(r->model, "byte_fallback"), false), all = fallback;
    t->unigram = unigram_new(tokens, (int32_t)n, &t->model_ids, (int32_t)unknown, fallback);
    xfree(tokens);
    for (int i = 0; i < 256 && all; i++) {
        char text[8];
        snprintf(text, sizeof text, "<0x%02X>", (unsigned)i);
        all = piece_map_get(&t->model_ids, (unsigned char *)text, 6) >= 0;
    }
    t->cut.repairs = !all;
    return OK;
}

static int read_words(struct reader *r)
{
    struct word_piece *w = &r->t->words;
    w->ids = &r->t->model_ids;
    w->whole_words = r->t->kind == TOKENIZER_WORD_LEVEL;
    const struct json *prefix = json_get(r->model, "continuing_subword_prefix");
    if (json_is_set(prefix)) keep_text(&w->prefix, prefix);
    else str_puts(&w->prefix, "##");
    w->longest_word = json_int(json_get(r->model, "max_input_chars_per_word"), 100);
    for (int64_t id = 0; id < r->t->vocab; id++) {
        size_t n = (size_t)(r->t->at[id + 1] - r->t->at[id] - 1);
        if (n > w->longest_token) w->longest_token = n;
    }
    r->t->cut.repairs = true;
    return read_unknown(r, true, &w->unknown);
}

int reader_rules(struct reader *r)
{
    int code;
    switch (r->t->kind) {
    case TOKENIZER_CHAR_BPE: return read_char_bpe(r);
    case TOKENIZER_UNIGRAM: return read_unigram(r);
    case TOKENIZER_WORD_PIECE:
    case TOKENIZER_WORD_LEVEL: return read_words(r);
    default: code = read_merges(r); return code ? code : read_bytes(r);
    }
}
