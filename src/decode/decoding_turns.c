/* SPDX-License-Identifier: Apache-2.0 */
/* Positions that turn by the length of the whole text (longrope): all that a sequence has was turned alike, so a text
 * that comes to be longer than the model's original length is fed again from its beginning. */
#include <string.h>

#include "base/mem.h"
#include "decode/decoding_impl.h"

bool decoding_turns_longer(const struct decoding *d, int64_t n)
{
    return model_turns_by_length(&d->model) && n > d->model.rope_scaling.original_max_position;
}

int64_t decoding_turns_alike(const struct decoding *d, int64_t n)
{
    return model_turns_by_length(&d->model) && !decoding_turns_longer(d, n)
               ? d->model.rope_scaling.original_max_position
               : INT64_MAX;
}

void decoding_expect(struct decoding *d, int s, int64_t n)
{
    struct sequence *q = decoding_sequence(d, s);
    if (n > q->least) q->least = n;
}

/* All that a sequence has, turned as `longer` says. */
static int feed_again(struct decoding *d, int s, bool longer, struct err *e)
{
    struct sequence *q = decoding_sequence(d, s);
    int64_t n = q->fed, least = q->least, prompt = q->prompt;
    int32_t *ids = xmalloc(to_size(n) * sizeof *ids);
    const float *none;
    int rc = OK;
    memcpy(ids, q->ids, to_size(n) * sizeof *ids);
    decoding_cut(d, s, 0);
    q->least = least;
    q->prompt = prompt;
    q->longer = longer;
    for (int64_t now; !rc && q->fed < n;) {
        now = n - q->fed < d->rows ? n - q->fed : d->rows;
        if (decoding_whole(d, s)) now = prompt;
        rc = decoding_feed(d, &(struct decoding_part){s, ids + q->fed, now, 0}, 1, &none, e);
    }
    xfree(ids);
    return rc;
}

int decoding_turn(struct decoding *d, const struct decoding_part *p, struct err *e)
{
    struct sequence *q = &d->seq[p->sequence];
    int64_t n = q->fed + p->n > q->least ? q->fed + p->n : q->least;
    bool longer = decoding_turns_longer(d, n);
    int rc = longer != q->longer && q->fed ? feed_again(d, p->sequence, longer, e) : OK;
    if (!rc) q->longer = longer;
    return rc;
}
