/* SPDX-License-Identifier: Apache-2.0 */
/* megatron.c: reads them. The three tables of .idx are walked together, a few KiB of each at a time, so that memory
 * does not grow with the data; every entry is compared with what the ones before it make of it. */
#include "data/megatron.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "data/megatron_format.h"

enum { PIECE = 32 << 10, KEY_VERSION = 1 };

const struct megatron_type megatron_types[MEGATRON_CODES] = {
    {NULL, 0, 0, -1},           {"uint8", 1, 0, UINT8_MAX}, {"int8", 1, 0, INT8_MAX},
    {"int16", 2, 0, INT16_MAX}, {"int32", 4, 0, INT32_MAX}, {"int64", 8, 0, INT64_MAX},
    {"float64", 8, 0, -1},      {"float32", 4, 0, -1},      {"uint16", 2, 0, UINT16_MAX},
};

static char *with_ending(const char *prefix, const char *ending)
{
    struct str s = {0};
    str_printf(&s, "%s%s", prefix, ending);
    return s.p;
}

static bool both_there(const char *prefix)
{
    char *bin = with_ending(prefix, ".bin"), *idx = with_ending(prefix, ".idx");
    bool there = !fs_absent(bin) && !fs_is_dir(bin) && !fs_absent(idx) && !fs_is_dir(idx);
    xfree(bin);
    xfree(idx);
    return there;
}

char *megatron_find(const char *path)
{
    bool named = str_ends(path, ".bin") || str_ends(path, ".idx");
    char *prefix = named ? xstrndup(path, strlen(path) - 4) : xstrdup(path);
    if ((named || fs_absent(path)) && both_there(prefix)) return prefix;
    xfree(prefix);
    return NULL;
}

const char *megatron_type(const struct megatron *m) { return megatron_types[m->type].name; }

static int read_head(struct megatron *m, struct err *e)
{
    unsigned char head[MEGATRON_HEAD];
    uint64_t version, sequences, entries;
    const char *path = m->idx.path;
    if (m->idx.bytes < MEGATRON_HEAD)
        return err_set(e, ERR_CORRUPT, "%s: %lld bytes are too few for an index of Megatron; it was cut short", path,
                       (long long)m->idx.bytes);
    int code = fs_file_read(&m->idx, 0, sizeof head, head, e);
    if (code) return code;
    memcpy(&version, head + 9, 8);
    memcpy(&sequences, head + 18, 8);
    memcpy(&entries, head + 26, 8);
    if (memcmp(head, MEGATRON_MAGIC, 9))
        return err_set(e, ERR_CORRUPT, "%s: is no index of Megatron's token files: it does not begin with MMIDIDX",
                       path);
    if (version != MEGATRON_VERSION)
        return err_set(e, ERR_REQUEST, "%s: byte 9: an index of version %llu; version %d is read", path,
                       (unsigned long long)version, MEGATRON_VERSION);
    m->type = head[17];
    if (m->type >= MEGATRON_CODES || !megatron_types[m->type].name)
        return err_set(e, ERR_CORRUPT, "%s: byte 17: a type of tokens with code %d, which is none", path, m->type);
    if (megatron_types[m->type].hi < 0)
        return err_set(e, ERR_REQUEST, "%s: byte 17: holds %s, no token ids", path, megatron_types[m->type].name);
    m->width = megatron_types[m->type].width;
    int64_t rest = m->idx.bytes - MEGATRON_HEAD;
    if (sequences > (uint64_t)rest / 12 || entries > (uint64_t)rest / 8 || entries < 1 ||
        (rest - (int64_t)sequences * 12 != (int64_t)entries * 8 &&
         rest - (int64_t)sequences * 13 != (int64_t)entries * 8))
        return err_set(e, ERR_CORRUPT,
                       "%s: byte 18: says %llu sequences and %llu entries of documents, which are not its %lld bytes; "
                       "it was cut short or overwritten",
                       path, (unsigned long long)sequences, (unsigned long long)entries, (long long)m->idx.bytes);
    m->n_sequences = (int64_t)sequences;
    m->n_documents = (int64_t)entries - 1;
    if (m->bin.bytes % m->width)
        return err_set(e, ERR_CORRUPT, "%s: %lld bytes are no whole number of %s tokens, which %s says it holds",
                       m->bin.path, (long long)m->bin.bytes, megatron_type(m), path);
    m->n_tokens = m->bin.bytes / m->width;
    return OK;
}

