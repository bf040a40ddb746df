/* SPDX-License-Identifier: Apache-2.0 */
/* What the type rules are for: a model with one collective left out is refused while it is recorded, before any step,
 * and the refusal names the operation and the axis. Every change of type of every family is left out in turn, in every
 * way the tokens can lie, on one rank as well as on one of several: types do not depend on sizes. */
#include "toy.h"

#include "nn/model.h"

struct spot {
    int tp, rank;
    bool sequence;
    int ep, etp; /* 0: 1, tp */
    int cp;      /* 0: 1 */
    double capacity;
};

static int record(enum model_family family, const struct spot *at, int forget, int *n_changes, struct err *e)
{
    struct model_config m = toy_model(family);
    m.kv_heads = m.heads;
    m.tie_embeddings = family == MODEL_GPT2;
    m.moe.capacity = at->capacity;
    int cp = at->cp ? at->cp : 1, ep = at->ep ? at->ep : 1, etp = at->etp ? at->etp : at->tp;
    int dp = cp * at->tp % (ep * etp) ? ep * etp : 1; /* so many that ep is over something */
    struct mesh mesh;
    if (mesh_init(&mesh, dp * cp * at->tp,
                  (int[AXIS_N]){[AXIS_PP] = 1,
                                [AXIS_DP_REPLICATE] = 1,
                                [AXIS_DP_SHARD] = dp,
                                [AXIS_CP] = cp,
                                [AXIS_TP] = at->tp,
                                [AXIS_EDP] = -1,
                                [AXIS_EP] = ep,
                                [AXIS_ETP] = etp},
                  e))
        return ERR_REQUEST;
    struct par par = par_at(&mesh, (cp - 1) * at->tp + at->rank);
    par.sequence = at->sequence;
    par.forget = forget;
    struct param_table p = {0};
    struct tape *t = tape_new();
    model_declare(&m, &par, &p);
    struct model_shape s = {.mode = MODEL_TRAIN, .dtype = DT_F32, .batch = 2, .seq = 7};
    model_record(t, &m, &p, &par, &s);
    int rc = tape_status(t, e);
    *n_changes = t->n_changes;
    tape_free(t);
    param_table_free(&p);
    return rc;
}

static void test_forgotten_collectives(void **state)
{
    (void)state;
    static const struct spot places[] =
        {{.tp = 1},
         {.tp = 2},
         {.tp = 2, .rank = 1},
         {.tp = 2, .sequence = true},
         {.tp = 3, .rank = 2, .sequence = true},
         {.tp = 1, .ep = 2},
         {.tp = 2, .rank = 1, .ep = 2},
         {.tp = 2, .ep = 2, .etp = 1},
         {.tp = 2, .rank = 1, .sequence = true, .ep = 3, .etp = 1},
         {.tp = 1, .cp = 3},
         {.tp = 2, .rank = 1, .sequence = true, .cp = 2},
         {.tp = 2, .rank = 1, .ep = 2, .etp = 1, .cp = 2},
         {.tp = 1, .capacity = 0.7},
         {.tp = 3, .rank = 1, .ep = 2, .etp = 1, .cp = 2, .capacity = 0.7},
         {.tp = 2, .rank = 1, .sequence = true, .ep = 2, .etp = 1, .cp = 3, .capacity = 0.7},
         {.tp = 2, .sequence = true, .cp = 2, .capacity = 0.7},
         {.tp = 4, .rank = 1, .etp = 2},
         {.tp = 6, .rank = 3, .sequence = true, .ep = 2, .etp = 3, .cp = 2}};
    int refused = 0, uncounted = 0;
    for (int family = 0; family < TOY_TEXTS; family++)
        for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
            struct err e = {0};
            int n, ignored;
            if (record((enum model_family)family, &places[i], 0, &n, &e)) fail_msg("%s", e.text);
            assert_true(n >= 8); /* in and out of attention and MLP, two layers */
            for (int k = 1; k <= n; k++) {
                e = (struct err){0};
                int rc = record((enum model_family)family, &places[i], k, &ignored, &e);
                if (rc != ERR_REQUEST ||
                    (!strstr(e.text, "over tp") && !strstr(e.text, "tp:") && !strstr(e.text, "over cp") &&
                     !strstr(e.text, "cp:") && !strstr(e.text, "over ep")))
                    fail_msg("%s, tp %d%s: without change %d of %d: %d %s",
                             model_family_name((enum model_family)family), places[i].tp,
                             places[i].sequence ? " sequence" : "", k, n, rc, e.text);
                refused++;
                uncounted += strstr(e.text, "whole sequences") != NULL;
            }
        }
    assert_int_equal(uncounted,
                     3 * (1 + 2 + 2 + 2)); /* layers with experts: over cp, and over tp where it shares out tokens */
    print_message("  %d mutants, all refused\n", refused);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_forgotten_collectives)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
