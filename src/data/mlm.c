/* SPDX-License-Identifier: Apache-2.0 */
/* Four words of random numbers a token: whether, which way, which other token. Rejected: exactly `rate` of each sample,
 * which would need a choice among all its places: the mean is the same, and a place would depend on the others. */
#include "data/mlm.h"

#include <string.h>

#include "base/rng.h"

int mlm_init(struct mlm *m, const struct mlm_rule *r, const struct tokenizer *t, struct err *e)
{
    static const char *const usual[] = {"[MASK]", "<mask>"};
    *m = (struct mlm){.rate = r->rate, .mask = r->mask, .random = r->random, .id = -1};
    if (r->rate == 0) return OK;
    m->n_vocab = tokenizer_vocab(t);
    if (r->id >= 0) m->id = (int32_t)r->id;
    else if (r->token) m->id = tokenizer_find(t, r->token, strlen(r->token));
    for (int i = 0; !r->token && i < 2 && m->id < 0; i++) m->id = tokenizer_find(t, usual[i], strlen(usual[i]));
    if (m->id >= 0) return OK;
    return err_set(e, ERR_REQUEST,
                   "data.mlm.token: the tokenizer has no token \"%.100s\" to hide others behind; name one that it has, "
                   "or give "
                   "the mask a number that no token has (data.mlm.id: %d, with model.vocab: %d)",
                   r->token ? r->token : "[MASK]", m->n_vocab, m->n_vocab + 1);
}

int64_t mlm_apply(const struct mlm *m, uint64_t seed, int64_t sample, int32_t *ids, int32_t *targets, int64_t n)
{
    const double whole = 4294967296.0;
    uint64_t stream = rng_stream_at(rng_stream("data/mlm"), (uint64_t)sample);
    int64_t chosen = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t u[4];
        if (targets[i] < 0) continue;
        rng_block(seed, stream, (uint64_t)i, u);
        if (u[0] / whole >= m->rate) {
            targets[i] = -1;
            continue;
        }
        double way = u[1] / whole;
        if (way < m->mask) ids[i] = m->id;
        else if (way < m->mask + m->random) ids[i] = (int32_t)((uint64_t)u[2] * (uint64_t)m->n_vocab >> 32);
        chosen++;
    }
    return chosen;
}