int megatron_open(struct megatron *m, const char *prefix, struct err *e)
{
    *m = (struct megatron){.bin.fd = -1, .idx.fd = -1};
    char *bin = with_ending(prefix, ".bin"), *idx = with_ending(prefix, ".idx");
    int code = fs_file_open(&m->idx, idx, e);
    if (!code) code = fs_file_open(&m->bin, bin, e);
    if (!code) code = read_head(m, e);
    xfree(bin);
    xfree(idx);
    if (code) megatron_close(m);
    return code;
}

void megatron_close(struct megatron *m)
{
    fs_file_close(&m->bin);
    fs_file_close(&m->idx);
}

/* -- the tables --------------------------------------------------------------------------------------------- */

struct table { /* numbers of .idx one after the other */
    const struct fs_file *file;
    int64_t begin, n; /* where it lies; entries */
    int width;
    int64_t at, have; /* the next entry; entries up to which are in buf */
    unsigned char buf[PIECE];
};

static void table_init(struct table *t, const struct fs_file *f, int64_t begin, int64_t n, int width)
{
    t->file = f;
    t->begin = begin;
    t->n = n;
    t->width = width;
    t->at = t->have = 0;
}

static int table_next(struct table *t, int64_t *v, struct err *e)
{
    CHECK(t->at < t->n, "entry %lld of %lld", (long long)t->at, (long long)t->n);
    int64_t in_piece = PIECE / t->width;
    if (t->at == t->have) {
        int64_t n = t->n - t->at < in_piece ? t->n - t->at : in_piece;
        int code = fs_file_read(t->file, t->begin + t->at * t->width, to_size(n * t->width), t->buf, e);
        if (code) return code;
        t->have = t->at + n;
    }
    const unsigned char *p = t->buf + (t->at++ % in_piece) * t->width;
    int32_t four;
    if (t->width == 8) memcpy(v, p, 8);
    else if (t->width == 4) memcpy(&four, p, 4), *v = four;
    else *v = (int8_t)*p;
    return OK;
}

/* Where the entry lies that table_next gave last. */
static long long place(const struct table *t) { return (long long)(t->begin + (t->at - 1) * t->width); }

struct import {
    const struct megatron *m;
    const struct tokenizer *t;
    struct tokenfile_writer *w;
    const atomic_int *give_up;
    struct megatron_result *r;
    struct table sizes, offsets, documents, modes;
    bool has_modes;
    int64_t sequence, at; /* the next one, and where it has to begin in .bin */
    int64_t in_document;  /* tokens of it so far, the last of which is held back: it may be an end of text */
    int32_t held;
    unsigned char *raw;
    int32_t *ids;
};

static int64_t widened(const unsigned char *p, int type, int64_t i)
{
    uint16_t u16;
    int16_t i16;
    int32_t i32;
    int64_t i64;
    switch (type) {
    case 1: return p[i];
    case 2: return (int8_t)p[i];
    case 3: memcpy(&i16, p + 2 * i, 2); return i16;
    case 4: memcpy(&i32, p + 4 * i, 4); return i32;
    case 5: memcpy(&i64, p + 8 * i, 8); return i64;
    default: memcpy(&u16, p + 2 * i, 2); return u16;
    }
}

/* n tokens at offset `at` of .bin, behind those of the document so far. */
static int import_tokens(struct import *x, int64_t at, int64_t n, struct err *e)
{
    const struct megatron *m = x->m;
    int64_t room = PIECE / m->width, kept = 0;
    for (int64_t done = 0; done < n; done += room) {
        int64_t part = n - done < room ? n - done : room;
        int code = fs_file_read(&m->bin, at + done * m->width, to_size(part * m->width), x->raw, e);
        if (code) return code;
        kept = 0;
        for (int64_t i = 0; i < part; i++) {
            int64_t id = widened(x->raw, m->type, i);
            if (id < 0 || id >= tokenizer_vocab(x->t))
                return err_set(e, ERR_REQUEST,
                               "%s: byte %lld: id %lld, the tokenizer has %d; name the tokenizer these tokens were "
                               "made "
                               "with",
                               m->bin.path, (long long)(at + (done + i) * m->width), (long long)id,
                               tokenizer_vocab(x->t));
            if (x->in_document++) x->ids[kept++] = x->held;
            x->held = (int32_t)id;
        }
        code = tokenfile_append(x->w, x->ids, kept, e);
        if (code) return code;
        if (x->give_up && atomic_load(x->give_up))
            return err_set(e, ERR_SIGNAL, "stopped while token files of Megatron were read");
    }
    return OK;
}

