/* SPDX-License-Identifier: Apache-2.0 */
/* quality_train.c: texts as features in memory, of each kind at most so many; a fifth of them is held out, half of that
 * to calibrate and half to test; AdaGrad over the rest, in an order shuffled anew each epoch by a keyed permutation. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"
#include "curate/model_file.h"
#include "curate/quality.h"

enum { TRAINS, CALIBRATES, TESTS };
struct example {
    uint64_t rank; /* of its bytes: the smallest of a kind are kept */
    int positive, role;
    uint32_t n;
    uint32_t *bucket;
    float *value;
    double sum; /* of the trained model, for what was held out */
};
struct quality_trainer {
    int grams, bits;
    int64_t most, n_of[2];
    struct example *e;
    int64_t n, room;
    float *weight, *square, bias, bias_square, slope, shift;
};

struct quality_trainer *quality_trainer_new(int grams, int bits, int64_t most_documents)
{
    struct quality_trainer *t = xcalloc(1, sizeof *t);
    t->grams = grams;
    t->bits = bits;
    t->most = most_documents;
    t->weight = xcalloc((size_t)1 << bits, sizeof *t->weight);
    t->square = xcalloc((size_t)1 << bits, sizeof *t->square);
    t->slope = 1;
    return t;
}

static void example_fini(struct example *x)
{
    xfree(x->bucket);
    xfree(x->value);
}

void quality_trainer_free(struct quality_trainer *t)
{
    if (!t) return;
    for (int64_t i = 0; i < t->n; i++) example_fini(&t->e[i]);
    xfree(t->e);
    xfree(t->weight);
    xfree(t->square);
    xfree(t);
}

