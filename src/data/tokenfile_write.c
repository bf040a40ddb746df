/* SPDX-License-Identifier: Apache-2.0 */
/* tokenfile_write.c: writes token files front to back in constant memory (but for 8 bytes of checksum per 16 KiB).
 *
 * Whatever is only known at the end stands at the end, so no token is written twice. The other tables grow beside the
 * tokens, each in a file of its own that is begun with its first byte, and are copied behind the tokens at the end: for
 * documents of 500 tokens they are 1 % of the file. A mask begins with the first token that is not trained on. States:
 *
 *   create → append, end of document ... → publish   final name, whole
 *                                        → abandon   nothing left
 *   killed anywhere                                  PATH.tmp and PATH.tmp.* are left, and overwritten or removed by
 *                                                    the next attempt
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/str.h"
#include "data/tokenfile.h"
#include "data/tokenfile_format.h"

/* A table that grows beside the tokens. */
struct side {
    char *path;
    struct fs_writer *file; /* NULL: nothing is in it */
    int64_t bytes;
};

struct sums {
    uint64_t *of;
    int64_t n, room;
};

struct tokenfile_writer {
    char *path, *temporary, *lock_path;
    struct fs_lock lock;
    struct fs_writer *file;
    struct head_bytes head;
    int64_t n_tokens, n_documents, n_inputs;
    int64_t document_at; /* where the document that is written began */
    struct side side[TOKENFILE_TABLES];
    int64_t fail_side_at;
    unsigned char *chunk; /* of a table: narrowed tokens, written and summed when full */
    size_t chunk_n;
    struct sums sums[TOKENFILE_TABLES];
    bool masked;      /* there is a table of the mask */
    int64_t n_masked; /* tokens that have a bit; the last of them are in bits, which is written when it is full */
    unsigned char bits[4096];
    char *input;  /* the last that was named; NULL: none */
    int64_t byte; /* of the document that is written */
    int64_t n_origins;
};

static const char *const side_names[TOKENFILE_TABLES] = {[TABLE_MASK] = "mask",
                                                         [TABLE_ENDS] = "ends",
                                                         [TABLE_ORIGINS] = "origins",
                                                         [TABLE_INPUTS] = "inputs",
                                                         [TABLE_NAMES] = "names"};

static char *with_suffix(const char *path, const char *suffix)
{
    struct str s = {0};
    str_printf(&s, "%s%s", path, suffix);
    return s.p;
}

static void remove_files(const struct tokenfile_writer *w)
{
    unlink(w->temporary);
    for (int t = TABLE_TOKENS + 1; t < TOKENFILE_TABLES; t++) unlink(w->side[t].path);
}

static void writer_free(struct tokenfile_writer *w)
{
    for (int t = 0; t < TOKENFILE_TABLES; t++) {
        if (w->side[t].file) fs_writer_close(w->side[t].file, false, NULL);
        xfree(w->side[t].path);
        xfree(w->sums[t].of);
    }
    if (w->lock_path) fs_lock_remove(&w->lock, w->lock_path);
    xfree(w->path);
    xfree(w->temporary);
    xfree(w->lock_path);
    xfree(w->chunk);
    xfree(w->input);
    xfree(w);
}

int tokenfile_create(struct tokenfile_writer **out, bool *busy, const char *path, const struct tokenfile_head *head,
                     struct err *e)
{
    *out = NULL;
    struct tokenfile_writer *w = xcalloc(1, sizeof *w);
    char *lock_path = with_suffix(path, ".lock");
    int code = fs_lock_take(&w->lock, lock_path, e);
    *busy = w->lock.busy;
    if (code) {
        xfree(lock_path);
        xfree(w);
        return code;
    }
    w->lock_path = lock_path;
    w->path = xstrdup(path);
    w->temporary = with_suffix(path, ".tmp");
    w->chunk = xmalloc(TOKENFILE_CHUNK);
    w->byte = ORIGIN_NONE;
    for (int t = TABLE_TOKENS + 1; t < TOKENFILE_TABLES; t++) {
        struct str name = {0};
        str_printf(&name, "%s.%s", w->temporary, side_names[t]);
        w->side[t].path = name.p;
    }
    remove_files(w);
    w->head = (struct head_bytes){
        .version = TOKENFILE_VERSION,
        .width = head->vocab <= 1 << 16 ? 2 : 4,
        .vocab = head->vocab,
        .eos = head->eos,
        .fingerprint = head->fingerprint,
        .key = head->key,
    };
    memcpy(w->head.magic, TOKENFILE_MAGIC, 8);
    w->head.sum = hash64(&w->head, offsetof(struct head_bytes, sum));
    code = fs_writer_open(&w->file, w->temporary, e);
    if (!code) code = fs_writer_write(w->file, &w->head, sizeof w->head, e);
    if (code) {
        tokenfile_abandon(w);
        return code;
    }
    *out = w;
    return OK;
}

