/* SPDX-License-Identifier: Apache-2.0 */
/* What was found, as a table and as JSON. */
#include <inttypes.h>
#include <stdio.h>

#include "base/json.h"
#include "verify/verify.h"

/* "same" as one rank, or a number that layouts with equal bits share; "-" when no other layout has them. */
static const char *bits_mark(const struct verify *v, int layout, char mark[16])
{
    const struct verify_layout *l = v->layout;
    int class = 0, others = 0;
    if (l[layout].bit_identical) return "same";
    for (int i = 0; i < v->n; i++) others += i != layout && l[i].bits == l[layout].bits;
    if (!others) return "-";
    for (int i = 0; l[i].bits != l[layout].bits; i++) {
        bool first = !l[i].bit_identical, again = false;
        for (int k = 0; k < i; k++) first &= l[k].bits != l[i].bits;
        for (int k = i + 1; k < v->n; k++) again |= l[k].bits == l[i].bits;
        class += first && again;
    }
    snprintf(mark, 16, "=%d", class + 1);
    return mark;
}

static void print_trained(const struct verify *v, struct str *out)
{
    double most = 0;
    for (int i = 0; i < v->n; i++)
        if (v->layout[i].trained_rel_error > most) most = v->layout[i].trained_rel_error;
    if (v->n_trained)
        str_printf(out,
                   "the trainer itself: %d layouts, whose losses, norms and validation are those of one rank within "
                   "%.2g\n",
                   v->n_trained, most);
    if (v->untrained[0]) str_printf(out, "the trainer itself was not run: %s\n", v->untrained);
}

static void print_unrounded(const struct verify *v, struct str *out)
{
    double most = 0;
    int n = 0;
    for (int i = 0; i < v->n; i++) {
        n += v->layout[i].unrounded_rel_error >= 0;
        if (v->layout[i].unrounded_rel_error > most) most = v->layout[i].unrounded_rel_error;
    }
    if (n)
        str_printf(out,
                   "unrounded: %d layouts whose bounds are wide ran in fp32 too, with no codec, and "
                   "differ by %.2g at most from one rank that does\n",
                   n, most);
    if (v->rounded_only[0]) str_printf(out, "nothing ran unrounded: %s\n", v->rounded_only);
}

static void print_answers(const struct verify *v, struct str *out)
{
    int same = 0, rounded = 0;
    double most = 0;
    for (int i = 0; i < v->n; i++) {
        same += v->layout[i].answer_tokens && !v->layout[i].answers_unlike;
        rounded += v->layout[i].answers_unlike > 0;
        if (v->layout[i].answers_most > most) most = v->layout[i].answers_most;
    }
    if (same + rounded)
        str_printf(out,
                   "answers: log-probabilities when written and when learned are the same bits in %d layouts; in %d "
                   "they differ by %.2g nats at most\n",
                   same, rounded, most);
}

/* What was compared beside the layouts' numbers. */
static void print_rest(const struct verify *v, struct str *out)
{
    int resumed = 0, plain = 0;
    int64_t routed = 0, elsewhere = 0;
    for (int i = 0; i < v->n; i++) {
        resumed += v->layout[i].resumed[0] != 0;
        plain += v->layout[i].ref_rel_error >= 0;
        routed += v->layout[i].routed;
        elsewhere += v->layout[i].elsewhere;
    }
    if (v->eps > 0)
        str_printf(out, "optimizer.eps is %.2g in every run, that Adam makes no steps of rounding\n", v->eps);
    if (v->left_out) str_printf(out, "left out by the loss scale: %d steps, in every layout\n", v->left_out);
    str_puts(out, "one rank: no recompute, no offload, no codec; the learning rate has no warm-up in any run\n");
    str_puts(out, "bits: same as one rank; layouts with one number have the same bits among them\n");
    str_printf(out,
               "resumed: the step after reading a checkpoint that another layout saved; %d layouts that hold their "
               "state in unlike ways\n",
               resumed);
    if (plain)
        str_printf(out,
                   "plain loops (run.kernels ref): one rank differs by %.2g from training's kernels; with them too, %d "
                   "layouts were held against one rank\n",
                   v->ref_rel_error, plain);
    print_unrounded(v, out);
    print_trained(v, out);
    print_answers(v, out);
    if (routed)
        str_printf(out, "routers: %" PRId64 " of %" PRId64 " choices would have been others than one rank's%s\n",
                   elsewhere, routed, v->replayed ? ", and were repeated, so that numbers are compared" : "");
}