static int by_rank(const void *a, const void *b)
{
    const struct example *x = a, *y = b;
    if (x->positive != y->positive) return x->positive - y->positive;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* Of each kind the `most` with the smallest hash stay; what is read between is kept until twice as many are there. */
static void trim(struct quality_trainer *t)
{
    if (t->n) qsort(t->e, (size_t)t->n, sizeof *t->e, by_rank);
    int64_t n = 0, seen[2] = {0, 0};
    for (int64_t i = 0; i < t->n; i++) {
        if (seen[t->e[i].positive]++ < t->most) t->e[n++] = t->e[i];
        else example_fini(&t->e[i]);
    }
    t->n = n;
    for (int k = 0; k < 2; k++) t->n_of[k] = seen[k] < t->most ? seen[k] : t->most;
}

void quality_trainer_feed(struct quality_trainer *t, bool positive, struct document *d)
{
    struct features f = quality_features(d, t->grams, t->bits);
    uint64_t hash = hash64(d->text.p, d->text.n);
    if (!f.n) return;
    GROW(t->e, t->n, t->room, 1);
    struct example *x = &t->e[t->n++];
    *x = (struct example){.rank = hash, .positive = positive, .n = (uint32_t)f.n};
    uint64_t part = (hash >> 17) % 10;
    x->role = part == 0 ? CALIBRATES : part == 1 ? TESTS : TRAINS;
    x->bucket = xmalloc(f.n * sizeof *x->bucket);
    x->value = xmalloc(f.n * sizeof *x->value);
    for (size_t i = 0; i < f.n; i++) x->bucket[i] = (uint32_t)f.bucket[i];
    memcpy(x->value, f.value, f.n * sizeof *f.value);
    if (++t->n_of[positive] >= 2 * t->most) trim(t);
}

static double sum_of(const struct quality_trainer *t, const struct example *x)
{
    const float *v = x->value;
    double sum = (double)t->bias;
    for (uint32_t i = 0; i < x->n; i++) sum += (double)t->weight[x->bucket[i]] * (double)v[i];
    return sum;
}

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

static void learn(struct quality_trainer *t, const struct example *x, float rate, float balance)
{
    const float *v = x->value;
    float error = (float)(sigmoid(sum_of(t, x)) - x->positive) * balance;
    for (uint32_t i = 0; i < x->n; i++) {
        float g = error * v[i], *square = &t->square[x->bucket[i]];
        *square += g * g;
        t->weight[x->bucket[i]] -= rate * g / (sqrtf(*square) + 1e-6f);
    }
    t->bias_square += error * error;
    t->bias -= rate * error / (sqrtf(t->bias_square) + 1e-6f);
}

/* Slope and shift that make sigmoid(slope * sum + shift) a probability: Newton's method on the log loss, with Platt's
 * targets that keep a perfect separation finite. */
static void calibrate(struct quality_trainer *t)
{
    double a = 1, b = 0, n_of[2] = {0, 0}, target[2];
    for (int64_t i = 0; i < t->n; i++)
        if (t->e[i].role == CALIBRATES) n_of[t->e[i].positive]++;
    if (n_of[0] < 1 || n_of[1] < 1) return;
    target[0] = 1 / (n_of[0] + 2);
    target[1] = (n_of[1] + 1) / (n_of[1] + 2);
    for (int step = 0; step < 100; step++) {
        double ga = 0, gb = 0, haa = 1e-9, hab = 0, hbb = 1e-9;
        for (int64_t i = 0; i < t->n; i++) {
            const struct example *x = &t->e[i];
            if (x->role != CALIBRATES) continue;
            double p = sigmoid(a * x->sum + b), g = p - target[x->positive], h = p * (1 - p);
            ga += g * x->sum;
            gb += g;
            haa += h * x->sum * x->sum;
            hab += h * x->sum;
            hbb += h;
        }
        double det = haa * hbb - hab * hab, da = (hbb * ga - hab * gb) / det, db = (haa * gb - hab * ga) / det;
        double size = fabs(da) + fabs(db), damp = size > 1 ? 1 / size : 1;
        if (!isfinite(size)) break;
        a -= damp * da;
        b -= damp * db;
        if (size < 1e-9) break;
    }
    t->slope = (float)a;
    t->shift = (float)b;
}

/* ---- how good it is ---- */

static int by_sum(const void *a, const void *b)
{
    const struct example *x = *(struct example *const *)a, *y = *(struct example *const *)b;
    return x->sum < y->sum ? -1 : x->sum > y->sum;
}

/* Of two texts, one of each kind, how often the good one has the larger sum (equal: half). */
static double area(struct example **x, int64_t n, double positives, double negatives)
{
    double below = 0, won = 0;
    if (n) qsort(x, (size_t)n, sizeof *x, by_sum);
    for (int64_t i = 0, k; i < n; i = k) {
        double good = 0, bad = 0;
        for (k = i; k < n && x[k]->sum <= x[i]->sum; k++) x[k]->positive ? good++ : bad++;
        won += good * (below + bad / 2);
        below += bad;
    }
    return positives * negatives > 0 ? won / (positives * negatives) : 0;
}

static void test(const struct quality_trainer *t, struct quality_result *r)
{
    enum { BINS = 10 };
    double right = 0, taken = 0, good_taken = 0, good = 0, bin_p[BINS] = {0}, bin_good[BINS] = {0}, bin_n[BINS] = {0};
    struct example **x = xcalloc((size_t)t->n + 1, sizeof *x);
    int64_t n = 0;
    for (int64_t i = 0; i < t->n; i++) {
        if (t->e[i].role != TESTS) continue;
        x[n++] = &t->e[i];
        double p = sigmoid((double)t->slope * t->e[i].sum + (double)t->shift), is = t->e[i].positive;
        int bin = p < 1 ? (int)(p * BINS) : BINS - 1;
        right += (p >= 0.5) == (is > 0.5);
        taken += p >= 0.5;
        good_taken += p >= 0.5 && is > 0.5;
        good += is;
        r->log_loss -= log(is > 0.5 ? p + 1e-300 : 1 - p + 1e-300);
        bin_p[bin] += p;
        bin_good[bin] += is;
        bin_n[bin]++;
    }
    r->tested = n;
    double all = n ? (double)n : 1;
    r->accuracy = right / all;
    r->precision = taken > 0 ? good_taken / taken : 0;
    r->recall = good > 0 ? good_taken / good : 0;
    r->log_loss /= all;
    for (int i = 0; i < BINS; i++) r->calibration += fabs(bin_p[i] - bin_good[i]) / all;
    r->area = area(x, n, good, (double)n - good);
    xfree(x);
}

static void write_model(const struct quality_trainer *t, struct str *out)
{
    uint32_t n = 0, before = 0;
    for (uint32_t i = 0; i < 1u << t->bits; i++) n += t->weight[i] < 0 || t->weight[i] > 0;
    model_put(out, (uint64_t)t->grams, 1);
    model_put(out, (uint64_t)t->bits, 1);
    model_put_real(out, t->bias);
    model_put_real(out, t->slope);
    model_put_real(out, t->shift);
    model_put(out, n, 4);
    for (uint32_t i = 0; i < 1u << t->bits; i++) {
        if (!(t->weight[i] < 0 || t->weight[i] > 0)) continue;
        model_put(out, i - before, 4);
        model_put_real(out, t->weight[i]);
        before = i;
    }
}

int quality_trainer_finish(struct quality_trainer *t, int epochs, struct str *out, struct quality_result *r,
                           struct err *e)
{
    trim(t);
    *r = (struct quality_result){.negative = t->n_of[0], .positive = t->n_of[1]};
    int64_t trains[2] = {0, 0};
    for (int64_t i = 0; i < t->n; i++) trains[t->e[i].positive] += t->e[i].role == TRAINS;
    if (trains[0] < 8 || trains[1] < 8)
        return err_set(e, ERR_REQUEST,
                       "too few texts to learn from: %lld positive and %lld negative; at least some dozens of each are "
                       "needed",
                       (long long)r->positive, (long long)r->negative);
    float both = (float)(trains[0] + trains[1]) / 2;
    for (int epoch = 0; epoch < epochs; epoch++)
        for (int64_t i = 0; i < t->n; i++) {
            const struct example *x = &t->e[rng_permute(1, rng_stream_at(rng_stream("curate/quality"), (uint64_t)epoch),
                                                        (uint64_t)t->n, (uint64_t)i)];
            if (x->role == TRAINS) learn(t, x, 0.3f, both / (float)trains[x->positive]);
        }
    for (int64_t i = 0; i < t->n; i++) t->e[i].sum = sum_of(t, &t->e[i]);
    calibrate(t);
    test(t, r);
    write_model(t, out);
    return OK;
}
