/* plan.h: what a config will cost, from the program that trains: the engine is built and stepped on the null device,
 * and its ledger, its FLOPs and its schedule are read off. Nothing is estimated twice: predicted bytes are the bytes
 * that training allocates, exactly.
 * Floor 6; may use run/. Order: Local.
 */
#ifndef TUTTI_PLAN_PLAN_H
#define TUTTI_PLAN_PLAN_H

#include "run/config.h"
#include "run/engine.h"

struct plan {
    int64_t params;
    double flops_per_step;  /* what is computed: recomputation counts */
    double flops_per_token; /* per token of the batch, without recomputation */
    size_t bytes[MEM_N];    /* at the peak, of the rank that needs most */
    size_t peak_bytes;
    int64_t tokens_per_step;
    int64_t act_bytes_microbatch; /* what one microbatch keeps from forward to backward */
    int n_ranks;
};

int plan_make(struct plan *p, const struct config *c, struct err *e);
void plan_print(const struct plan *p, const struct config *c, struct str *out);
void plan_json(const struct plan *p, const struct config *c, struct str *out);

#endif
