/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_json.c: reads a Hugging Face tokenizer.json: its tokens here, the rest in tokenizer_models.c,
 * tokenizer_steps.c and tokenizer_template.c.
 *
 * The file describes a pipeline (added tokens, normalizer, pre_tokenizer, model, post_processor, decoder). What would
 * change ids and is not known is refused by name. Vocabulary and rules are checked against each other, because ids that
 * do not exist would only show up as nonsense later. Cost: Llama 3's nine megabytes take a tenth of a second of a busy
 * core; a third of it is reading JSON, a third finding what merges name in a table that no cache holds.
 */
#include "token/tokenizer_read.h"

#include <string.h>

#include "base/mem.h"
#include "token/byte_level.h"

enum { ID_MAX = 1 << 24 }; /* a vocabulary beyond 16 million is a mistake */

int reader_corrupt(struct reader *r, const char *where, const char *why)
{
    return err_set(r->e, ERR_CORRUPT, "%s: %s: %s", r->what, where, why);
}

int reader_unsupported(struct reader *r, const char *where, const char *what)
{
    return err_set(r->e, ERR_REQUEST, "%s: %s: \"%.80s\" is not supported", r->what, where, what);
}

bool json_is(const struct json *v, enum json_kind kind) { return v && json_kind(v) == kind; }

bool json_is_set(const struct json *v) { return v && json_kind(v) != JSON_NULL; }

const char *json_type(const struct json *v) { return json_string(json_get(v, "type"), NULL, "(no type)"); }

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

int reader_token(struct reader *r, const char *text, size_t n, int64_t id)
{
    if (id < 0 || id >= ID_MAX)
        return err_set(r->e, ERR_CORRUPT, "%s: model.vocab: \"%.60s\": wanted an id from 0 to %d", r->what, text,
                       ID_MAX - 1);
    struct entry *entry = entry_at(r, id);
    if (entry->used)
        return err_set(r->e, ERR_CORRUPT, "%s: model.vocab: id %lld is given to two tokens, one is \"%.60s\"", r->what,
                       (long long)id, text);
    entry->used = entry->model = true;
    entry->at = (uint32_t)r->pool.n;
    char *own = r->pool.p + r->pool.n; /* make_room */
    size_t got = r->t->kind == TOKENIZER_BPE ? byte_level_bytes((unsigned char *)own, text, n) : SIZE_MAX;
    entry->letters = r->t->kind != TOKENIZER_BPE || got != SIZE_MAX;
    if (got == SIZE_MAX) memcpy(own, text, got = n);
    own[got] = 0;
    r->odd = r->odd || !entry->letters;
    r->n_model++;
    entry->n = (uint32_t)got;
    r->pool.n += got + 1;
    return OK;
}

/* Room for all tokens, so that nothing moves while they are read. */
static void make_room(struct reader *r)
{
    const struct json *vocab = json_get(r->model, "vocab"), *added = json_get(r->root, "added_tokens");
    size_t n = (size_t)r->most, bytes = n + 1, text_n;
    for (void *it = json_iter(vocab); it; it = json_iter_next(vocab, it)) {
        (void)json_iter_key_bytes(it, &text_n);
        bytes += text_n;
    }
    for (size_t i = 0; json_is(vocab, JSON_ARRAY) && i < json_size(vocab); i++) {
        (void)json_string(json_at(json_at(vocab, i), 0), &text_n, NULL);
        bytes += text_n;
    }
    for (size_t i = 0; i < json_size(added); i++) {
        (void)json_string(json_get(json_at(added, i), "content"), &text_n, NULL);
        bytes += text_n;
    }
    r->pool = (struct str){.p = xmalloc_large(bytes), .room = bytes};
    r->room = (int64_t)n;
    r->entries = xmalloc_large(n * sizeof *r->entries);
    memset(r->entries, 0, n * sizeof *r->entries);
}

/* What an added token that is looked for in normalised text is there. */
static int normalised(struct reader *r, const char *text, size_t n, struct str *out)
{
    struct normalizer_run *run = normalizer_run_new(r->t->cut.normalizer);
    normalizer_begin(run, false);
    int code = normalizer_feed(run, text, n, true, out, r->e);
    normalizer_run_free(run);
    if (!code && !out->n)
        code = err_set(r->e, ERR_REQUEST, "%s: added_tokens: \"%.60s\": the normalizer leaves nothing of it", r->what,
                       text);
    return code ? err_prefix(r->e, "%s: added_tokens", r->what) : OK;
}

static void put_added(struct reader *r, const struct json *v, const char *text, size_t n, const struct added_token *own,
                      bool is_normalized)
{
    struct added_token token = *own;
    struct tokenizer *t = r->t;
    token.text = (char *)text;
    token.n = n;
    token.single_word = json_bool(json_get(v, "single_word"), false);
    token.strip_before = json_bool(json_get(v, "lstrip"), false);
    token.strip_after = json_bool(json_get(v, "rstrip"), false);
    added_put(&t->cut.added[is_normalized], &token);
}

