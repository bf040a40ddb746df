/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer.c: opening, looking things up, saving.
 *
 * The byte tokenizer is not a special case on disk: it is the tokenizer.json of a BPE without merges whose ids are the
 * bytes, made here as text and read by the same reader, so that a checkpoint always carries one kind of file.
 */
#include "token/tokenizer.h"

#include <string.h>

#include "base/fs.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/magic.h"
#include "base/mem.h"
#include "token/tokenizer_impl.h"
#include "token/tokenizer_write.h"

enum { JSON_MAX = 256 << 20 };

static int parse(struct tokenizer **out, char *json, size_t n, const char *what, const char *dir, struct err *e)
{
    struct tokenizer *t = xcalloc(1, sizeof *t);
    t->json = json;
    t->json_n = n;
    int code = tokenizer_read_json(t, what, e);
    if (!code) code = tokenizer_find_ends(t, dir, e);
    if (code) {
        tokenizer_free(t);
        t = NULL;
    }
    *out = t;
    return code;
}

int tokenizer_parse(struct tokenizer **t, const char *json, size_t n, const char *what, struct err *e)
{
    char *own = xmalloc(n + 1); /* not xstrndup: it ends at a NUL, the text does not */
    memcpy(own, json, n);
    own[n] = 0;
    return parse(t, own, n, what, NULL, e);
}

int tokenizer_parse_files(struct tokenizer **t, const char *json, size_t n, const char *config, size_t config_n,
                          int64_t eos, int64_t bos, const char *what, struct err *e)
{
    int code = tokenizer_parse(t, json, n, what, e);
    if (!code) code = tokenizer_take_ends(*t, config, config_n, eos, bos, what, e);
    if (code) {
        tokenizer_free(*t);
        *t = NULL;
    }
    return code;
}

/* The directory part of a path: "." when there is none. */
static char *directory_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash) return xstrdup(".");
    return slash == path ? xstrdup("/") : xstrndup(path, (size_t)(slash - path));
}

int tokenizer_open(struct tokenizer **t, const char *what, struct err *e)
{
    *t = NULL;
    if (!strcmp(what, "byte")) {
        *t = tokenizer_new_byte();
        return OK;
    }
    char *path = fs_is_dir(what) ? fs_join(what, "tokenizer.json") : xstrdup(what);
    char *dir = directory_of(path), *json = NULL;
    size_t n = 0;
    int code = fs_read_all(path, JSON_MAX, &json, &n, e);
    const struct magic *m = code ? NULL : magic_of(json, n);
    if (m) {
        code = err_set(e, ERR_REQUEST, "%s: is %s; a tokenizer.json was wanted%s", path, m->name,
                       m->remedy ? m->remedy : "");
        xfree(json);
    }
    if (!code) code = parse(t, json, n, path, dir, e);
    else if (!m) err_prefix(e, "tokenizer (wanted \"byte\" or a tokenizer.json)");
    xfree(path);
    xfree(dir);
    return code;
}

struct tokenizer *tokenizer_new_byte(void)
{
    unsigned char bytes[256];
    struct token_text pieces[256];
    for (int i = 0; i < 256; i++) {
        bytes[i] = (unsigned char)i;
        pieces[i] = (struct token_text){.p = &bytes[i], .n = 1};
    }
    struct str text = {0};
    tokenizer_write(&text, &(struct tokenizer_draft){.pieces = pieces, .n_pieces = 256, .eos = "<|endoftext|>"});

    struct err e;
    struct tokenizer *t;
    int code = tokenizer_parse(&t, str_text(&text), text.n, "byte tokenizer", &e);
    CHECK(!code && t->kind == TOKENIZER_BYTE, "the byte tokenizer's own file: %s", e.text);
    str_free(&text);
    return t;
}

void tokenizer_free(struct tokenizer *t)
{
    if (!t) return;
    xfree(t->json);
    xfree(t->bytes);
    xfree(t->at);
    xfree(t->special);
    tokens_free(&t->begin);
    piece_map_fini(&t->ids);
    piece_map_fini(&t->model_ids);
    bpe_fini(&t->bpe);
    for (int i = 0; i < 2; i++) added_fini(&t->cut.added[i]);
    split_free(t->cut.split);
    normalizer_free(t->cut.normalizer);
    char_bpe_fini(&t->chars);
    unigram_free(t->unigram);
    str_free(&t->words.prefix);
    detok_free(t->detokenizer);
    for (int i = 0; i < t->n_spoken; i++) str_free(&t->spoken[i].text);
    xfree(t->spoken);
    xfree(t);
}

int tokenizer_save(const struct tokenizer *t, const char *dir, struct err *e)
{
    int code = fs_mkdirs(dir, e);
    if (code) return code;
    char *path = fs_join(dir, "tokenizer.json");
    code = fs_write_atomic(path, t->json, t->json_n, e);
    xfree(path);
    if (code) return code;

    struct str text = {0};
    struct json_out o = {.s = &text, .pretty = true};
    json_begin_object(&o, NULL);
    json_put_string(&o, "tokenizer_class", "PreTrainedTokenizerFast");
    if (t->eos >= 0) json_put_string(&o, "eos_token", tokenizer_piece(t, t->eos, NULL));
    if (t->bos >= 0) json_put_string(&o, "bos_token", tokenizer_piece(t, t->bos, NULL));
    json_end_object(&o);
    str_putc(&text, '\n');
    path = fs_join(dir, "tokenizer_config.json");
    code = fs_write_atomic(path, str_text(&text), text.n, e);
    xfree(path);
    str_free(&text);
    return code;
}

enum tokenizer_kind tokenizer_kind(const struct tokenizer *t) { return t->kind; }

int32_t tokenizer_vocab(const struct tokenizer *t) { return t->vocab; }

int32_t tokenizer_eos(const struct tokenizer *t) { return t->eos; }

int32_t tokenizer_bos(const struct tokenizer *t) { return t->bos; }

const struct tokens *tokenizer_begin(const struct tokenizer *t) { return &t->begin; }

int32_t tokenizer_start(const struct tokenizer *t, int64_t vocab)
{
    int32_t start = t->bos >= 0 ? t->bos : t->eos;
    return start < vocab ? start : -1;
}

int tokenizer_encode_text(const struct tokenizer *t, const char *text, size_t n, struct tokens *out, struct err *e)
{
    for (int64_t i = 0; i < t->begin.n; i++) tokens_push(out, t->begin.ids[i]);
    return tokenizer_encode(t, text, n, out, e);
}

uint64_t tokenizer_fingerprint(const struct tokenizer *t) { return hash64(t->json, t->json_n); }

uint64_t tokenizer_key(const struct tokenizer *t)
{
    uint64_t parts[] = {tokenizer_fingerprint(t), hash64(t->begin.ids, to_size(t->begin.n) * sizeof *t->begin.ids)};
    return t->begin.n ? hash64(parts, sizeof parts) : parts[0];
}

const char *tokenizer_piece(const struct tokenizer *t, int32_t id, size_t *n)
{
    bool known = id >= 0 && id < t->vocab;
    if (n) *n = known ? (size_t)(t->at[id + 1] - t->at[id] - 1) : 0;
    return known ? t->bytes + t->at[id] : "";
}

bool tokenizer_is_special(const struct tokenizer *t, int32_t id) { return id >= 0 && id < t->vocab && t->special[id]; }

int32_t tokenizer_find(const struct tokenizer *t, const char *piece, size_t n)
{
    return piece_map_get(&t->ids, (const unsigned char *)piece, n);
}
