/* SPDX-License-Identifier: Apache-2.0 */
/* Two numbers a document: whether, and where. */
#include "data/prompt_cut.h"

#include "base/rng.h"

int64_t prompt_cut(double rate, uint64_t seed, int64_t sample, const int32_t *documents, int32_t *targets, int64_t n)
{
    uint64_t stream = rng_stream_at(rng_stream("data/prefix"), (uint64_t)sample);
    int64_t hidden = 0, end;
    for (int64_t begin = 0, k = 0; begin < n; begin = end, k++) {
        int64_t trained = 0;
        for (end = begin; end < n && documents[end] == documents[begin]; end++)
            if (targets[end] >= 0 && end == begin + trained) trained++;
        if (trained < 2 || trained < end - begin - 1) continue;
        if (rng_uniform(seed, stream, (uint64_t)(2 * k)) >= rate) continue;
        int64_t cut = 1 + (int64_t)(rng_uniform(seed, stream, (uint64_t)(2 * k + 1)) * (double)(trained - 1));
        for (int64_t i = begin; i < begin + cut; i++) targets[i] = -1;
        hidden += cut;
    }
    return hidden;
}