void verify_print(const struct verify *v, struct str *out)
{
    char a[32], b[32], mark[16], resumed[16];
    str_printf(out, "%-38s %5s  %-9s %-9s %-9s %-9s %-9s %-9s %-5s %12s %10s  %s\n", "layout", "ranks", "error",
               "steps", "loss", "norm", "eval", "resumed", "bits", "sent/step", "peak", "largest error in");
    for (int i = 0; i < v->n; i++) {
        const struct verify_layout *l = &v->layout[i];
        snprintf(resumed, sizeof resumed, l->resumed[0] ? "%.2g" : "", l->resume_rel_error);
        str_printf(out, "%-38s %5d  %-9.2g %-9.2g %-9.2g %-9.2g %-9.2g %-9s %-5s %12s %10s  %s", l->layout, l->n_ranks,
                   l->max_rel_error, l->step_rel_error, l->loss_rel_error, l->norm_rel_error, l->eval_rel_error,
                   resumed, bits_mark(v, i, mark), str_bytes(a, (double)l->comm_bytes),
                   str_bytes(b, (double)l->peak_bytes), l->tensor);
        if (!(l->step_rel_error <= l->bound_steps)) str_printf(out, "  (%s: %.2g)", l->step_tensor, l->step_rel_error);
        if (!(l->lean <= 1)) str_printf(out, "  (%s: %.2g of what chance may)", l->lean_tensor, l->lean);
        if (!l->ok && l->trained_rel_error >= 0)
            str_printf(out, "  (the trainer: %s, %.2g)", l->trained_where, l->trained_rel_error);
        if (l->own) str_puts(out, "  (the config's own)");
        if (l->resumed[0] && !l->resume_identical) str_printf(out, "  (not what %s saved was read)", l->resumed);
        if (l->answer_tokens && !l->answers_identical) str_puts(out, "  (its ranks do not write one rank's answers)");
        if (!l->ok && l->answers_unlike)
            str_printf(out, "  (of %" PRId64 " tokens of answers %" PRId64 " are learned with other bits, %.2g nats)",
                       l->answer_tokens, l->answers_unlike, l->answers_most);
        if (l->ref_rel_error >= 0 && !l->ref_ok) str_printf(out, "  (plain loops: %.2g)", l->ref_rel_error);
        if (l->unrounded_rel_error >= 0 && !l->unrounded_ok)
            str_printf(out, "  (unrounded: %s, %.2g)", l->unrounded_where, l->unrounded_rel_error);
        str_puts(out, l->ok ? "\n" : "  <-- DIFFERS\n");
    }
    print_rest(v, out);
    str_printf(out, "%s: %d layouts against one rank, bound %g\n", v->ok ? "equal" : "NOT EQUAL", v->n, v->bound);
}

void verify_json(const struct verify *v, struct str *out)
{
    struct json_out o = {.s = out};
    json_begin_document(&o, "verify", 1);
    json_put_bool(&o, "ok", v->ok);
    json_put_real(&o, "bound", v->bound);
    json_put_real(&o, "ref_rel_error", v->ref_rel_error);
    json_put_bool(&o, "routing_replayed", v->replayed);
    if (v->eps > 0) json_put_real(&o, "eps", v->eps);
    json_put_int(&o, "trained", v->n_trained);
    if (v->untrained[0]) json_put_string(&o, "untrained", v->untrained);
    if (v->rounded_only[0]) json_put_string(&o, "rounded_only", v->rounded_only);
    json_begin_array(&o, "layouts");
    for (int i = 0; i < v->n; i++) {
        const struct verify_layout *l = &v->layout[i];
        char bits[20];
        snprintf(bits, sizeof bits, "%016" PRIx64, l->bits);
        json_begin_object(&o, NULL);
        json_put_string(&o, "layout", l->layout);
        json_put_int(&o, "ranks", l->n_ranks);
        json_put_bool(&o, "ok", l->ok);
        json_put_real(&o, "max_rel_error", l->max_rel_error);
        json_put_string(&o, "tensor", l->tensor);
        json_put_real(&o, "step_rel_error", l->step_rel_error);
        json_put_real(&o, "bound_steps", l->bound_steps);
        json_put_string(&o, "step_tensor", l->step_tensor);
        json_put_real(&o, "lean", l->lean);
        json_put_string(&o, "lean_tensor", l->lean_tensor);
        json_put_bool(&o, "own", l->own);
        json_put_bool(&o, "bit_identical", l->bit_identical);
        json_put_real(&o, "bound", l->bound);
        json_put_real(&o, "bound_totals", l->bound_totals);
        json_put_real(&o, "loss_rel_error", l->loss_rel_error);
        json_put_real(&o, "norm_rel_error", l->norm_rel_error);
        json_put_int(&o, "comm_bytes", l->comm_bytes);
        json_put_int(&o, "peak_bytes", l->peak_bytes);
        json_put_string(&o, "bits", bits);
        json_put_real(&o, "eval_rel_error", l->eval_rel_error);
        if (l->resumed[0]) {
            json_put_string(&o, "resumed_from", l->resumed);
            json_put_bool(&o, "resume_identical", l->resume_identical);
            json_put_real(&o, "resume_rel_error", l->resume_rel_error);
        }
        if (l->ref_rel_error >= 0) json_put_real(&o, "ref_rel_error", l->ref_rel_error);
        if (l->ref_rel_error >= 0) json_put_bool(&o, "ref_ok", l->ref_ok);
        if (l->unrounded_rel_error >= 0) {
            json_put_real(&o, "unrounded_rel_error", l->unrounded_rel_error);
            json_put_bool(&o, "unrounded_ok", l->unrounded_ok);
            json_put_string(&o, "unrounded_where", l->unrounded_where);
        }
        if (l->trained_rel_error >= 0) {
            json_put_real(&o, "trained_rel_error", l->trained_rel_error);
            json_put_string(&o, "trained_where", l->trained_where);
        }
        if (l->answer_tokens) {
            json_put_int(&o, "answer_tokens", l->answer_tokens);
            json_put_int(&o, "logprobs_unlike", l->answers_unlike);
            json_put_real(&o, "logprobs_unlike_most", l->answers_most);
            json_put_bool(&o, "answers_identical", l->answers_identical);
        }
        if (l->routed) json_put_int(&o, "routed", l->routed);
        if (l->routed) json_put_int(&o, "routed_elsewhere", l->elsewhere);
        json_end_object(&o);
    }
    json_end_array(&o);
    json_end_object(&o);
    str_putc(out, '\n');
}