/* ---- the tables beside the tokens ---- */
static int side_write(struct tokenfile_writer *w, enum tokenfile_table t, const void *p, size_t n, struct err *e)
{
    struct side *s = &w->side[t];
    if (!s->file) {
        int code = fs_writer_open(&s->file, s->path, e);
        if (code) return code;
        fs_writer_fail_at(s->file, w->fail_side_at);
    }
    s->bytes += (int64_t)n;
    return fs_writer_write(s->file, p, n, e);
}

static int push_bit(struct tokenfile_writer *w, bool trained, struct err *e)
{
    int64_t at = w->n_masked++ % (8 * (int64_t)sizeof w->bits);
    w->bits[at / 8] |= (unsigned char)(trained << (at % 8));
    if (at + 1 < 8 * (int64_t)sizeof w->bits) return OK;
    int code = side_write(w, TABLE_MASK, w->bits, sizeof w->bits, e);
    memset(w->bits, 0, sizeof w->bits);
    return code;
}

/* What is left of the mask, with zeros up to a byte. */
static int flush_bits(struct tokenfile_writer *w, struct err *e)
{
    int64_t left = w->n_masked % (8 * (int64_t)sizeof w->bits);
    return left ? side_write(w, TABLE_MASK, w->bits, to_size((left + 7) / 8), e) : OK;
}

/* Bits of n more tokens; trained NULL: of all of them a loss is taken. */
static int push_mask(struct tokenfile_writer *w, const unsigned char *trained, int64_t n, struct err *e)
{
    int code = OK;
    bool all = !trained || !memchr(trained, 0, to_size(n));
    if (!w->masked && all) return OK;
    if (!w->masked) {
        w->masked = true;
        while (!code && w->n_masked < w->n_tokens) code = push_bit(w, true, e);
    }
    for (int64_t i = 0; i < n && !code; i++) code = push_bit(w, all || trained[i], e);
    return code;
}

static int push_number(struct tokenfile_writer *w, enum tokenfile_table t, int64_t v, struct err *e)
{
    return side_write(w, t, &v, sizeof v, e);
}

int tokenfile_origin_next(struct tokenfile_writer *w, const char *input, int64_t byte, struct err *e)
{
    CHECK(w->n_tokens == w->document_at && byte >= -1, "%s: origin %lld amid a document", w->path, (long long)byte);
    w->byte = byte;
    if (w->input && !strcmp(w->input, input)) return OK;
    xfree(w->input);
    w->input = xstrdup(input);
    struct input_bytes next = {w->n_documents, w->side[TABLE_NAMES].bytes};
    w->n_inputs++;
    int code = side_write(w, TABLE_INPUTS, &next, sizeof next, e);
    return code ? code : side_write(w, TABLE_NAMES, input, strlen(input) + 1, e);
}

/* Origins of the documents up to here, from the first on as soon as there is one. */
static int push_origins(struct tokenfile_writer *w, struct err *e)
{
    int code = OK;
    for (; !code && w->n_inputs && w->n_origins < w->n_documents; w->n_origins++)
        code = push_number(w, TABLE_ORIGINS, ORIGIN_NONE, e);
    return code;
}

static int end_here(struct tokenfile_writer *w, struct err *e)
{
    int code = push_number(w, TABLE_ENDS, w->n_tokens, e);
    if (!code && w->byte != ORIGIN_NONE) {
        code = push_origins(w, e);
        if (!code) code = push_number(w, TABLE_ORIGINS, w->byte, e);
        w->n_origins++;
    }
    w->n_documents++;
    w->document_at = w->n_tokens;
    w->byte = ORIGIN_NONE;
    return code;
}

/* ---- the tokens ---- */
static int flush(struct tokenfile_writer *w, enum tokenfile_table t, struct err *e)
{
    if (w->chunk_n == 0) return OK;
    struct sums *s = &w->sums[t];
    GROW(s->of, s->n, s->room, 1);
    s->of[s->n++] = hash64(w->chunk, w->chunk_n);
    int code = fs_writer_write(w->file, w->chunk, w->chunk_n, e);
    w->chunk_n = 0;
    return code;
}