static int import_sequence(struct import *x, struct err *e)
{
    const struct megatron *m = x->m;
    int64_t size, offset, mode = 0;
    int code = table_next(&x->sizes, &size, e);
    if (!code) code = table_next(&x->offsets, &offset, e);
    if (!code && x->has_modes) code = table_next(&x->modes, &mode, e);
    if (code) return code;
    if (size < 0 || size > (m->bin.bytes - x->at) / m->width)
        return err_set(e, ERR_CORRUPT,
                       "%s: byte %lld: sequence %lld of %lld tokens ends behind %s, which has %lld bytes; they are not "
                       "of one another",
                       m->idx.path, place(&x->sizes), (long long)x->sequence, (long long)size, m->bin.path,
                       (long long)m->bin.bytes);
    if (offset != x->at)
        return err_set(e, ERR_CORRUPT, "%s: byte %lld: sequence %lld begins at byte %lld, those before it end at %lld",
                       m->idx.path, place(&x->offsets), (long long)x->sequence, (long long)offset, (long long)x->at);
    if (mode)
        return err_set(e, ERR_REQUEST,
                       "%s: byte %lld: sequence %lld is of mode %lld, no text; a token file holds text alone (pictures "
                       "are "
                       "read from tar shards: docs/media.md)",
                       m->idx.path, place(&x->modes), (long long)x->sequence, (long long)mode);
    x->sequence++;
    x->at += size * m->width;
    return import_tokens(x, offset, size, e);
}

static int end_document(struct import *x, struct err *e)
{
    int code = OK;
    if (!x->in_document) {
        x->r->empty++;
        return OK;
    }
    if (x->held == tokenizer_eos(x->t)) x->r->ended++;
    else code = tokenfile_append(x->w, &x->held, 1, e);
    x->in_document = 0;
    x->r->documents++;
    return code ? code : tokenfile_end_document(x->w, e);
}

static int import_documents(struct import *x, struct err *e)
{
    const struct megatron *m = x->m;
    int64_t before = 0, end;
    for (int64_t d = 0; d <= m->n_documents; d++) {
        int code = table_next(&x->documents, &end, e);
        if (code) return code;
        if (end < before || end > m->n_sequences || (d == 0 && end))
            return err_set(e, ERR_CORRUPT, "%s: byte %lld: document %lld begins at sequence %lld of %lld, behind %lld",
                           m->idx.path, place(&x->documents), (long long)d, (long long)end, (long long)m->n_sequences,
                           (long long)before);
        for (; before < end && !code; before++) code = import_sequence(x, e);
        if (!code && d > 0) code = end_document(x, e);
        if (code) return code;
    }
    if (before != m->n_sequences)
        return err_set(e, ERR_CORRUPT, "%s: byte %lld: its documents end at sequence %lld of %lld", m->idx.path,
                       place(&x->documents), (long long)before, (long long)m->n_sequences);
    if (x->at != m->bin.bytes)
        return err_set(e, ERR_CORRUPT,
                       "%s: has %lld bytes, the sequences of %s end at byte %lld; they are not of one "
                       "another",
                       m->bin.path, (long long)m->bin.bytes, m->idx.path, (long long)x->at);
    return OK;
}

static int import_all(const struct megatron *m, const struct tokenizer *t, struct tokenfile_writer *w,
                      const atomic_int *give_up, struct megatron_result *r, struct err *e)
{
    struct import *x = xcalloc(1, sizeof *x);
    int64_t s = m->n_sequences, at = MEGATRON_HEAD;
    x->m = m;
    x->t = t;
    x->w = w;
    x->give_up = give_up;
    x->r = r;
    x->raw = xmalloc(PIECE);
    x->ids = xmalloc(PIECE * sizeof *x->ids);
    table_init(&x->sizes, &m->idx, at, s, 4);
    table_init(&x->offsets, &m->idx, at + 4 * s, s, 8);
    table_init(&x->documents, &m->idx, at + 12 * s, m->n_documents + 1, 8);
    at += 12 * s + 8 * (m->n_documents + 1);
    x->has_modes = s && at < m->idx.bytes;
    table_init(&x->modes, &m->idx, at, s, 1);
    int code = import_documents(x, e);
    xfree(x->raw);
    xfree(x->ids);
    xfree(x);
    return code;
}

