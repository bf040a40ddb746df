/* SPDX-License-Identifier: Apache-2.0 */
/* Rotary positions: what may be asked of them, the table of their angles, and how it comes onto a tape. A pair of
 * columns turns by the position times a frequency of its own; how frequencies are stretched for longer texts is one of
 * rope_scaling's kinds (model/rope.h), YaRN's or LongRoPE's. */
#include <inttypes.h>
#include <math.h>

#include "model/rope.h"
#include "nn/layers.h"

/* Whether local layers have angles of their own. */
static bool has_near(const struct model_config *c) { return c->attn.window > 0 && c->attn.local_theta > 0; }

int rotary_check(const struct model_config *c, struct err *e)
{
    const struct rope_scaling_config *r = &c->rope_scaling;
    int64_t turned = model_turned(c);
    if (blocks_of(c)->uses_rope && !c->mla.kv_rank && (turned % 2 || turned < 2))
        return err_set(e, ERR_REQUEST,
                       "%s: rotary positions turn pairs of numbers, so the columns of a head that turn must be even, "
                       "got "
                       "%" PRId64 " (head_dim %" PRId64 ", hidden %lld / heads %" PRId64 ")",
                       turned == c->head_dim ? "model.head_dim" : "model.rope_part", turned, c->head_dim,
                       (long long)c->hidden, c->heads);
    if (!model_long_rope(c)) return OK;
    for (int i = 0; i < 2; i++) {
        const struct conf_numbers *list = i ? &r->long_factors : &r->short_factors;
        if (list->n != turned / 2)
            return err_set(e, ERR_REQUEST,
                           "model.rope_scaling.%s_factors: %" PRId64 " numbers; the %" PRId64
                           " columns of a head that turn are %" PRId64 " pairs, and each has one",
                           i ? "long" : "short", list->n, turned, turned / 2);
    }
    if (r->original_max_position < 2)
        return err_set(e, ERR_REQUEST, "model.rope_scaling.original_max_position: wanted 2 or more, got %" PRId64,
                       r->original_max_position);
    if (has_near(c))
        return err_set(e, ERR_REQUEST,
                       "model.attn.local_theta: local layers with angles of their own beside longrope are not computed "
                       "here; choose 0, or another model.rope_scaling.kind");
    return OK;
}

/* How far pair i of them turns from one position to the next, in radians, where nothing is stretched. */
static double frequency(double base, int64_t i, int64_t cols) { return pow(base, -2.0 * (double)i / (double)cols); }

/* YaRN's: what turns many times over the original length is kept, what turns less than once is stretched, a ramp over
 * the pairs between. */
static double yarn_frequency(const struct model_config *c, int64_t i, int64_t cols)
{
    const struct yarn_config *y = &c->yarn;
    double theta = c->rope_theta, freq = frequency(theta, i, cols), n = (double)c->rope_scaling.original_max_position,
           pi = acos(-1.0);
    double low = (double)cols * log(n / (y->beta_fast * 2 * pi)) / (2 * log(theta));
    double high = (double)cols * log(n / (y->beta_slow * 2 * pi)) / (2 * log(theta));
    low = fmax(y->truncate ? floor(low) : low, 0);
    high = fmin(y->truncate ? ceil(high) : high, (double)cols - 1);
    double ramp = fmin(1, fmax(0, ((double)i - low) / (high == low ? 0.001 : high - low)));
    return freq / y->factor * ramp + freq * (1 - ramp);
}

static double yarn_mscale(double factor, double m) { return factor <= 1 ? 1 : 0.1 * m * log(factor) + 1; }

double yarn_angles(const struct model_config *c)
{
    const struct yarn_config *y = &c->yarn;
    if (y->factor == 0) return 1;
    if (y->mscale != 0 && y->mscale_all_dim != 0)
        return yarn_mscale(y->factor, y->mscale) / yarn_mscale(y->factor, y->mscale_all_dim);
    return yarn_mscale(y->factor, 1);
}

