/* SPDX-License-Identifier: Apache-2.0 */
/* The words that a step reads on its device: of each row its token and its position, which rows are wanted, a table of
 * runs that says whose rows those are and where their pages lie, and of encoder and decoder the same table of what was
 * read. The device has them at their most; ranks are told those that are used. */
#include <string.h>

#include "base/mem.h"
#include "kernel/cache_runs.h"
#include "decode/decoding_impl.h"

static int64_t run_words(const struct decoding *d) { return RUN_PAGES + d->cache.most; }

static int64_t runs_at(const struct decoding *d) { return 3 * d->room_rows; }

static int64_t reads_at(const struct decoding *d) { return runs_at(d) + d->cache.sequences * run_words(d); }

static int64_t all_words(const struct decoding *d)
{
    return reads_at(d) + (model_pairs(&d->model) ? d->cache.sequences * run_words(d) : 0);
}

int decoding_words_new(struct decoding *d, struct err *e)
{
    static const int of_data[] = {SLOT_TOKENS, SLOT_POSITIONS, SLOT_WANTED, SLOT_RUNS};
    int64_t words = all_words(d), read = d->room + d->cache.most; /* words that a text to be read is told in */
    int rc = buffer_new(&d->data, d->dev, MEM_DATA, to_size(words) * sizeof(int32_t), e);
    if (rc) return rc;
    for (int i = 0; i < 4; i++)
        d->slot[of_data[i]] = decoding_place(&d->data, to_size(i * d->room_rows) * sizeof(int32_t));
    if (model_pairs(&d->model)) d->slot[SLOT_READS] = decoding_place(&d->data, to_size(reads_at(d)) * sizeof(int32_t));
    d->host = xcalloc(to_size(words), sizeof *d->host);
    if (d->ranks) d->packed = xcalloc(to_size(words > read ? words : read), sizeof *d->packed);
    return OK;
}

void decoding_words_free(struct decoding *d)
{
    buffer_free(&d->data);
    xfree(d->host);
    xfree(d->packed);
}

void decoding_lay_words(struct decoding *d, const struct decoding_part *part, int n_parts)
{
    int32_t *token = d->host, *place = token + d->room_rows, *want = place + d->room_rows;
    int32_t *run = d->host + runs_at(d), *read = d->host + reads_at(d);
    int64_t at = 0, wanted = 0;
    memset(d->host, 0, to_size(all_words(d)) * sizeof *d->host);
    for (int i = 0; i < n_parts; i++, run += run_words(d), read += run_words(d)) {
        const struct decoding_part *p = &part[i];
        const struct sequence *q = &d->seq[p->sequence];
        run[RUN_FIRST] = (int32_t)at;
        run[RUN_ROWS] = (int32_t)p->n;
        run[RUN_PAST] = (int32_t)q->fed;
        run[RUN_STATE] = p->sequence;
        run[RUN_BOTH] = decoding_whole(d, p->sequence) > 0;
        memcpy(run + RUN_PAGES, q->text.page, to_size(q->text.n) * sizeof *run);
        if (q->n_read) {
            memcpy(read, run, RUN_PAGES * sizeof *run);
            read[RUN_PAST] = (int32_t)q->n_read;
            memcpy(read + RUN_PAGES, q->read.page, to_size(q->read.n) * sizeof *run);
        }
        for (int64_t k = 0; k < p->n; k++, at++) {
            token[at] = p->ids[k];
            place[at] = (int32_t)(q->fed + k + (q->longer ? d->model.max_positions : 0));
            if (p->n - k <= p->wanted) want[wanted++] = (int32_t)at;
        }
    }
}

/* Of n rows of a table of runs the words that are used, in one piece at `words` (packs), or from there. Returns where
 * they end. */
static int32_t *carry(const struct decoding *d, bool packs, int64_t n, int64_t used, int32_t *table, int32_t *words)
{
    for (int64_t i = 0; i < n; i++, words += used, table += run_words(d))
        memcpy(packs ? words : table, packs ? table : words, to_size(used) * sizeof *words);
    return words;
}

/* All that the step says, between d->host and d->packed. */
static void carry_all(struct decoding *d, const struct decoding_call *c, bool packs)
{
    int32_t *words = d->packed;
    for (int i = 0; i < 3; i++) {
        int64_t n = i < 2 ? c->rows : c->wanted;
        int32_t *own = d->host + i * d->room_rows;
        memcpy(packs ? words : own, packs ? own : words, to_size(n) * sizeof *words);
        words += n;
    }
    words = carry(d, packs, c->n_parts, RUN_PAGES + c->longest, d->host + runs_at(d), words);
    if (c->reads) (void)carry(d, packs, c->n_parts, RUN_PAGES + c->reads, d->host + reads_at(d), words);
}

int decoding_tell_step(struct decoding *d, struct decoding_call *c, struct err *e)
{
    int rc = decoding_tell(d->ranks, c, e);
    if (rc) return rc;
    carry_all(d, c, true);
    return decoding_tell_words(d->ranks, d->packed, decoding_call_words(c), e);
}

int decoding_hear_step(struct decoding *d, const struct decoding_call *c, struct err *e)
{
    int rc = decoding_tell_words(d->ranks, d->packed, decoding_call_words(c), e);
    if (rc) return rc;
    memset(d->host, 0, to_size(all_words(d)) * sizeof *d->host);
    carry_all(d, c, false);
    return OK;
}