static int read_added_token(struct reader *r, const struct json *v)
{
    size_t n = 0;
    const char *text = json_string(json_get(v, "content"), &n, NULL);
    int64_t id = json_int(json_get(v, "id"), -1);
    if (!text || n == 0 || id < 0 || id >= ID_MAX)
        return reader_corrupt(r, "added_tokens", "wanted objects with `content` (text) and `id`");
    if (n > UINT16_MAX) return reader_corrupt(r, "added_tokens", "a token of more than 65535 bytes");
    struct entry *entry = entry_at(r, id);
    if (entry->added)
        return err_set(r->e, ERR_CORRUPT, "%s: added_tokens: id %lld is given twice, once to \"%.60s\"", r->what,
                       (long long)id, text);
    /* The reference finds the id in model.vocab by the text, whatever `id` says. */
    int64_t known = reader_find(r, text, n);
    if (known >= 0 ? known != id : entry->used)
        return err_set(r->e, ERR_CORRUPT, "%s: added_tokens: \"%.60s\" has id %lld, %s", r->what, text, (long long)id,
                       known >= 0 ? "in model.vocab it has another" : "which model.vocab gives to another token");
    if (known < 0 && id != r->next_added++)
        return err_set(r->e, ERR_REQUEST,
                       "%s: added_tokens: \"%.60s\" has id %lld, but readers that go by the order of the list give it "
                       "%lld (model.vocab has as many entries); correct the ids, or add the token to model.vocab",
                       r->what, text, (long long)id, (long long)r->next_added - 1);
    bool there = entry->used && entry->n == n && !memcmp(r->pool.p + entry->at, text, n);
    *entry = (struct entry){.at = there ? entry->at : (uint32_t)r->pool.n,
                            .n = (uint32_t)n,
                            .used = true,
                            .letters = entry->letters,
                            .model = entry->model,
                            .added = true,
                            .renamed = entry->used && !there};
    r->odd = r->odd || entry->renamed;
    entry->special = json_bool(json_get(v, "special"), false);
    if (!there) str_add(&r->pool, text, n);
    if (!there) str_putc(&r->pool, 0);
    const struct added_token own = {.id = (int32_t)id, .special = entry->special};
    bool is_normalized = json_bool(json_get(v, "normalized"), !entry->special);
    if (!is_normalized || !r->t->cut.normalizer) {
        put_added(r, v, text, n, &own, is_normalized);
        return OK;
    }
    struct str form = {0};
    int code = normalised(r, text, n, &form);
    if (!code && form.n > UINT16_MAX) code = reader_corrupt(r, "added_tokens", "a token of more than 65535 bytes");
    if (!code) put_added(r, v, form.p, form.n, &own, true);
    if (!code && (form.n != n || memcmp(form.p, text, n))) {
        GROW(r->t->spoken, r->t->n_spoken, r->t->spoken_room, 1);
        r->t->spoken[r->t->n_spoken++] = (struct spoken){.id = (int32_t)id, .text = form};
        return OK;
    }
    str_free(&form);
    return code;
}

static int read_added(struct reader *r)
{
    const struct json *list = json_get(r->root, "added_tokens");
    if (json_is_set(list) && !json_is(list, JSON_ARRAY)) return reader_corrupt(r, "added_tokens", "wanted a list");
    r->next_added = (int64_t)json_size(json_get(r->model, "vocab"));
    for (size_t i = 0; i < json_size(list); i++) {
        int code = read_added_token(r, json_at(list, i));
        if (code) return code;
    }
    const struct added *added = r->t->cut.added;
    const struct added_token *t, *other;
    for (int i = 0; i < 2; i++) added_finish(&r->t->cut.added[i]);
    if ((t = added_twice(&added[0], &added[0], &other)) || (t = added_twice(&added[1], &added[1], &other)) ||
        (!r->t->cut.normalizer && (t = added_twice(&added[0], &added[1], &other))))
        return err_set(r->e, ERR_CORRUPT, "%s: added_tokens: \"%.60s\" is there twice, with ids %d and %d", r->what,
                       t->text, t->id, other->id);
    return OK;
}

/* -- tables of tokens ----------------------------------------------------------------------------------------- */

enum { AHEAD = 16 }; /* tokens whose places in a table are waited for together */

static bool of_model(const struct entry *e) { return e->model; }
static bool nameable(const struct entry *e) { return e->used && e->letters; }
static bool not_nameable(const struct entry *e) { return e->used && !e->letters; }

