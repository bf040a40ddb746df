/* SPDX-License-Identifier: Apache-2.0 */
/* What layers of a hybrid cost, by what each is: stages of a pipeline are dealt by it. Multiply-adds of a token, in
 * closed form; of the convolution the taps are counted. */
#include "toy.h"

static void test_each_kind(void **state)
{
    (void)state;
    struct model_config c = toy_model(MODEL_NEMOTRON_H);
    const struct ssm_config *s = &c.ssm;
    c.layers = 7;
    c.pattern = (struct layer_pattern){.text = "M-*-M"};
    double layer[7], embed, head, seq = 20, inner = (double)(s->heads * s->head_dim),
                                  bc = (double)(s->groups * s->state);
    double D = (double)c.hidden, queries = (double)(c.heads * c.head_dim), keys = (double)(c.kv_heads * c.head_dim);
    double scan = D * (2 * inner + 2 * bc + (double)s->heads) + inner * D + (inner + 2 * bc) * (double)s->conv +
                  2.5 * inner * (double)s->state;
    double attends = D * (2 * queries + 2 * keys) + 2 * queries * (seq + 1) / 2, mlp = 2 * D * (double)c.ffn;
    double want[7] = {scan, mlp, attends, mlp, scan, scan, mlp}; /* the pattern again */
    model_costs(&c, (int64_t)seq, layer, &embed, &head);
    for (int l = 0; l < 7; l++)
        if (fabs(layer[l] - want[l]) > 1e-9 * want[l]) fail_msg("layer %d: %.9g, wanted %.9g", l, layer[l], want[l]);
    assert_true(scan != mlp && scan != attends && mlp != attends && embed == 0 && head == D * (double)c.vocab);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_kind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
