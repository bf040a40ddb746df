/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_json.c: reads a Hugging Face tokenizer.json.
 *
 * The file describes a pipeline (added tokens, normalizer, pre_tokenizer, model, post_processor, decoder). What
 * byte-level BPE needs is read; what would change ids and is not known here is refused by name. Vocabulary and
 * merges are checked against each other, because ids that do not exist would only show up as nonsense later.
 * Cost: about a second per 100 MB of JSON; Llama-3's nine megabytes take a quarter of one.
 */
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "data/byte_level.h"
#include "data/tokenizer_impl.h"
#include "data/unicode.h"
#include "data/unicode_table.h"

enum { ID_MAX = 1 << 24 }; /* a vocabulary beyond 16 million is a mistake */

/* One token while the file is read: its bytes are pool[at .. at + n). */
struct entry {
    size_t at, n;
    bool used, letters; /* letters: all characters are of the byte alphabet, so merges can name it */
    bool special, added;
};

struct reader {
    struct tokenizer *t;
    const char *what;
    struct err *e;
    const struct json *root, *model;
    struct str pool;
    struct entry *entries; /* by id */
    int64_t room;
    int64_t next_added; /* the id that the reference gives the next added token that model.vocab does not have */
};

static int corrupt(struct reader *r, const char *where, const char *why)
{
    return err_set(r->e, ERR_CORRUPT, "%s: %s: %s", r->what, where, why);
}

static int unsupported(struct reader *r, const char *where, const char *what)
{
    return err_set(r->e, ERR_REQUEST,
                   "%s: %s: \"%.80s\" is not supported; byte-level BPE (GPT-2, Llama 3) tokenizers are", r->what, where,
                   what);
}

static bool is(const struct json *v, enum json_kind kind) { return v && json_kind(v) == kind; }

static bool is_set(const struct json *v) { return v && json_kind(v) != JSON_NULL; }

static const char *type_of(const struct json *v) { return json_string(json_get(v, "type"), NULL, "(no type)"); }

/* -- tokens ------------------------------------------------------------------------------------------------- */

static struct entry *entry_at(struct reader *r, int64_t id)
{
    if (id >= r->room) {
        int64_t had = r->room;
        GROW(r->entries, had, r->room, id + 1 - had);
        memset(r->entries + had, 0, to_size(r->room - had) * sizeof *r->entries);
    }
    if (id >= r->t->vocab) r->t->vocab = (int32_t)id + 1;
    return &r->entries[id];
}

static int read_token(struct reader *r, const char *text, size_t n, int64_t id)
{
    if (id < 0 || id >= ID_MAX)
        return err_set(r->e, ERR_CORRUPT, "%s: model.vocab: \"%.60s\": wanted an id from 0 to %d", r->what, text,
                       ID_MAX - 1);
    struct entry *entry = entry_at(r, id);
    if (entry->used)
        return err_set(r->e, ERR_CORRUPT, "%s: model.vocab: id %lld is given to two tokens, one is \"%.60s\"", r->what,
                       (long long)id, text);
    entry->used = true;
    entry->at = r->pool.n;
    entry->letters = byte_level_read(&r->pool, text, n);
    if (!entry->letters) str_add(&r->pool, text, n);
    entry->n = r->pool.n - entry->at;
    str_putc(&r->pool, 0);
    return OK;
}

static int read_vocab(struct reader *r)
{
    const struct json *vocab = json_get(r->model, "vocab");
    if (!is(vocab, JSON_OBJECT)) return corrupt(r, "model.vocab", "wanted an object of token: id");
    struct str key = {0};
    int code = OK;
    for (void *it = json_iter(vocab); it && !code; it = json_iter_next(vocab, it)) {
        json_iter_key_text(it, &key);
        code = read_token(r, str_text(&key), key.n, json_int(json_iter_value(it), -1));
    }
    str_free(&key);
    if (code) return code;
    return r->t->vocab ? OK : corrupt(r, "model.vocab", "is empty");
}

