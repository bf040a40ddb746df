/* SPDX-License-Identifier: Apache-2.0 */
/* Lengths are differences of ends, which are read one after the other: checking costs two small reads a record, no
 * tokens. Rejected: one file with both texts and a mark between (who reads tokens would search it, and a cache of
 * plain texts could not be shared with other uses of the same column). */
#include "data/sides.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

/* "record 17 (byte 2041)", of a folder with the file's name */
static void say_record(const struct tokenfile *f, int64_t i, const char *path, char *out, size_t n)
{
    struct err none = {0};
    char *input = NULL;
    int64_t byte = -1;
    (void)tokenfile_origin(f, i, &input, &byte, &none);
    if (byte >= 0 && input && strcmp(input, path))
        snprintf(out, n, "record %lld (%.200s, byte %lld)", (long long)i + 1, input, (long long)byte);
    else if (byte >= 0) snprintf(out, n, "record %lld (byte %lld)", (long long)i + 1, (long long)byte);
    else snprintf(out, n, "record %lld", (long long)i + 1);
    xfree(input);
}

static int same_record(const struct tokenfile *read, const struct tokenfile *written, int64_t i, const char *path,
                       struct err *e)
{
    char *input[2] = {NULL, NULL}, name[300];
    int64_t byte[2];
    int code = tokenfile_origin(read, i, &input[0], &byte[0], e);
    if (!code) code = tokenfile_origin(written, i, &input[1], &byte[1], e);
    bool same = !code && byte[0] == byte[1] && !input[0] == !input[1] && (!input[0] || !strcmp(input[0], input[1]));
    xfree(input[0]);
    xfree(input[1]);
    if (code || same) return code;
    say_record(byte[0] <= byte[1] ? read : written, i, path, name, sizeof name);
    return err_set(e, ERR_REQUEST,
                   "%s: %s has one of its two texts only, or an empty one; give it both, or leave it out", path, name);
}

static int too_long(const struct tokenfile *f, int64_t i, const char *path, const char *what, int64_t n, int64_t places,
                    const char *remedy, struct err *e)
{
    char name[300];
    say_record(f, i, path, name, sizeof name);
    return err_set(e, ERR_REQUEST,
                   "%s: %s: what is %s has %lld tokens with its end, and there is room for %lld; choose %s, or "
                   "data.cut_pairs: true, or leave the record out",
                   path, name, what, (long long)n, (long long)places, remedy);
}

int sides_check(const struct tokenfile *read, const struct tokenfile *written, const struct sides_rule *rule,
                int64_t seq, const char *path, int64_t filled[2], struct err *e)
{
    int64_t n = read->n_documents < written->n_documents ? read->n_documents : written->n_documents;
    int64_t begin[2] = {0, 0}, end[2], places[2] = {rule->encoder, seq - rule->encoder};
    int code = OK;
    filled[0] = filled[1] = 0;
    for (int64_t i = 0; i < n && !code; i++) {
        code = same_record(read, written, i, path, e);
        for (int side = 0; side < 2 && !code; side++) {
            const struct tokenfile *f = side ? written : read;
            code = tokenfile_ends(f, i, 1, &end[side], e);
            if (code) break;
            int64_t length = end[side] - begin[side];
            begin[side] = end[side];
            if (length > places[side] && !rule->cut)
                code = too_long(f, i, path, side ? "written" : "read", length, places[side],
                                side ? "a longer model.seq_len" : "a larger model.encoder_len", e);
            filled[side] += length < places[side] ? length : places[side];
        }
    }
    if (!code && read->n_documents != written->n_documents)
        code = err_set(e, ERR_REQUEST,
                       "%s: %lld texts to be read and %lld to be written: every record wants both, and neither empty",
                       path, (long long)read->n_documents, (long long)written->n_documents);
    if (!code && !n) code = err_set(e, ERR_REQUEST, "%s: holds no record", path);
    return code;
}

/* Document i into `places` places, its end of text behind what is there of it. Returns how many, or an error's code. */
static int64_t take(const struct tokenfile *f, int64_t i, int64_t places, int32_t *ids, struct err *e)
{
    int64_t begin, end;
    int code = tokenfile_document(f, i, &begin, &end, e);
    int64_t n = code ? 0 : end - begin < places ? end - begin : places;
    if (!code) code = tokenfile_read(f, begin, n, ids, e);
    if (!code && n < end - begin) code = tokenfile_read(f, end - 1, 1, ids + n - 1, e);
    return code ? code : n;
}

int64_t sides_fill(const struct tokenfile *read, const struct tokenfile *written, const struct sides_rule *rule,
                   int64_t i, int64_t seq, int32_t *ids, int32_t *targets, int32_t *positions, struct err *e)
{
    int64_t E = rule->encoder, n = take(read, i, E, ids, e), m;
    if (n < 0) return n;
    m = take(written, i, seq - E, targets + E, e);
    if (m < 0) return m;
    for (int64_t k = 0; k < E; k++) {
        if (k >= n) ids[k] = ids[n - 1]; /* seen by nobody */
        targets[k] = -1;
        positions[k] = k < n ? (int32_t)k : -1;
    }
    for (int64_t k = 0; k < seq - E; k++) {
        if (k >= m) targets[E + k] = -1;
        ids[E + k] = k == 0 ? (int32_t)rule->start : k <= m ? targets[E + k - 1] : (int32_t)rule->start;
        positions[E + k] = (int32_t)k;
    }
    return m;
}