double yarn_scores(const struct model_config *c)
{
    if (c->yarn.factor == 0 || c->yarn.mscale_all_dim == 0) return 1;
    double m = yarn_mscale(c->yarn.factor, c->yarn.mscale_all_dim);
    return m * m;
}

int64_t model_rope_cols(const struct model_config *c) { return blocks_of(c)->uses_rope ? model_turned(c) : 0; }

int64_t model_rope_rows(const struct model_config *c)
{
    return has_near(c) || model_turns_by_length(c) ? 2 * c->max_positions : c->max_positions;
}

/* Dynamic scaling: for texts of more tokens than the model saw at first the base is raised, so that the slowest pair
 * turns as far over them as it did (bloc97 2023, "Dynamically scaled RoPE"). A run's texts are all of seq_len. */
static double base_of(const struct model_config *c, int64_t cols)
{
    const struct rope_scaling_config *r = &c->rope_scaling;
    double longer = (double)c->seq_len / (double)r->original_max_position;
    if (r->factor == 0 || r->kind != ROPE_DYNAMIC || longer <= 1 || cols <= 2) return c->rope_theta;
    return c->rope_theta * pow(r->factor * longer - (r->factor - 1), (double)cols / (double)(cols - 2));
}

/* Of all positions pair i. */
static void put_angles(const struct model_config *c, int64_t i, double freq, double scale, float *out)
{
    int64_t cols = model_rope_cols(c), half = cols / 2;
    for (int64_t p = 0; p < c->max_positions; p++) {
        out[p * cols + i] = (float)(scale * cos((double)p * freq));
        out[p * cols + half + i] = (float)(scale * sin((double)p * freq));
    }
}

/* Of local layers with a base of their own: nothing is scaled. */
static void near_rope_table(const struct model_config *c, float *out)
{
    int64_t cols = model_rope_cols(c);
    for (int64_t i = 0; i < cols / 2; i++) put_angles(c, i, frequency(c->attn.local_theta, i, cols), 1, out);
}

/* LongRoPE (Ding et al. 2024): each pair's frequency is divided by a number of its own, of one list in texts of at most
 * the original length and of another in longer ones; what is turned is multiplied by one number in both. */
static void long_rope_table(const struct model_config *c, bool longer, float *out)
{
    const struct rope_scaling_config *r = &c->rope_scaling;
    const struct conf_numbers *by = longer ? &r->long_factors : &r->short_factors;
    int64_t cols = model_rope_cols(c);
    double scale = r->attention_factor;
    if (scale <= 0) scale = r->factor <= 1 ? 1 : sqrt(1 + log(r->factor) / log((double)r->original_max_position));
    for (int64_t i = 0; i < cols / 2; i++) put_angles(c, i, frequency(c->rope_theta, i, cols) / by->v[i], scale, out);
}

void model_rope_table(const struct model_config *c, float *out)
{
    int64_t cols = model_rope_cols(c);
    double scale = yarn_angles(c), base = base_of(c, cols);
    if (has_near(c)) near_rope_table(c, out + c->max_positions * cols);
    if (model_long_rope(c)) {
        bool each = model_turns_by_length(c);
        long_rope_table(c, !each && c->seq_len > c->rope_scaling.original_max_position, out);
        if (each) long_rope_table(c, true, out + c->max_positions * cols);
        return;
    }
    for (int64_t i = 0; i < cols / 2; i++)
        put_angles(c, i,
                   c->yarn.factor != 0 ? yarn_frequency(c, i, cols)
                                       : rope_stretched(&c->rope_scaling, frequency(base, i, cols)),
                   scale, out);
}

/* The table, and behind it that of local layers where it is another. */
void rotary_record(struct layer_ctx *x)
{
    int64_t rows = x->c->max_positions, n[2] = {model_rope_rows(x->c), model_rope_cols(x->c)};
    x->rope_PA = tape_input(x->t, "rope", SLOT_ROPE, DT_F32, 2, n, spmd_all(SPMD_I));
    if (!has_near(x->c)) return;
    x->near_rope_PA = tape_rows(x->t, x->rope_PA, rows, rows);
    x->rope_PA = tape_rows(x->t, x->rope_PA, 0, rows);
}
