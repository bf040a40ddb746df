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
    struct str key = {0};
    int code = OK;
    for (void *it = json_iter(vocab); it && !code; it = json_iter_next(vocab, it)) {
        json_iter_key_text(it, &key);
        code = reader_token(r, str_text(&key), key.n, json_int(json_iter_value(it), -1));
    }
    str_free(&key);
    return code;
}

/* The number that the reference's reader makes of the text of this one. It takes the digits as an integer, as a double,
 * and multiplies or divides by a power of ten: two roundings, so its result is often the neighbour of the nearest
 * double, and scores that are a tie for us are none for it. The text is taken to be the shortest that reads back, which
 * is what every program that writes such files prints. */
static double score_as_read(double v)
{
    char text[40], power[16];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*e", digits - 1, v);
        if (strtod(text, NULL) == v) break;
    }
    char *e = strchr(text, 'e'), *p = text;
    int exponent = atoi(e + 1), after_point = 0;
    uint64_t significand = 0;
    char *last = e;
    while (last > text && last[-1] == '0') last--;
    bool negative = *p == '-', point = false;
    for (p += negative; p < last; p++) {
        if (*p == '.') {
            point = true;
            continue;
        }
        significand = significand * 10 + (uint64_t)(*p - '0');
        after_point += point;
    }
    exponent -= after_point;
    snprintf(power, sizeof power, "1e%d", exponent < 0 ? -exponent : exponent);
    double ten = strtod(power, NULL), x = (double)significand;
    if (!significand || !isfinite(ten)) return v;
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
        double score = json_real(json_at(row, 1), NAN);
        if (!text || !isfinite(score) || fabs(score) > 1e30)
            return err_set(r->e, ERR_CORRUPT,
                           "%s: model.vocab[%zu]: wanted [token, score], the score a number up to 1e30", r->what, i);
        r->scores[i] = score_as_read(score);
        int code = reader_token(r, text, text_n, (int64_t)i);
        if (code) return code;
    }
    /* Added tokens are read with the pool growing under them. */
    r->texts = xmalloc(r->pool.n + 1);
    memcpy(r->texts, str_text(&r->pool), r->pool.n);
    piece_map_init(&r->text_ids, (int64_t)n);
    for (size_t i = n; i-- > 0;)
        (void)piece_map_put(&r->text_ids, (unsigned char *)r->texts + r->entries[i].at, r->entries[i].n, (int32_t)i);
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
    if (r->scores) return piece_map_get(&r->text_ids, (const unsigned char *)text, n);
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

/* A rule between byte-level tokens; NULL, or which of them is not in the vocabulary. */
static const char *put_bytes(struct reader *r, const char *left, size_t left_n, const char *right, size_t right_n,
                             int32_t rank, struct str *scratch)
{
    const struct piece_map *ids = &r->t->ids;
    str_clear(scratch);
    bool letters = byte_level_read(scratch, left, left_n);
    size_t middle = scratch->n;
    letters = letters && byte_level_read(scratch, right, right_n);
    const unsigned char *bytes = (const unsigned char *)str_text(scratch);
    int32_t l = letters ? piece_map_get(ids, bytes, middle) : -1;
    int32_t g = letters ? piece_map_get(ids, bytes + middle, scratch->n - middle) : -1;
    int32_t product = letters ? piece_map_get(ids, bytes, scratch->n) : -1;
    const char *missing = l < 0 ? "the left part" : g < 0 ? "the right part" : product < 0 ? "the result" : NULL;
    if (!missing) bpe_put(&r->t->bpe, l, g, rank, product);
    return missing;
}

static int read_merge(struct reader *r, const struct json *v, int32_t rank, struct str *scratch)
{
    const char *left, *right;
    size_t left_n, right_n;
    if (!merge_sides(v, &left, &left_n, &right, &right_n))
        return err_set(r->e, ERR_CORRUPT, "%s: model.merges[%d]: wanted \"left right\" or [\"left\", \"right\"]",
                       r->what, rank);
    const char *missing = r->t->kind == TOKENIZER_BPE ? put_bytes(r, left, left_n, right, right_n, rank, scratch)
                                                      : char_bpe_put(&r->t->chars, left, left_n, right, right_n, rank);
    if (!missing) return OK;
    return err_set(r->e, ERR_CORRUPT, "%s: model.merges[%d]: \"%.*s\" + \"%.*s\": %s is not in model.vocab", r->what,
                   rank, (int)(left_n < 60 ? left_n : 60), left, (int)(right_n < 60 ? right_n : 60), right, missing);
}

static int read_merges(struct reader *r)
{
    const struct json *merges = json_get(r->model, "merges");
    if (!json_is(merges, JSON_ARRAY)) return reader_corrupt(r, "model.merges", "wanted a list");
    size_t n = json_size(merges);
    if (n > MERGES_MAX) return reader_corrupt(r, "model.merges", "more than 16777216 of them");
    struct str scratch = {0};
    int code = OK;
    if (r->t->kind == TOKENIZER_BPE) bpe_init(&r->t->bpe, (int64_t)n);
    else char_bpe_start(&r->t->chars, (int64_t)n);
    for (size_t i = 0; i < n && !code; i++) code = read_merge(r, json_at(merges, i), (int32_t)i, &scratch);
    str_free(&scratch);
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
