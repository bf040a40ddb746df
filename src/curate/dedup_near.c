/* SPDX-License-Identifier: Apache-2.0 */
/* dedup_near.c: documents that are nearly the same.
 *
 *   1. every rank signs its documents (minhash.h); signatures stay in a file of its own, in the documents' order;
 *      (band, document) goes to the rank that has the band's range
 *   2. documents that share a band are candidates: in a band of up to PAIRS_ALL documents every pair, in a larger one
 *      each with the first and the one before it. A pair goes to the owner of its first document, equal ones once
 *   3. pairs sorted by their first document, and the file of signatures: each pair takes that signature along to the
 *      owner of its second document, where it is compared, again in one pass over the file
 *   4. what is similar enough is an edge; of each component of edges (components.h) the first document stays
 *
 * All of it streams: no rank has the signatures of its documents in memory. On disk: k * 2 + 8 bytes per document, 16
 * per band, k * 2 + 16 per candidate.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/mem.h"
#include "curate/components.h"
#include "curate/dedup_impl.h"
#include "curate/minhash.h"
#include "curate/shingles.h"

enum { PAIRS_ALL = 32 };

struct near {
    struct dedup_job *job;
    struct minhash hash;
    struct shingles shingles;
    uint32_t *min;
    uint64_t *record; /* document, signature */
    char *path;       /* of the signatures */
    struct sorted_writer *signatures;
    struct shuffle *bands, *pairs, *carried;
};

/* ---- 1 -------------------------------------------------------------------------------------------------------- */

static int sign(void *ctx, const struct corpus_document *d, struct err *e)
{
    struct near *s = ctx;
    shingles_of(&s->shingles, d->text, d->n);
    if (!s->shingles.count) return OK;
    minhash_sign(&s->hash, s->shingles.hash, s->shingles.count, s->min);
    s->record[0] = d->id;
    minhash_pack(&s->hash, s->min, s->record + 1);
    int code = sorted_put(s->signatures, s->record, e);
    for (int b = 0; b < s->hash.bands && !code; b++) {
        uint64_t record[2] = {minhash_band(&s->hash, s->min, b), d->id};
        code = shuffle_put(s->bands, record, hash_rank(record[0], s->job->n_ranks), e);
    }
    return code;
}

static int make_signatures(struct near *s, int step, struct err *e)
{
    int words = 1 + minhash_words(&s->hash);
    int code = sorted_create(&s->signatures, s->path, words, s->job->key, e);
    if (code) return code;
    code = dedup_scan(s->job, step, sign, s, e);
    if (code) {
        sorted_abandon(s->signatures);
        s->signatures = NULL;
        return code;
    }
    code = sorted_publish(s->signatures, false, e);
    s->signatures = NULL;
    return code ? code : shuffle_finish(s->bands, e);
}

/* ---- 2 -------------------------------------------------------------------------------------------------------- */

static int put_pair(struct near *s, uint64_t a, uint64_t b, struct err *e)
{
    uint64_t pair[2] = {a, b};
    return shuffle_put(s->pairs, pair, dedup_owner(s->job, a), e);
}

static int find_pairs(struct near *s, struct err *e)
{
    uint64_t in_band[PAIRS_ALL], first = 0, last = 0, band = 0;
    int64_t n = 0; /* of this band so far */
    const uint64_t *r;
    int got, code = OK;
    while (!code && (got = shuffle_next(s->bands, &r, e)) != 0) {
        if (got < 0) return got;
        if (!n || r[0] != band) {
            n = 0;
            first = r[1];
        }
        band = r[0];
        if (n < PAIRS_ALL)
            for (int64_t i = 0; i < n && !code; i++) code = put_pair(s, in_band[i], r[1], e);
        else code = put_pair(s, first, r[1], e);
        if (!code && n >= PAIRS_ALL && last != first) code = put_pair(s, last, r[1], e);
        if (n < PAIRS_ALL) in_band[n] = r[1];
        n++;
        last = r[1];
    }
    return code ? code : shuffle_finish(s->pairs, e);
}

/* ---- 3 -------------------------------------------------------------------------------------------------------- */

/* Moves to the signature of a document, which has one. */
static int seek_signature(struct near *s, struct sorted_reader *from, uint64_t document, const uint64_t **signature,
                          struct err *e)
{
    int got = 1;
    while ((!*signature || (*signature)[0] < document) && (got = sorted_next(from, signature, e)) > 0) continue;
    if (got < 0) return got;
    if (!got || (*signature)[0] != document)
        return err_set(e, ERR_CORRUPT, "%s: has no signature of a document that was found; remove the work folder",
                       s->path);
    return OK;
}

