/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_steps.c: the steps of a tokenizer.json around its model: normalizer, pre_tokenizer, decoder (its
 * post_processor: tokenizer_template.c). A table per list says which types there are and who reads them; a type that is
 * not in it is refused by name.
 */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "text/unicode_legacy.h"
#include "text/unicode_table.h"
#include "text/utf8.h"
#include "token/token_bounds.h"
#include "token/charsmap.h"
#include "token/matcher.h"
#include "token/tokenizer_read.h"

typedef int read_step_fn(struct reader *r, const struct json *v);
struct step_type {
    const char *name;
    read_step_fn *read;
};

/* Reads a step by its row, or the steps of a Sequence, whose members are in `members`. */
static int read_step(struct reader *r, const struct json *v, const char *where, const char *members,
                     const struct step_type *types, size_t n, int depth)
{
    const char *type = json_type(v);
    if (!strcmp(type, "Sequence") && depth < 8) {
        const struct json *list = json_get(v, members);
        if (!json_is(list, JSON_ARRAY)) return reader_corrupt(r, where, "wanted a list of steps");
        for (size_t i = 0; i < json_size(list); i++) {
            int code = read_step(r, json_at(list, i), where, members, types, n, depth + 1);
            if (code) return code;
        }
        return OK;
    }
    for (size_t i = 0; i < n; i++)
        if (!strcmp(type, types[i].name)) return types[i].read(r, v);
    return reader_unsupported(r, where, type);
}

/* A text that is there and not empty. */
static int need_text(struct reader *r, const struct json *v, const char *key, const char *where, struct str *out)
{
    size_t n = 0;
    const char *text = json_string(json_get(v, key), &n, NULL);
    if (!text || !n)
        return err_set(r->e, ERR_CORRUPT, "%s: %s: %s: wanted a text that is not empty", r->what, where, key);
    str_add(out, text, n);
    return OK;
}

/* A text of one character. */
static int need_char(struct reader *r, const struct json *v, const char *key, const char *where, struct str *out)
{
    int code = need_text(r, v, key, where, out), len = 0;
    if (code) return code;
    (void)utf8_code((const unsigned char *)out->p, &len);
    if ((size_t)len == out->n) return OK;
    return err_set(r->e, ERR_CORRUPT, "%s: %s: %s: wanted one character, got \"%.40s\"", r->what, where, key, out->p);
}

/* {"Regex": text} or {"String": text}. */
static int read_pattern(struct reader *r, const struct json *v, const char *where, struct str *literal,
                        struct str *regex)
{
    const struct json *pattern = json_get(v, "pattern");
    if (json_is_set(json_get(pattern, "Regex"))) return need_text(r, pattern, "Regex", where, regex);
    if (json_is_set(json_get(pattern, "String"))) {
        int code = need_text(r, pattern, "String", where, literal);
        return code || literal->n <= NEEDLE_MAX ? code : reader_corrupt(r, where, "a pattern of more than 4096 bytes");
    }
    return reader_corrupt(r, where, "pattern: wanted {\"Regex\": text} or {\"String\": text}");
}

/* -- normalizer ---------------------------------------------------------------------------------------------- */

static int add_norm(struct reader *r, struct norm_step step)
{
    normalizer_add(r->t->cut.normalizer, step);
    if (r->t->cut.normalizer->n <= CHAIN_MAX) return OK;
    return err_set(r->e, ERR_REQUEST, "%s: normalizer: more than %d steps", r->what, CHAIN_MAX);
}

static int norm_nfc(struct reader *r, const struct json *v)
{
    static const char *const names[] = {"NFC", "NFD", "NFKC", "NFKD"};
    struct norm_step step = {.kind = NORM_FORM};
    for (int i = 0; i < 4; i++)
        if (!strcmp(json_type(v), names[i])) step.form = (enum normal_form)i;
    return add_norm(r, step);
}

static int norm_plain(struct reader *r, const struct json *v)
{
    static const struct {
        const char *name;
        enum norm_kind kind;
    } kinds[] = {{"Lowercase", NORM_LOWER},
                 {"StripAccents", NORM_STRIP_ACCENTS},
                 {"Nmt", NORM_NMT},
                 {"ByteLevel", NORM_BYTE_LEVEL}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(json_type(v), kinds[i].name)) return add_norm(r, (struct norm_step){.kind = kinds[i].kind});
    return reader_unsupported(r, "normalizer", json_type(v));
}

