/* store.h: the buffers behind the table of parameters: compute copy, fp32 master, fp32 gradients, moments.
 *
 *   recipe   param  master  grad  moments (AdamW)   bytes per parameter
 *   fp32     4      -       4     8                 16
 *   bf16     2      4       4     8                 18
 *
 * Invariants
 *   1. Every buffer holds the parameters in the table's order without padding: bytes = count x width, exactly.
 *   2. Without a master of its own, the parameters are the master.
 * Floors 0-2. Order: Local.
 */
#ifndef TUTTI_STATE_STORE_H
#define TUTTI_STATE_STORE_H

#include "device/device.h"
#include "kernel/kernel.h"
#include "state/param.h"

enum { STORE_MAX_MOMENTS = 2 };

struct store {
    const struct param_table *table; /* borrowed */
    struct device *dev;
    enum dtype dtype; /* of the compute copy */
    int n_moments;
    bool has_grad;
    struct buffer param, master, grad, moment[STORE_MAX_MOMENTS];
};

/* training = false: the compute copy only (generation, evaluation). */
int store_new(struct store *s, const struct param_table *t, struct device *d, enum dtype dtype, bool training,
              int n_moments, struct err *e);
void store_free(struct store *s);

/* Initial values into master and compute copy; moments zero. */
void store_init(struct store *s, const struct kernel_table *k, struct stream *st, uint64_t seed);
/* Where the fp32 truth lies: the master, or the parameters themselves. */
const struct buffer *store_master(const struct store *s);
/* Host copies of one parameter's elements: what = 0 master (fp32), 1.. moments. The compute copy follows a write to
 * the master. */
void store_read(const struct store *s, struct stream *st, int param, int what, float *out);
void store_write(struct store *s, const struct kernel_table *k, struct stream *st, int param, int what,
                 const float *in);
void *store_param_ptr(const struct store *s, int param); /* device pointers for binding slots; NULL on null */
void *store_grad_ptr(const struct store *s, int param);

#endif
