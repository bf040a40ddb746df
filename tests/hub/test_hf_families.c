/* SPDX-License-Identifier: Apache-2.0 */
/* Every family in the tables that the upper rooms make of families.def: what computes it, which of Hugging Face's it is
 * written as, names of its tensors, whether it is written as GGUF. */
#include "said.h"

#include "base/str.h"
#include "config/start_weights.h"
#include "hub/gguf_family.h"
#include "hub/hf.h"
#include "hub/hf_names.h"
#include "toy.h"

static void a_family_is_written_as_one_of_its_own(void **state)
{
    (void)state;
    for (int f = 0; f < MODEL_N; f++) {
        struct model_config c = toy_model((enum model_family)f);
        struct hf_model m = source_hf_model(&c, -1, -1);
        assert_int_equal(m.family, model_families[f].type);
        assert_int_equal(hf_model_default(m.family).model.family, f);
    }
    /* And DeepSeek with the router of V2 as V2. */
    struct model_config c = toy_model(MODEL_DEEPSEEK);
    c.moe.score = SCORE_SOFTMAX;
    c.moe.norm_topk = c.moe.bias = false;
    assert_int_equal(source_hf_model(&c, -1, -1).family, HF_DEEPSEEK_V2);
}

static void a_family_is_computed(void **state)
{
    (void)state;
    for (int f = 0; f < MODEL_N; f++) {
        struct model_config c = toy_model((enum model_family)f);
        assert_int_equal(model_rope_cols(&c) > 0,
                         model_decodes(&c)); /* nn's blocks know of positions what model/ does */
        assert_true(model_decodes(&c) || !model_wants_experts(&c));
    }
}

/* The rows of a run end, and each is a pair of names. */
static int rows_of(const struct hf_name *r)
{
    int n = 0;
    for (; r && r[n].ours; n++) assert_true(*r[n].ours && *r[n].theirs);
    return n;
}

static void a_type_has_names_of_tensors(void **state)
{
    (void)state;
    for (int t = 0; t < HF_N; t++) {
        const struct hf_family_names *x = hf_family_names[t];
        struct model_config c = hf_model_default((enum hf_family)t).model;
        const char *name = hf_family_name((enum hf_family)t);
        if (!rows_of(x->first) || !rows_of(x->last)) fail_msg("%s has no names before or behind its layers", name);
        if (!model_mixes(&c) && !rows_of(x->dense[0].rows)) fail_msg("%s has no names of layers", name);
        if ((rows_of(x->moe[0].rows) > 0) != model_wants_experts(&c)) fail_msg("%s: names of experts", name);
        if ((rows_of(x->tower) > 0) != (model_looks(&c) || model_pairs(&c))) fail_msg("%s: names of a tower", name);
        assert_ptr_equal(hf_prefix((enum hf_family)t), x->prefix);
        assert_non_null(x->prefix);
    }
}

/* What is refused names all that are not, and no other. */
static void a_family_is_written_as_gguf_or_refused(void **state)
{
    (void)state;
    struct str all = {0};
    const char *last = NULL;
    int n = 0, refused = 0;
#define GGUF(id, ...)                                                                                                  \
    str_printf(&all, "%s%s", last &&n > 1 ? ", " : "", last ? last : "");                                              \
    last = model_family_name(MODEL_##id);                                                                              \
    n++;
#include "model/families.def"
    str_printf(&all, " and %s are", last);
    for (int f = 0; f < MODEL_N; f++) {
        const struct gguf_family *g;
        struct model_config c = toy_model((enum model_family)f);
        struct hf_model m = source_hf_model(&c, -1, -1);
        struct err e = {0};
        int rc = gguf_family_of(&g, &m, "x.gguf", &e);
        bool none = rc && strstr(e.text, "models of this family are not written as GGUF");
        refused += none;
        if (none) assert_contains(e.text, all.p);
        else if (!*g->architecture || !g->names->ours)
            fail_msg("%s has no names", model_family_name((enum model_family)f));
    }
    assert_int_equal(refused, MODEL_N - n);
    str_free(&all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_family_is_written_as_one_of_its_own),
        cmocka_unit_test(a_family_is_computed),
        cmocka_unit_test(a_type_has_names_of_tensors),
        cmocka_unit_test(a_family_is_written_as_gguf_or_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