static int norm_bert(struct reader *r, const struct json *v)
{
    bool lowercase = json_bool(json_get(v, "lowercase"), true);
    bool strips = json_bool(json_get(v, "strip_accents"), lowercase);
    int code = OK;
    if (json_bool(json_get(v, "clean_text"), true)) code = add_norm(r, (struct norm_step){.kind = NORM_BERT_CLEAN});
    if (!code && json_bool(json_get(v, "handle_chinese_chars"), true))
        code = add_norm(r, (struct norm_step){.kind = NORM_BERT_CHINESE});
    if (!code && strips) code = add_norm(r, (struct norm_step){.kind = NORM_FORM, .form = NORMAL_NFD});
    if (!code && strips) code = add_norm(r, (struct norm_step){.kind = NORM_BERT_MARKS});
    if (!code && lowercase) code = add_norm(r, (struct norm_step){.kind = NORM_LOWER});
    return code;
}

static int norm_strip(struct reader *r, const struct json *v)
{
    return add_norm(r, (struct norm_step){.kind = NORM_STRIP,
                                          .left = json_bool(json_get(v, "strip_left"), true),
                                          .right = json_bool(json_get(v, "strip_right"), true)});
}

static int norm_prepend(struct reader *r, const struct json *v)
{
    struct norm_step step = {.kind = NORM_PREPEND};
    int code = need_text(r, v, "prepend", "normalizer.Prepend", &step.content);
    return code ? code : add_norm(r, step);
}

static void text_or_nothing(const struct json *v, const char *key, struct str *out)
{
    size_t n = 0;
    const char *text = json_string(json_get(v, key), &n, NULL);
    if (text) str_add(out, text, n);
}

static int norm_replace(struct reader *r, const struct json *v)
{
    struct norm_step step = {.kind = NORM_REPLACE};
    struct str regex = {0};
    int code = read_pattern(r, v, "normalizer.Replace", &step.text, &regex);
    if (!code && regex.n) {
        step.kind = NORM_REPLACE_PATTERN;
        code = matcher_new(&step.pattern, regex.p, regex.n, false, r->what, r->e);
    }
    str_free(&regex);
    text_or_nothing(v, "content", &step.content);
    if (!code) return add_norm(r, step);
    norm_step_free(&step);
    return code;
}

static int norm_precompiled(struct reader *r, const struct json *v)
{
    struct norm_step step = {.kind = NORM_CHARSMAP};
    size_t n = 0;
    const char *text = json_string(json_get(v, "precompiled_charsmap"), &n, NULL);
    if (!text) return reader_corrupt(r, "normalizer.Precompiled", "wanted precompiled_charsmap, a text in base64");
    int code = charsmap_new(&step.charsmap, text, n, r->what, r->e);
    return code ? code : add_norm(r, step);
}

int reader_normalizer(struct reader *r)
{
    static const struct step_type types[] = {{"NFC", norm_nfc},
                                             {"NFD", norm_nfc},
                                             {"NFKC", norm_nfc},
                                             {"NFKD", norm_nfc},
                                             {"Lowercase", norm_plain},
                                             {"StripAccents", norm_plain},
                                             {"Nmt", norm_plain},
                                             {"ByteLevel", norm_plain},
                                             {"BertNormalizer", norm_bert},
                                             {"Strip", norm_strip},
                                             {"Prepend", norm_prepend},
                                             {"Replace", norm_replace},
                                             {"Precompiled", norm_precompiled}};
    const struct json *v = json_get(r->root, "normalizer");
    struct normalizer **z = &r->t->cut.normalizer;
    if (!json_is_set(v)) return OK;
    *z = xcalloc(1, sizeof **z);
    int code = read_step(r, v, "normalizer", "normalizers", types, sizeof types / sizeof *types, 0);
    if (code || (*z)->n) return code;
    normalizer_free(*z);
    *z = NULL;
    return OK;
}

/* -- pre_tokenizer ------------------------------------------------------------------------------------------- */