/* Puts the tokens that are chosen into a table, by their ids upwards or downwards; false: a text was there already. */
static bool put_tokens(const struct reader *r, const char *texts, struct piece_map *m,
                       bool (*chosen)(const struct entry *), bool down)
{
    size_t vocab = (size_t)r->t->vocab;
    uint64_t hash[AHEAD] = {0};
    bool all_new = true;
    for (size_t k = 0; k < vocab + AHEAD; k++) {
        size_t id = down ? vocab - 1 - (k - AHEAD) : k - AHEAD, next = down ? vocab - 1 - k : k;
        const unsigned char *text = (const unsigned char *)texts;
        if (k >= AHEAD && chosen(&r->entries[id]))
            all_new =
                piece_map_put_expected(m, hash[k % AHEAD], text + r->entries[id].at, r->entries[id].n, (int32_t)id) &&
                all_new;
        if (k < vocab && chosen(&r->entries[next]))
            hash[k % AHEAD] = piece_map_expect(m, text + r->entries[next].at, r->entries[next].n);
    }
    return all_new;
}

/* The model's own texts. A list may name one twice: the last counts. */
static void index_model(struct reader *r, const char *texts)
{
    bool bytes = r->t->kind == TOKENIZER_BPE; /* they need no table of their own */
    piece_map_fini(&r->t->model_ids);
    piece_map_init(&r->t->model_ids, bytes ? 0 : r->most);
    if (!bytes) (void)put_tokens(r, texts, &r->t->model_ids, of_model, true);
}

/* All texts: tokens that merges can name come first, they win over look-alikes. */
static int index_all(struct reader *r)
{
    struct tokenizer *t = r->t;
    bool bytes = t->kind == TOKENIZER_BPE, list = t->kind == TOKENIZER_UNIGRAM;
    if (!bytes && t->model_ids.n == r->n_model) {
        piece_map_copy(&t->ids, &t->model_ids);
    } else {
        piece_map_init(&t->ids, r->most);
        if (!put_tokens(r, t->bytes, &t->ids, nameable, false) && !list)
            return reader_corrupt(r, "model.vocab", "two ids stand for the same bytes");
    }
    (void)put_tokens(r, t->bytes, &t->ids, not_nameable, false);
    return OK;
}

/* Whether the texts, by id, lie one behind the other, all of them. */
static bool in_order(const struct reader *r)
{
    size_t at = 0;
    for (size_t id = 0; id < (size_t)r->t->vocab; id++) {
        if (!r->entries[id].used || r->entries[id].at != at) return false;
        at += r->entries[id].n + 1;
    }
    return at == r->pool.n;
}

/* Moves the tokens into the tokenizer, ordered by id, and indexes their bytes. */
static int place_tokens(struct reader *r)
{
    struct tokenizer *t = r->t;
    size_t vocab = (size_t)t->vocab, total = 0;
    bool moved = !in_order(r);
    for (size_t id = 0; id < vocab; id++) total += r->entries[id].n + 1;
    t->bytes = moved ? xcalloc(total, 1) : r->pool.p;
    t->at = xmalloc((vocab + 1) * sizeof *t->at);
    t->special = xcalloc(vocab, sizeof *t->special);
    int64_t at = 0;
    for (size_t id = 0; id < vocab; id++) {
        struct entry *entry = &r->entries[id];
        t->at[id] = at;
        t->special[id] = entry->special;
        if (moved && entry->n) memcpy(t->bytes + at, r->pool.p + entry->at, entry->n);
        entry->at = (uint32_t)at;
        at += (int64_t)entry->n + 1;
    }
    t->at[vocab] = at;
    if (moved) index_model(r, t->bytes);
    else r->pool = (struct str){0};
    return index_all(r);
}

/* -- the document --------------------------------------------------------------------------------------------- */

static int read_document(struct reader *r)
{
    r->model = json_get(r->root, "model");
    if (!json_is(r->model, JSON_OBJECT)) return reader_corrupt(r, "model", "wanted an object");
    r->most = (int64_t)(json_size(json_get(r->model, "vocab")) + json_size(json_get(r->root, "added_tokens")));
    int code = reader_kind(r);
    if (!code) code = reader_normalizer(r);
    if (!code) code = reader_pre_tokenizer(r);
    if (!code) make_room(r);
    if (!code) code = reader_vocab(r);
    if (!code) index_model(r, r->pool.p);
    if (!code) code = read_added(r);
    if (!code) code = place_tokens(r);
    if (!code) code = reader_rules(r);
    if (!code) code = reader_cuts(r);
    if (!code) code = reader_decoder(r);
    if (!code) code = tokenizer_template(r->root, r->t->vocab, r->what, &r->t->begin, &r->t->template_end, r->e);
    return code;
}

int tokenizer_read_json(struct tokenizer *t, const char *what, struct err *e)
{
    struct json *root;
    int code = json_parse_published(&root, t->json, t->json_n, what, e);
    if (code) return code;
    struct reader r = {.t = t, .what = what, .e = e, .root = root};
    t->eos = t->bos = -1;
    code = json_is(root, JSON_OBJECT) ? read_document(&r) : reader_corrupt(&r, "root", "wanted an object");
    str_free(&r.pool);
    xfree(r.entries);
    xfree(r.scores);
    json_free(root);
    return code;
}
