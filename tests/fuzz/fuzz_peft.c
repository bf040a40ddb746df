/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_peft.c: any bytes as the two files of an adapter for a small Llama (a byte that says how long the first is,
 * times 8): refused with words that name the place, or an adapter whose values can be read. */
#include <string.h>

#include "base/mem.h"
#include "hub/peft.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct hf_model m = hf_model_default(HF_LLAMA);
    struct peft *p;
    struct err e = {0};
    size_t config = n ? 8 * (size_t)data[0] : 0;
    m.model.layers = 1, m.model.hidden = 4, m.model.heads = m.model.kv_heads = 2, m.model.head_dim = 2;
    m.model.ffn = 6, m.model.vocab = 5, m.model.max_positions = 8;
    if (!n) return 0;
    if (config > n - 1) config = n - 1;
    int rc =
        peft_open_memory(&p, (const char *)data + 1, config, data + 1 + config, n - 1 - config, "fuzz.peft", &m, &e);
    CHECK(!rc == (p != NULL), "status %d", rc);
    CHECK(!rc || strstr(e.text, "fuzz.peft"), "an error without its place: %s", e.text);
    if (rc) return 0;
    double sum = 0;
    CHECK(peft_count(p) > 0 && peft_rank(p) > 0 && peft_times(p) > 0, "an adapter of nothing");
    for (int64_t i = 0; i < hf_n_params(&m); i++) {
        struct hf_param q = hf_param_at(&m, i);
        struct peft_matrix x;
        if (!peft_find(p, q.name, &x)) continue;
        CHECK(peft_lengths(p) == (x.lengths != NULL), "lengths of some matrices");
        for (int64_t k = 0; k < peft_rank(p) * q.shape.n[1]; k++) sum += (double)x.a[k];
        for (int64_t k = 0; k < peft_rank(p) * q.shape.n[0]; k++) sum += (double)x.b[k];
        for (int64_t k = 0; x.lengths && k < q.shape.n[0]; k++) sum += (double)x.lengths[k];
    }
    volatile double seen = sum;
    (void)seen;
    peft_close(p);
    return 0;
}