/* The beginning of a text gets a space when ByteLevel is the first step, each piece when it is not. */
static int pre_byte_level(struct reader *r, const struct json *v)
{
    struct split *s = r->t->cut.split;
    int code = OK;
    if (json_bool(json_get(v, "add_prefix_space"), true)) {
        if (split_n_stages(s)) code = split_add_prefix(s, r->what, r->e);
        else r->t->cut.prefix_space = true;
    }
    if (!code && json_bool(json_get(v, "use_regex"), true))
        code = split_add(s, SPLIT_GPT2, strlen(SPLIT_GPT2), r->what, r->e);
    if (!code && r->t->kind != TOKENIZER_BPE) code = split_add_alphabet(s, r->what, r->e);
    return code;
}

static int read_behavior(struct reader *r, const struct json *v, const char *otherwise, enum split_behavior *b)
{
    static const char *const names[] = {"Isolated", "Removed", "Contiguous", "MergedWithPrevious", "MergedWithNext"};
    const char *name = json_string(json_get(v, "behavior"), NULL, otherwise);
    for (int i = 0; i < 5; i++)
        if (!strcmp(name, names[i])) {
            *b = (enum split_behavior)i;
            return OK;
        }
    return reader_unsupported(r, "pre_tokenizer.behavior", name);
}

/* The normalizer's last step replaced this text, so that there is none of it: Gemma's file splits so. */
static bool is_replaced(const struct reader *r, const struct str *literal)
{
    const struct normalizer *z = r->t->cut.normalizer;
    const struct norm_step *last = z ? &z->steps[z->n - 1] : NULL;
    int len;
    if (!last || last->kind != NORM_REPLACE || last->text.n != literal->n || r->t->cut.prefix_space) return false;
    if (split_n_stages(r->t->cut.split) || memcmp(last->text.p, literal->p, literal->n)) return false;
    (void)utf8_code((const unsigned char *)literal->p, &len);
    return (size_t)len == literal->n && !memmem(str_text(&last->content), last->content.n, literal->p, literal->n);
}

static int pre_split(struct reader *r, const struct json *v)
{
    struct str literal = {0}, regex = {0};
    enum split_behavior b = SPLIT_ISOLATED;
    int code = read_behavior(r, v, "(none)", &b);
    if (!code) code = read_pattern(r, v, "pre_tokenizer.Split", &literal, &regex);
    bool inverted = json_bool(json_get(v, "invert"), false);
    bool idle = !code && literal.n && b != SPLIT_REMOVED && is_replaced(r, &literal);
    for (size_t i = 0; i < literal.n; i++) {
        if ((unsigned char)literal.p[i] < 0x80 && literal.p[i] != 0)
            str_printf(&regex, "\\x%02x", (unsigned)literal.p[i]);
        else str_putc(&regex, literal.p[i]);
    }
    if (!code && !idle) code = split_add_pattern(r->t->cut.split, regex.p, regex.n, b, inverted, r->what, r->e);
    str_free(&literal);
    str_free(&regex);
    return code;
}

static int add_set(struct reader *r, struct ranges *set, enum split_behavior b)
{
    int code = split_add_set(r->t->cut.split, set, b, r->what, r->e);
    ranges_free(set);
    return code;
}

/* Digits are what Rust calls numeric, whose tables are newer than Oniguruma's. */
static int pre_digits(struct reader *r, const struct json *v)
{
    struct ranges numeric = {0};
    unicode_with(&numeric, UNI_RUST_NUMERIC);
    return add_set(r, &numeric, json_bool(json_get(v, "individual_digits"), false) ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS);
}

static int pre_whitespace_split(struct reader *r, const struct json *v)
{
    struct ranges space = {0};
    (void)v;
    unicode_white_space(&space);
    return add_set(r, &space, SPLIT_REMOVED);
}

/* \w+|[^\w\s]+ */
static int pre_whitespace(struct reader *r, const struct json *v)
{
    struct ranges word = {0};
    int code = pre_whitespace_split(r, v);
    if (code) return code;
    unicode_with(&word, UNI_RUST_WORD);
    return add_set(r, &word, SPLIT_CONTIGUOUS);
}

static int punctuation(struct reader *r, enum split_behavior b)
{
    const struct unicode_set *from = &unicode_legacy[LEGACY_PUNCTUATION];
    struct ranges set = {0};
    for (int i = 0; i < from->n; i++) ranges_add(&set, from->r[i].lo, from->r[i].hi);
    return add_set(r, &set, b);
}

static int pre_punctuation(struct reader *r, const struct json *v)
{
    enum split_behavior b = SPLIT_ISOLATED;
    int code = read_behavior(r, v, "Isolated", &b);
    return code ? code : punctuation(r, b);
}