/* -- the token file ----------------------------------------------------------------------------------------- */

static uint64_t key_of(const struct megatron *m, const struct tokenizer *t)
{
    struct hash64 h;
    hash64_init(&h);
    const struct fs_file *files[] = {&m->bin, &m->idx};
    uint64_t about[] = {KEY_VERSION, tokenizer_fingerprint(t), (uint64_t)tokenizer_eos(t)};
    hash64_add(&h, about, sizeof about);
    for (int i = 0; i < 2; i++) {
        char *real = realpath(files[i]->path, NULL);
        const char *name = real ? real : files[i]->path;
        uint64_t changed = files[i]->identity[2]; /* when it was opened */
        hash64_add(&h, name, strlen(name) + 1);
        hash64_add(&h, &files[i]->bytes, sizeof files[i]->bytes);
        hash64_add(&h, &changed, sizeof changed);
        free(real);
    }
    return hash64_value(&h);
}

static int import_to(const struct megatron *m, const struct tokenizer *t, const char *path, const atomic_int *give_up,
                     bool *busy, struct megatron_result *r, struct err *e)
{
    *r = (struct megatron_result){0};
    *busy = false;
    if (tokenizer_eos(t) < 0)
        return err_set(e, ERR_REQUEST, "the tokenizer names no end-of-text token to separate documents with");
    struct tokenfile_head head = {
        .vocab = tokenizer_vocab(t),
        .eos = tokenizer_eos(t),
        .fingerprint = tokenizer_fingerprint(t),
        .key = key_of(m, t),
    };
    struct tokenfile_writer *w;
    int code = tokenfile_create(&w, busy, path, &head, e);
    if (code) return code;
    code = import_all(m, t, w, give_up, r, e);
    r->tokens = tokenfile_written(w);
    if (!code && !r->documents) code = err_set(e, ERR_REQUEST, "%s: holds no tokens", m->bin.path);
    if (code) {
        tokenfile_abandon(w);
        return code;
    }
    return tokenfile_publish(w, e);
}

int megatron_import(const struct tokenizer *t, const char *prefix, const char *path, const atomic_int *give_up,
                    struct megatron_result *r, struct err *e)
{
    struct megatron m;
    bool busy;
    int code = megatron_open(&m, prefix, e);
    if (code) return code;
    code = import_to(&m, t, path, give_up, &busy, r, e);
    megatron_close(&m);
    return code;
}

static int make_cached(const struct megatron *m, const struct tokenizer *t, const char *path, const atomic_int *give_up,
                       struct err *e)
{
    for (bool said = false;; said = true) {
        struct megatron_result r;
        bool busy;
        int code = tokenfile_is_cached(path, key_of(m, t), e);
        if (code) return code < 0 ? code : OK;
        code = import_to(m, t, path, give_up, &busy, &r, e);
        if (!code)
            log_info("data: %s: %lld documents, %lld tokens; %lld of the documents had an end of text, the others got "
                     "one; %lld without a token were left out",
                     m->bin.path, (long long)r.documents, (long long)r.tokens, (long long)r.ended, (long long)r.empty);
        if (!busy) return code;
        if (!said) log_info("data: waiting for another process to read %s; it holds %s.lock", m->bin.path, path);
        clock_sleep_s(0.2);
        if (give_up && atomic_load(give_up)) /* also where who held it gave up */
            return err_set(e, ERR_SIGNAL, "stopped while token files of Megatron were read");
    }
}

int megatron_cached(const struct tokenizer *t, const char *prefix, const char *cache_dir, const atomic_int *give_up,
                    char **path, struct err *e)
{
    struct megatron m;
    *path = NULL;
    int code = megatron_open(&m, prefix, e);
    if (code) return code;
    code = fs_mkdirs(cache_dir, e);
    if (!code) {
        char name[40];
        snprintf(name, sizeof name, "%016" PRIx64 ".tok", key_of(&m, t));
        *path = fs_join(cache_dir, name);
        code = make_cached(&m, t, *path, give_up, e);
    }
    megatron_close(&m);
    if (code) {
        xfree(*path);
        *path = NULL;
    }
    return code;
}
