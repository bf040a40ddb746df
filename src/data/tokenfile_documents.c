/* SPDX-License-Identifier: Apache-2.0 */
/* tokenfile_documents.c: where documents lie in a token file, and where they came from. A file of today says it, so
 * that a document is found by one read of 16 bytes; an older one is read through once for its end-of-text ids, and
 * what was found is kept. Whatever a table says is held against the count of tokens before it is believed: its
 * checksum says that it is what was written, not that it was right.
 */
#include <string.h>

#include "base/mem.h"
#include "data/tokenfile.h"
#include "data/tokenfile_format.h"

enum { PIECE = 1 << 16 };

bool tokenfile_has_ends(const struct tokenfile *f) { return f->version >= 3 || f->ends; }

int tokenfile_find_ends(struct tokenfile *f, const atomic_int *give_up, struct err *e)
{
    if (tokenfile_has_ends(f)) return OK;
    int32_t *ids = xmalloc(PIECE * sizeof *ids);
    int64_t *ends = NULL, n = 0, room = 0;
    int code = OK;
    for (int64_t at = 0, more; at < f->n_tokens && !code; at += more) {
        more = f->n_tokens - at < PIECE ? f->n_tokens - at : PIECE;
        code = tokenfile_read(f, at, more, ids, e);
        if (!code && give_up && atomic_load(give_up))
            code = err_set(e, ERR_SIGNAL, "stopped while documents were looked for in %s", f->path);
        for (int64_t i = 0; i < more && !code; i++) {
            if (ids[i] != f->head.eos && at + i + 1 < f->n_tokens) continue;
            GROW(ends, n, room, 1);
            ends[n++] = at + i + 1;
        }
    }
    xfree(ids);
    if (code) {
        xfree(ends);
        return code;
    }
    f->ends = n ? ends : xcalloc(1, sizeof *ends);
    f->n_documents = n;
    return OK;
}

int tokenfile_ends(const struct tokenfile *f, int64_t first, int64_t n, int64_t *out, struct err *e)
{
    CHECK(tokenfile_has_ends(f), "%s: documents of an older file before tokenfile_find_ends", f->path);
    CHECK(first >= 0 && n >= 0 && first <= f->n_documents && n <= f->n_documents - first,
          "documents [%lld, +%lld) of %lld", (long long)first, (long long)n, (long long)f->n_documents);
    if (f->ends) {
        memcpy(out, f->ends + first, to_size(n) * sizeof *out);
        return OK;
    }
    int code = tokenfile_bytes(f, TABLE_ENDS, 8 * first, 8 * (first + n), out, e);
    for (int64_t i = 0; i < n && !code; i++)
        if (out[i] < 1 || out[i] > f->n_tokens || (i && out[i] <= out[i - 1]))
            code = tokenfile_damaged(f, "a document ends before it begins, or behind the last token", e);
    return code;
}

int tokenfile_document(const struct tokenfile *f, int64_t i, int64_t *begin, int64_t *end, struct err *e)
{
    int64_t both[2] = {0};
    int code = i ? tokenfile_ends(f, i - 1, 2, both, e) : tokenfile_ends(f, 0, 1, both + 1, e);
    *begin = both[0];
    *end = both[1];
    return code;
}

int tokenfile_document_of(const struct tokenfile *f, int64_t token, int64_t *document, struct err *e)
{
    CHECK(token >= 0 && token < f->n_tokens, "token %lld of %lld", (long long)token, (long long)f->n_tokens);
    int64_t lo = 0, hi = f->n_documents; /* the first document whose end is behind the token */
    while (lo < hi) {
        int64_t mid = lo + (hi - lo) / 2, end;
        int code = tokenfile_ends(f, mid, 1, &end, e);
        if (code) return code;
        if (end > token) hi = mid;
        else lo = mid + 1;
    }
    *document = lo;
    return lo < f->n_documents ? OK : tokenfile_damaged(f, "a token belongs to no document", e);
}

static int input_of(const struct tokenfile *f, int64_t i, struct input_bytes *in, struct err *e)
{
    int64_t at = i * (int64_t)sizeof *in, names = f->table[TABLE_NAMES].bytes;
    int code = tokenfile_bytes(f, TABLE_INPUTS, at, at + (int64_t)sizeof *in, in, e);
    if (code) return code;
    bool sound =
        in->first_document >= 0 && in->first_document <= f->n_documents && in->name_at >= 0 && in->name_at < names;
    return sound ? OK : tokenfile_damaged(f, "an input is not where it is said to be", e);
}

/* The name at a byte of the names. */
static int name_at(const struct tokenfile *f, int64_t at, char **name, struct err *e)
{
    enum { LONGEST = 1 << 16 };
    int64_t all = f->table[TABLE_NAMES].bytes, n = all - at < LONGEST ? all - at : LONGEST;
    char *text = xmalloc(to_size(n));
    int code = tokenfile_bytes(f, TABLE_NAMES, at, at + n, text, e);
    if (!code && !memchr(text, 0, to_size(n))) code = tokenfile_damaged(f, "the name of an input has no end", e);
    if (!code) *name = xstrdup(text);
    xfree(text);
    return code;
}

int tokenfile_origin(const struct tokenfile *f, int64_t i, char **input, int64_t *byte, struct err *e)
{
    CHECK(i >= 0 && i < f->n_documents, "document %lld of %lld", (long long)i, (long long)f->n_documents);
    struct input_bytes in;
    int64_t lo = 0, hi = f->n_inputs; /* the first input that begins behind the document */
    int code = OK;
    *input = NULL;
    *byte = -1;
    while (lo < hi && !code) {
        int64_t mid = lo + (hi - lo) / 2;
        code = input_of(f, mid, &in, e);
        if (in.first_document > i) hi = mid;
        else lo = mid + 1;
    }
    if (code || lo == 0) return code;
    code = tokenfile_bytes(f, TABLE_ORIGINS, 8 * i, 8 * i + 8, byte, e);
    bool none = !code && *byte == ORIGIN_NONE;
    if (code || *byte < -1) *byte = -1;
    if (code || none) return code;
    code = input_of(f, lo - 1, &in, e);
    return code ? code : name_at(f, in.name_at, input, e);
}