static int pre_bert(struct reader *r, const struct json *v)
{
    int code = pre_whitespace_split(r, v);
    return code ? code : punctuation(r, SPLIT_ISOLATED);
}

static int pre_delimiter(struct reader *r, const struct json *v)
{
    struct str text = {0};
    struct ranges set = {0};
    int len, code = need_char(r, v, "delimiter", "pre_tokenizer.CharDelimiterSplit", &text);
    if (!code) {
        uint32_t c = utf8_code((const unsigned char *)text.p, &len);
        ranges_add(&set, c, c);
        code = add_set(r, &set, SPLIT_REMOVED);
    }
    str_free(&text);
    return code;
}

static int pre_fixed_length(struct reader *r, const struct json *v)
{
    int64_t chars = json_int(json_get(v, "length"), 5);
    if (chars >= 1 && chars <= SPLIT_FIXED_MAX) return split_add_fixed(r->t->cut.split, chars, r->what, r->e);
    char text[64];
    snprintf(text, sizeof text, "%lld characters; wanted 1 to %d", (long long)chars, SPLIT_FIXED_MAX);
    return reader_corrupt(r, "pre_tokenizer.FixedLength.length", text);
}

static int pre_scripts(struct reader *r, const struct json *v)
{
    (void)v;
    return split_add_scripts(r->t->cut.split, r->what, r->e);
}

/* The scheme of a Metaspace step or decoder. */
static int read_scheme(struct reader *r, const struct json *v, enum split_prepend *scheme)
{
    static const char *const names[] = {"never", "first", "always"};
    const char *name = json_string(json_get(v, "prepend_scheme"), NULL, "always");
    const struct json *old = json_get(v, "add_prefix_space");
    for (int i = 0; i < 3; i++) {
        if (strcmp(name, names[i])) continue;
        *scheme = (enum split_prepend)i;
        if (!json_bool(old, true) && *scheme != PREPEND_NEVER)
            return reader_corrupt(r, "Metaspace", "add_prefix_space false, and a prepend_scheme that is not \"never\"");
        return OK;
    }
    return reader_unsupported(r, "Metaspace.prepend_scheme", name);
}

static int pre_metaspace(struct reader *r, const struct json *v)
{
    struct str symbol = {0};
    enum split_prepend scheme = PREPEND_ALWAYS;
    int len, code = need_char(r, v, "replacement", "pre_tokenizer.Metaspace", &symbol);
    if (!code) code = read_scheme(r, v, &scheme);
    if (!code)
        code = split_add_metaspace(r->t->cut.split, utf8_code((const unsigned char *)symbol.p, &len), scheme,
                                   json_bool(json_get(v, "split"), true), r->what, r->e);
    str_free(&symbol);
    return code;
}

int reader_pre_tokenizer(struct reader *r)
{
    static const struct step_type types[] = {{"ByteLevel", pre_byte_level},
                                             {"Split", pre_split},
                                             {"Digits", pre_digits},
                                             {"Metaspace", pre_metaspace},
                                             {"Whitespace", pre_whitespace},
                                             {"WhitespaceSplit", pre_whitespace_split},
                                             {"BertPreTokenizer", pre_bert},
                                             {"Punctuation", pre_punctuation},
                                             {"FixedLength", pre_fixed_length},
                                             {"UnicodeScripts", pre_scripts},
                                             {"CharDelimiterSplit", pre_delimiter}};
    const struct json *v = json_get(r->root, "pre_tokenizer");
    r->t->cut.split = split_new();
    if (!json_is_set(v)) return OK;
    return read_step(r, v, "pre_tokenizer", "pretokenizers", types, sizeof types / sizeof *types, 0);
}

int reader_cuts(struct reader *r)
{
    if (!r->t->chars.joins) return OK;
    return split_add_joins(r->t->cut.split, r->t->chars.joins, r->what, r->e);
}

/* -- decoder ------------------------------------------------------------------------------------------------- */

static int add_detok(struct reader *r, struct detok_step step, int code)
{
    int added = detok_add(r->t->detokenizer, step, r->what, code ? &(struct err){0} : r->e);
    return code ? code : added;
}