int tokenfile_append_masked(struct tokenfile_writer *w, const int32_t *ids, const unsigned char *trained, int64_t n,
                            struct err *e)
{
    size_t width = w->head.width;
    int code = push_mask(w, trained, n, e);
    while (n > 0 && !code) {
        int64_t room = (int64_t)((TOKENFILE_CHUNK - w->chunk_n) / width), step = n < room ? n : room;
        if (width == 2) {
            uint16_t *p = (uint16_t *)(void *)(w->chunk + w->chunk_n);
            for (int64_t i = 0; i < step; i++) p[i] = (uint16_t)ids[i];
        } else {
            memcpy(w->chunk + w->chunk_n, ids, to_size(step) * 4);
        }
        w->chunk_n += to_size(step) * width;
        w->n_tokens += step;
        ids += step;
        n -= step;
        if (w->chunk_n == TOKENFILE_CHUNK) code = flush(w, TABLE_TOKENS, e);
    }
    return code;
}

int tokenfile_append(struct tokenfile_writer *w, const int32_t *ids, int64_t n, struct err *e)
{
    return tokenfile_append_masked(w, ids, NULL, n, e);
}

int tokenfile_end_document_masked(struct tokenfile_writer *w, bool trained, struct err *e)
{
    int code = tokenfile_append_masked(w, &w->head.eos, (const unsigned char[]){trained}, 1, e);
    return code ? code : end_here(w, e);
}

int tokenfile_end_document(struct tokenfile_writer *w, struct err *e)
{
    return tokenfile_end_document_masked(w, true, e);
}

/* ---- the end ---- */
static int pad(struct tokenfile_writer *w, int64_t bytes, struct err *e)
{
    static const char zeros[8];
    return fs_writer_write(w->file, zeros, (size_t)(-bytes & 7), e);
}

/* A table from beside the tokens behind them. */
static int copy_side(struct tokenfile_writer *w, enum tokenfile_table t, struct err *e)
{
    struct side *s = &w->side[t];
    struct fs_file from;
    if (!s->file) return OK;
    int code = fs_writer_close(s->file, false, e);
    s->file = NULL;
    if (!code) code = fs_file_open(&from, s->path, e);
    if (code) return code;
    for (int64_t at = 0; at < s->bytes && !code; at += TOKENFILE_CHUNK) {
        w->chunk_n = s->bytes - at < TOKENFILE_CHUNK ? to_size(s->bytes - at) : TOKENFILE_CHUNK;
        code = fs_file_read(&from, at, w->chunk_n, w->chunk, e);
        if (!code) code = flush(w, t, e);
    }
    fs_file_close(&from);
    return code ? code : pad(w, s->bytes, e);
}

static int write_tables(struct tokenfile_writer *w, struct err *e)
{
    int code = w->n_tokens > w->document_at ? end_here(w, e) : OK;
    if (!code) code = push_origins(w, e);
    if (!code) code = flush_bits(w, e);
    if (!code) code = flush(w, TABLE_TOKENS, e);
    if (!code) code = pad(w, w->n_tokens * (int64_t)w->head.width, e);
    for (int t = TABLE_TOKENS + 1; t < TOKENFILE_TABLES && !code; t++) code = copy_side(w, (enum tokenfile_table)t, e);
    return code;
}

static int write_end(struct tokenfile_writer *w, struct err *e)
{
    int code = write_tables(w, e);
    struct tail_bytes tail = {
        .n_tokens = w->n_tokens,
        .n_documents = w->n_documents,
        .n_inputs = w->n_inputs,
        .head_sum = w->head.sum,
    };
    for (int t = 0; t < TOKENFILE_TABLES; t++) {
        const struct sums *s = &w->sums[t];
        tail.bytes[t] = t == TABLE_TOKENS ? w->n_tokens * (int64_t)w->head.width : w->side[t].bytes;
        tail.sums_sum[t] = hash64(s->of, to_size(s->n) * 8);
        if (!code) code = fs_writer_write(w->file, s->of, to_size(s->n) * 8, e);
    }
    tail.sum = hash64(&tail, offsetof(struct tail_bytes, sum));
    memcpy(tail.magic, TOKENFILE_END, 8);
    return code ? code : fs_writer_write(w->file, &tail, sizeof tail, e);
}

int tokenfile_publish(struct tokenfile_writer *w, struct err *e)
{
    int code = write_end(w, e);
    int closed = fs_writer_close(w->file, !code, code ? NULL : e);
    w->file = NULL;
    if (!code) code = closed;
    if (!code) code = fs_rename(w->temporary, w->path, e);
    remove_files(w);
    writer_free(w);
    return code;
}

void tokenfile_abandon(struct tokenfile_writer *w)
{
    if (!w) return;
    if (w->file) fs_writer_close(w->file, false, NULL);
    remove_files(w);
    writer_free(w);
}

int64_t tokenfile_written(const struct tokenfile_writer *w) { return w->n_tokens; }

void tokenfile_fail_at(struct tokenfile_writer *w, int64_t n, bool side)
{
    if (side) w->fail_side_at = n;
    else fs_writer_fail_at(w->file, n);
}