static int read_added_token(struct reader *r, const struct json *v)
{
    size_t n = 0;
    const char *text = json_string(json_get(v, "content"), &n, NULL);
    int64_t id = json_int(json_get(v, "id"), -1);
    if (!text || n == 0 || id < 0 || id >= ID_MAX)
        return corrupt(r, "added_tokens", "wanted objects with `content` (text) and `id`");
    if (n > UINT16_MAX) return corrupt(r, "added_tokens", "a token of more than 65535 bytes");
    struct entry *entry = entry_at(r, id);
    if (entry->added)
        return err_set(r->e, ERR_CORRUPT, "%s: added_tokens: id %lld is given twice, once to \"%.60s\"", r->what,
                       (long long)id, text);
    /* The reference finds the id in model.vocab by the text, whatever `id` says. */
    const struct json *known = memchr(text, 0, n) ? NULL : json_get(json_get(r->model, "vocab"), text);
    if (known ? json_int(known, -1) != id : entry->used)
        return err_set(r->e, ERR_CORRUPT, "%s: added_tokens: \"%.60s\" has id %lld, %s", r->what, text, (long long)id,
                       known ? "in model.vocab it has another" : "which model.vocab gives to another token");
    if (!known && id != r->next_added++)
        return err_set(r->e, ERR_REQUEST,
                       "%s: added_tokens: \"%.60s\" has id %lld, but readers that go by the order of the list give it "
                       "%lld (model.vocab has as many entries); correct the ids, or add the token to model.vocab",
                       r->what, text, (long long)id, (long long)r->next_added - 1);
    *entry = (struct entry){.at = r->pool.n, .n = n, .used = true, .letters = entry->letters, .added = true};
    entry->special = json_bool(json_get(v, "special"), false);
    str_add(&r->pool, text, n);
    str_putc(&r->pool, 0);
    bool normalized = json_bool(json_get(v, "normalized"), !entry->special);
    added_put(&r->t->cut.added[normalized],
              &(struct added_token){.text = r->pool.p + entry->at,
                                    .n = n,
                                    .id = (int32_t)id,
                                    .special = entry->special,
                                    .single_word = json_bool(json_get(v, "single_word"), false),
                                    .strip_before = json_bool(json_get(v, "lstrip"), false),
                                    .strip_after = json_bool(json_get(v, "rstrip"), false)});
    return OK;
}

static int read_added(struct reader *r)
{
    const struct json *list = json_get(r->root, "added_tokens");
    if (is_set(list) && !is(list, JSON_ARRAY)) return corrupt(r, "added_tokens", "wanted a list");
    r->next_added = (int64_t)json_size(json_get(r->model, "vocab"));
    for (size_t i = 0; i < json_size(list); i++) {
        int code = read_added_token(r, json_at(list, i));
        if (code) return code;
    }
    const struct added *added = r->t->cut.added;
    const struct added_token *t, *other;
    for (int i = 0; i < 2; i++) added_finish(&r->t->cut.added[i]);
    if ((t = added_twice(&added[0], &added[0], &other)) || (t = added_twice(&added[1], &added[1], &other)) ||
        (t = added_twice(&added[0], &added[1], &other)))
        return err_set(r->e, ERR_CORRUPT, "%s: added_tokens: \"%.60s\" is there twice, with ids %d and %d", r->what,
                       t->text, t->id, other->id);
    return OK;
}

/* Moves the tokens into the tokenizer, ordered by id, and indexes their bytes. */
static int place_tokens(struct reader *r)
{
    struct tokenizer *t = r->t;
    size_t vocab = (size_t)t->vocab, total = 0;
    for (size_t id = 0; id < vocab; id++) total += r->entries[id].n + 1;
    t->bytes = xcalloc(total, 1);
    t->at = xmalloc((vocab + 1) * sizeof *t->at);
    t->special = xcalloc(vocab, sizeof *t->special);
    int64_t at = 0;
    for (size_t id = 0; id < vocab; id++) {
        const struct entry *entry = &r->entries[id];
        t->at[id] = at;
        t->special[id] = entry->special;
        if (entry->n) memcpy(t->bytes + at, r->pool.p + entry->at, entry->n);
        at += (int64_t)entry->n + 1;
    }
    t->at[vocab] = at;
    piece_map_init(&t->ids, t->vocab);
    for (int pass = 0; pass < 2; pass++) /* tokens that merges can name come first: they win over look-alikes */
        for (size_t id = 0; id < vocab; id++) {
            const struct entry *entry = &r->entries[id];
            if (!entry->used || entry->letters != (pass == 0)) continue;
            bool fresh = piece_map_put(&t->ids, (unsigned char *)t->bytes + t->at[id], entry->n, (int32_t)id);
            if (!fresh && pass == 0) return corrupt(r, "model.vocab", "two ids stand for the same bytes");
        }
    return OK;
}

/* -- model -------------------------------------------------------------------------------------------------- */