static int carry(struct near *s, struct err *e)
{
    int words = minhash_words(&s->hash);
    uint64_t *record = xmalloc((size_t)(2 + words) * 8);
    struct sorted_reader *from = NULL;
    const uint64_t *signature = NULL, *pair;
    int code = sorted_open(&from, s->path, 1 + words, s->job->key, e), got;
    while (!code && (got = shuffle_next(s->pairs, &pair, e)) != 0) {
        if (got < 0) code = got;
        if (!code) code = seek_signature(s, from, pair[0], &signature, e);
        if (code) break;
        record[0] = pair[1];
        record[1] = pair[0];
        memcpy(record + 2, signature + 1, (size_t)words * 8);
        code = shuffle_put(s->carried, record, dedup_owner(s->job, pair[1]), e);
    }
    sorted_close(from);
    xfree(record);
    return code ? code : shuffle_finish(s->carried, e);
}

static int compare(struct near *s, struct components *to, struct err *e)
{
    struct sorted_reader *from = NULL;
    const uint64_t *signature = NULL, *r;
    int code = sorted_open(&from, s->path, 1 + minhash_words(&s->hash), s->job->key, e), got;
    while (!code && (got = shuffle_next(s->carried, &r, e)) != 0) {
        if (got < 0) code = got;
        if (!code) code = seek_signature(s, from, r[0], &signature, e);
        if (code) break;
        int agree = minhash_agree(&s->hash, signature + 1, r + 2);
        if (minhash_similarity(&s->hash, agree) >= s->job->config->threshold) code = components_put(to, r[1], r[0], e);
    }
    sorted_close(from);
    return code ? code : components_finish(to, e);
}

/* Without verifying every candidate is an edge. */
static int take_all(struct near *s, struct components *to, struct err *e)
{
    const uint64_t *pair;
    int got, code = OK;
    while (!code && (got = shuffle_next(s->pairs, &pair, e)) != 0) {
        if (got < 0) return got;
        code = components_put(to, pair[0], pair[1], e);
    }
    return code ? code : components_finish(to, e);
}

/* ---- 4 -------------------------------------------------------------------------------------------------------- */

static int emit(struct near *s, struct components *from, struct shuffle *edits, struct err *e)
{
    uint64_t document, kept;
    int got;
    while ((got = components_next(from, &document, &kept, e)) > 0) {
        int code = dedup_edit(s->job, edits, document, EDIT_ALL, kept, EDIT_ALL, e);
        if (code) return code;
    }
    return got;
}

static int run(struct near *s, int step, struct shuffle *edits, struct err *e)
{
    struct dedup_job *j = s->job;
    struct sorter_config two = {.dir = j->work, .name = "bands", .words = 2, .key_words = 2, .memory = j->memory / 2};
    s->bands = shuffle_new(j->world, &two);
    int code = make_signatures(s, step, e);
    if (code) return code;
    two.name = "pairs";
    two.memory = j->memory / 4;
    two.distinct = true;
    s->pairs = shuffle_new(j->world, &two);
    code = find_pairs(s, e);
    shuffle_free(s->bands);
    s->bands = NULL;
    if (code) return code;
    struct components *edges;
    if (j->config->verify) {
        struct sorter_config wide = {.dir = j->work,
                                     .name = "carried",
                                     .words = 2 + minhash_words(&s->hash),
                                     .key_words = 2,
                                     .memory = j->memory / 4};
        s->carried = shuffle_new(j->world, &wide);
        code = carry(s, e);
        shuffle_free(s->pairs);
        s->pairs = NULL;
        if (code) return code;
    }
    edges = components_new(j->world, j->work, j->memory / 4);
    code = s->carried ? compare(s, edges, e) : take_all(s, edges, e);
    if (!code) code = emit(s, edges, edits, e);
    components_free(edges);
    return code;
}

int dedup_near(struct dedup_job *j, int step, struct shuffle *edits, struct err *e)
{
    struct near s = {.job = j};
    CHECK(!shingles_parse(&s.shingles, j->config->shingles), "shingles '%s'", j->config->shingles);
    minhash_init(&s.hash, j->bands, j->rows, j->config->seed);
    s.min = xmalloc((size_t)s.hash.k * sizeof *s.min);
    s.record = xmalloc((size_t)(1 + minhash_words(&s.hash)) * 8);
    s.path = fs_join(j->work, "signatures");
    int code = run(&s, step, edits, e);
    unlink(s.path);
    shuffle_free(s.bands);
    shuffle_free(s.pairs);
    shuffle_free(s.carried);
    minhash_fini(&s.hash);
    shingles_free(&s.shingles);
    xfree(s.min);
    xfree(s.record);
    xfree(s.path);
    return code;
}