static int de_plain(struct reader *r, const struct json *v)
{
    static const struct {
        const char *name;
        enum detok_kind kind;
    } kinds[] = {{"ByteFallback", DETOK_BYTES}, {"Fuse", DETOK_FUSE}, {"ByteLevel", DETOK_BYTE_LEVEL}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(json_type(v), kinds[i].name)) return add_detok(r, (struct detok_step){.kind = kinds[i].kind}, OK);
    return reader_unsupported(r, "decoder", json_type(v));
}

static int de_replace(struct reader *r, const struct json *v)
{
    struct detok_step step = {.kind = DETOK_REPLACE};
    struct str regex = {0};
    int code = read_pattern(r, v, "decoder.Replace", &step.text, &regex);
    if (!code && regex.n) {
        step.kind = DETOK_REPLACE_PATTERN;
        code = matcher_new(&step.pattern, regex.p, regex.n, false, r->what, r->e);
    }
    str_free(&regex);
    text_or_nothing(v, "content", &step.content);
    return add_detok(r, step, code);
}

static int de_strip(struct reader *r, const struct json *v)
{
    struct detok_step step = {.kind = DETOK_STRIP,
                              .start = json_int(json_get(v, "start"), 0),
                              .stop = json_int(json_get(v, "stop"), 0)};
    int code = need_char(r, v, "content", "decoder.Strip", &step.text);
    if (!code && (step.start < 0 || step.stop < 0 || step.start > 1024 || step.stop > 1024))
        code = reader_corrupt(r, "decoder.Strip", "wanted start and stop from 0 to 1024");
    return add_detok(r, step, code);
}

static int de_metaspace(struct reader *r, const struct json *v)
{
    struct detok_step step = {.kind = DETOK_METASPACE};
    enum split_prepend scheme = PREPEND_ALWAYS;
    int code = need_char(r, v, "replacement", "decoder.Metaspace", &step.text);
    if (!code) code = read_scheme(r, v, &scheme);
    step.drops_first = scheme != PREPEND_NEVER;
    return add_detok(r, step, code);
}

static int de_word_piece(struct reader *r, const struct json *v)
{
    struct detok_step step = {.kind = DETOK_WORD_PIECE, .cleans = json_bool(json_get(v, "cleanup"), true)};
    if (json_is_set(json_get(v, "prefix"))) text_or_nothing(v, "prefix", &step.text);
    else str_puts(&step.text, "##");
    return add_detok(r, step, OK);
}

static int de_suffix(struct reader *r, const struct json *v)
{
    struct detok_step step = {.kind = DETOK_SUFFIX};
    int code = OK;
    if (json_is_set(json_get(v, "suffix"))) code = need_text(r, v, "suffix", "decoder.BPEDecoder", &step.text);
    else str_puts(&step.text, "</w>");
    return add_detok(r, step, code);
}

static int de_ctc(struct reader *r, const struct json *v)
{
    struct detok_step step = {.kind = DETOK_CTC, .cleans = json_bool(json_get(v, "cleanup"), true)};
    int code = need_text(r, v, "pad_token", "decoder.CTC", &step.text);
    if (!code) code = need_text(r, v, "word_delimiter_token", "decoder.CTC", &step.content);
    return add_detok(r, step, code);
}

int reader_decoder(struct reader *r)
{
    static const struct step_type types[] =
        {{"ByteLevel", de_plain},      {"ByteFallback", de_plain}, {"Fuse", de_plain},
         {"Replace", de_replace},      {"Strip", de_strip},        {"Metaspace", de_metaspace},
         {"WordPiece", de_word_piece}, {"BPEDecoder", de_suffix},  {"CTC", de_ctc}};
    const struct json *v = json_get(r->root, "decoder");
    /* Byte-level tokens are their bytes already, and a file without a decoder means these all the same. */
    bool bytes = r->t->kind == TOKENIZER_BPE || r->t->kind == TOKENIZER_BYTE;
    if (bytes && (!json_is_set(v) || !strcmp(json_type(v), "ByteLevel"))) return OK;
    if (bytes) return reader_unsupported(r, "decoder of a byte-level vocabulary", json_type(v));
    r->t->detokenizer = xcalloc(1, sizeof *r->t->detokenizer);
    if (!json_is_set(v)) return add_detok(r, (struct detok_step){.kind = DETOK_SPACES}, OK);
    return read_step(r, v, "decoder", "decoders", types, sizeof types / sizeof *types, 0);
}
