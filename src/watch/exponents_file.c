/* SPDX-License-Identifier: Apache-2.0 */
/* Lists are cut to what is between the first and the last that is not 0. */
#include "watch/exponents_file.h"

#include "base/json.h"
#include "engine/engine.h"
#include "watch/metrics.h"

static void put_class(struct json_out *o, const char *name, const int64_t bins[EXPONENT_BINS])
{
    int first = EXPONENT_FIRST, end = EXPONENT_BINS;
    while (first < end && !bins[first]) first++;
    while (end > first && !bins[end - 1]) end--;
    json_begin_object(o, name);
    json_put_int(o, "zero", bins[EXPONENT_ZERO]);
    json_put_int(o, "not_finite", bins[EXPONENT_NOT_FINITE]);
    json_put_int(o, "first", first - EXPONENT_FIRST + EXPONENT_LEAST);
    json_begin_array(o, "counts");
    for (int i = first; i < end; i++) json_put_int(o, NULL, bins[i]);
    json_end_array(o);
    json_end_object(o);
}

int exponents_write(const struct engine *g, struct metrics *m, int64_t step, const char *recipe, double loss_scale,
                    struct err *e)
{
    static const char *const names[CLASS_N] = {"activations", "weights", "gradients", "weight_gradients"};
    struct str line = {0};
    struct json_out o = {.s = &line};
    json_begin_object(&o, NULL);
    json_put_int(&o, "step", step);
    json_put_string(&o, "recipe", recipe);
    json_put_real(&o, "loss_scale", loss_scale);
    for (int k = 0; k < CLASS_N; k++) put_class(&o, names[k], g->exponents.bins[k]);
    json_end_object(&o);
    int rc = metrics_exponents(m, &line, e);
    str_free(&line);
    return rc;
}