/* A merge is "left right" or ["left", "right"]. */
static bool merge_sides(const struct json *v, const char **left, size_t *left_n, const char **right, size_t *right_n)
{
    if (is(v, JSON_ARRAY)) {
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

static int read_merge(struct reader *r, const struct json *v, int32_t rank, struct str *scratch)
{
    const char *left, *right;
    size_t left_n, right_n;
    if (!merge_sides(v, &left, &left_n, &right, &right_n))
        return err_set(r->e, ERR_CORRUPT, "%s: model.merges[%d]: wanted \"left right\" or [\"left\", \"right\"]",
                       r->what, rank);
    str_clear(scratch);
    bool known = byte_level_read(scratch, left, left_n);
    size_t cut = scratch->n;
    known = known && byte_level_read(scratch, right, right_n);
    const unsigned char *p = (const unsigned char *)str_text(scratch);
    int32_t a = known ? piece_map_get(&r->t->ids, p, cut) : -1;
    int32_t b = known ? piece_map_get(&r->t->ids, p + cut, scratch->n - cut) : -1;
    int32_t product = known ? piece_map_get(&r->t->ids, p, scratch->n) : -1;
    const char *missing = a < 0 ? "the left part" : b < 0 ? "the right part" : product < 0 ? "the result" : NULL;
    if (missing)
        return err_set(r->e, ERR_CORRUPT, "%s: model.merges[%d]: \"%.*s\" + \"%.*s\": %s is not in model.vocab",
                       r->what, rank, (int)(left_n < 60 ? left_n : 60), left, (int)(right_n < 60 ? right_n : 60), right,
                       missing);
    bpe_put(&r->t->bpe, a, b, rank, product);
    return OK;
}

static int read_merges(struct reader *r)
{
    const struct json *merges = json_get(r->model, "merges");
    if (!is(merges, JSON_ARRAY)) return corrupt(r, "model.merges", "wanted a list");
    size_t n = json_size(merges);
    if (n > ID_MAX) return corrupt(r, "model.merges", "more than 16777216 of them");
    bpe_init(&r->t->bpe, (int64_t)n);
    struct str scratch = {0};
    int code = OK;
    for (size_t i = 0; i < n && !code; i++) code = read_merge(r, json_at(merges, i), (int32_t)i, &scratch);
    str_free(&scratch);
    return code;
}

static int read_bytes(struct reader *r)
{
    bool identity = true;
    for (int i = 0; i < 256; i++) {
        unsigned char byte = (unsigned char)i;
        int32_t id = piece_map_get(&r->t->ids, &byte, 1);
        if (id < 0)
            return err_set(r->e, ERR_REQUEST,
                           "%s: model.vocab has no token for byte 0x%02X; only byte-level vocabularies, which have all "
                           "256, are supported",
                           r->what, (unsigned)i);
        r->t->bpe.byte_id[i] = id;
        identity = identity && id == i;
    }
    bool no_merges = json_size(json_get(r->model, "merges")) == 0;
    r->t->kind = identity && no_merges && r->t->vocab <= 257 ? TOKENIZER_BYTE : TOKENIZER_BPE;
    return OK;
}

static int check_model(struct reader *r)
{
    r->model = json_get(r->root, "model");
    if (!is(r->model, JSON_OBJECT)) return corrupt(r, "model", "wanted an object");
    const struct json *type = json_get(r->model, "type");
    if (is_set(type) && strcmp(json_string(type, NULL, ""), "BPE"))
        return unsupported(r, "model.type", type_of(r->model));
    if (json_real(json_get(r->model, "dropout"), 0) != 0) return unsupported(r, "model", "dropout");
    if (json_bool(json_get(r->model, "byte_fallback"), false)) return unsupported(r, "model", "byte_fallback");
    const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (int i = 0; i < 2; i++)
        if (*json_string(json_get(r->model, affixes[i]), NULL, "")) return unsupported(r, "model", affixes[i]);
    return OK;
}

/* -- pipeline ----------------------------------------------------------------------------------------------- */

static int read_byte_level(struct reader *r, const struct json *v)
{
    struct cut_rules *cut = &r->t->cut;
    if (json_bool(json_get(v, "add_prefix_space"), true)) {
        if (split_n_stages(cut->split)) return unsupported(r, "pre_tokenizer", "add_prefix_space after a split");
        cut->prefix_space = true;
    }
    if (!json_bool(json_get(v, "use_regex"), true)) return OK;
    return split_add(cut->split, SPLIT_GPT2, strlen(SPLIT_GPT2), r->what, r->e);
}

static int read_split(struct reader *r, const struct json *v)
{
    const char *behavior = json_string(json_get(v, "behavior"), NULL, "(none)");
    if (strcmp(behavior, "Isolated")) return unsupported(r, "pre_tokenizer.Split.behavior", behavior);
    if (json_bool(json_get(v, "invert"), false)) return unsupported(r, "pre_tokenizer.Split", "invert: true");
    const struct json *pattern = json_get(v, "pattern");
    size_t n = 0;
    const char *regex = json_string(json_get(pattern, "Regex"), &n, NULL);
    if (regex) return split_add(r->t->cut.split, regex, n, r->what, r->e);
    const char *literal = json_string(json_get(pattern, "String"), &n, NULL);
    if (!literal) return corrupt(r, "pre_tokenizer.Split.pattern", "wanted {\"Regex\": text} or {\"String\": text}");
    struct str quoted = {0};
    for (size_t i = 0; i < n; i++) {
        if ((unsigned char)literal[i] < 0x80 && literal[i] != 0) str_printf(&quoted, "\\x%02x", (unsigned)literal[i]);
        else str_putc(&quoted, literal[i]);
    }
    int code = split_add(r->t->cut.split, str_text(&quoted), quoted.n, r->what, r->e);
    str_free(&quoted);
    return code;
}

/* Digits are what Rust calls numeric, whose tables are newer than Oniguruma's. */
static int read_digits(struct reader *r, const struct json *v)
{
    struct ranges numeric = {0};
    struct str pattern = {0};
    unicode_with(&numeric, UNI_RUST_NUMERIC);
    str_putc(&pattern, '[');
    for (int i = 0; i < numeric.n; i++) str_printf(&pattern, "\\x{%x}-\\x{%x}", numeric.r[i].lo, numeric.r[i].hi);
    str_puts(&pattern, json_bool(json_get(v, "individual_digits"), false) ? "]" : "]+");
    int code = split_add(r->t->cut.split, pattern.p, pattern.n, r->what, r->e);
    str_free(&pattern);
    ranges_free(&numeric);
    return code;
}

/* ByteLevel is where text turns into the byte alphabet, so it has to be there, and last. */
static int read_pre_tokenizer_item(struct reader *r, const struct json *v, bool last)
{
    const char *type = type_of(v);
    bool byte_level = !strcmp(type, "ByteLevel");
    if (byte_level != last)
        return err_set(r->e, ERR_REQUEST,
                       "%s: pre_tokenizer: %s; only tokenizers whose last step, and no other, is ByteLevel are "
                       "supported",
                       r->what, type);
    if (byte_level) return read_byte_level(r, v);
    if (!strcmp(type, "Split")) return read_split(r, v);
    if (!strcmp(type, "Digits")) return read_digits(r, v);
    return unsupported(r, "pre_tokenizer", type);
}

static int read_pre_tokenizer(struct reader *r)
{
    const struct json *v = json_get(r->root, "pre_tokenizer");
    r->t->cut.split = split_new();
    if (!is_set(v)) return unsupported(r, "pre_tokenizer", "null");
    if (strcmp(type_of(v), "Sequence")) return read_pre_tokenizer_item(r, v, true);
    const struct json *list = json_get(v, "pretokenizers");
    size_t n = json_size(list);
    if (!is(list, JSON_ARRAY) || n == 0) return corrupt(r, "pre_tokenizer.pretokenizers", "wanted a list of steps");
    for (size_t i = 0; i < n; i++) {
        int code = read_pre_tokenizer_item(r, json_at(list, i), i + 1 == n);
        if (code) return code;
    }
    return OK;
}

static int check_normalizer(struct reader *r)
{
    const struct json *v = json_get(r->root, "normalizer");
    if (!is_set(v)) return OK;
    if (!strcmp(type_of(v), "Sequence") && json_size(json_get(v, "normalizers")) == 0) return OK;
    return unsupported(r, "normalizer", type_of(v));
}

/* The special token that a template puts before a text is the begin-of-text token. */
static int32_t find_template_start(const struct tokenizer *t, const struct json *v)
{
    const struct json *list = json_get(v, "processors");
    for (size_t i = 0; i < json_size(list); i++) {
        int32_t id = find_template_start(t, json_at(list, i));
        if (id >= 0) return id;
    }
    const struct json *first = json_get(json_at(json_get(v, "single"), 0), "SpecialToken");
    size_t n = 0;
    const char *text = json_string(json_get(first, "id"), &n, NULL);
    return text ? tokenizer_find(t, text, n) : -1;
}

static int read_document(struct reader *r)
{
    int code = check_model(r);
    if (!code) code = check_normalizer(r);
    if (!code) code = read_pre_tokenizer(r);
    if (!code) code = read_vocab(r);
    if (!code) code = read_added(r);
    if (!code) code = place_tokens(r);
    if (!code) code = read_merges(r);
    if (!code) code = read_bytes(r);
    if (code) return code;
    if (json_bool(json_get(r->model, "ignore_merges"), false)) r->t->bpe.whole = &r->t->ids;
    r->t->bos = find_template_start(r->t, json_get(r->root, "post_processor"));
    return OK;
}

int tokenizer_read_json(struct tokenizer *t, const char *what, struct err *e)
{
    struct json *root;
    int code = json_parse_published(&root, t->json, t->json_n, what, e);
    if (code) return code;
    struct reader r = {.t = t, .what = what, .e = e, .root = root};
    t->eos = t->bos = -1;
    code = is(root, JSON_OBJECT) ? read_document(&r) : corrupt(&r, "root", "wanted an object");
    str_free(&r.pool);
    xfree(r.entries);
    json_free(root);
    return code;
}
