/* SPDX-License-Identifier: Apache-2.0 */
#include "keep/evals.h"

#include <math.h>

#include "checkpoint/ckpt.h"

static const struct evals_best none = {INFINITY, -1};

void evals_init(struct evals *x, const struct evals_rules *rules)
{
    *x = (struct evals){.rules = *rules, .step = -1, .best = none, .before = none, .least = INFINITY};
}

bool evals_count(const struct evals *x) { return x->rules.best || x->rules.patience; }

bool evals_learn(struct evals *x, int64_t step, double loss)
{
    x->step = step;
    if (loss < x->least - x->rules.delta) { /* never of a loss that is no number */
        x->least = loss;
        x->since = 0;
    } else {
        x->since++;
    }
    if (!x->rules.best || !(loss < x->best.loss)) return false;
    x->before = x->best;
    x->best = (struct evals_best){loss, step};
    return true;
}

bool evals_over(const struct evals *x) { return x->rules.patience && x->since >= x->rules.patience; }

void evals_unsaved(struct evals *x, int64_t step)
{
    if (step < 0) return;
    if (x->before.step == step) x->before = none;
    if (x->best.step != step) return;
    x->best = x->before;
    x->before = none;
}

void evals_forget_best(struct evals *x) { x->best = x->before = none; }

void evals_put(const struct evals *x, struct json_out *o)
{
    if (!evals_count(x) || x->step < 0) return;
    if (x->best.step >= 0) {
        json_begin_object(o, "best");
        json_put_int(o, "step", x->best.step);
        json_put_real_digits(o, "valid_loss", x->best.loss, 17);
        json_end_object(o);
    }
    json_begin_object(o, "evaluations");
    json_put_int(o, "step", x->step);
    if (isfinite(x->least)) json_put_real_digits(o, "least", x->least, 17);
    json_put_int(o, "since", x->since);
    json_end_object(o);
}

int evals_take(struct evals *x, const struct json *extra, const char *what, struct err *e)
{
    const struct json *best = json_get(extra, "best"), *all = json_get(extra, "evaluations");
    if (!evals_count(x)) return OK;
    if (all) {
        const struct json *least = json_get(all, "least");
        x->step = json_int(json_get(all, "step"), -1);
        x->since = json_int(json_get(all, "since"), -1);
        x->least = least ? json_real(least, NAN) : INFINITY;
        if (x->step < 0 || x->since < 0 || isnan(x->least))
            return err_set(e, ERR_CORRUPT, "%s: evaluations: wanted step, least and since", what);
    }
    if (!best || !x->rules.best) return OK;
    x->best = (struct evals_best){json_real(json_get(best, "valid_loss"), NAN), ckpt_best(extra)};
    if (!isfinite(x->best.loss) || x->best.step < 0)
        return err_set(e, ERR_CORRUPT, "%s: best: wanted step and valid_loss", what);
    return OK;
}
