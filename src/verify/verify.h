/* SPDX-License-Identifier: Apache-2.0 */
/* verify.h: every legal layout of a config, trained for a few steps beside one plain rank, and compared: every
 * parameter's gradient, what the steps made of it and of the optimizer's arrays, the gradient norm, the loss, the loss
 * of an evaluation on other tokens, and the step after going on from a checkpoint that another layout saved, whose
 * every bit must have arrived (compare.h). And the config's own layout, whatever it says of chunks, rounds and layers.
 *
 * The same engine, executor and communicator that train run here, with ranks as threads and random tokens (some targets
 * untrained, so that masks count). The oracle is one rank that does nothing twice and puts nothing away: no recompute,
 * no offload, no codec, whatever the config says of them. The layouts have all of that.
 *
 * In every run, the oracle's among them: the learning rate is the config's without its warm-up, that steps are as large
 * as they become; Adam's eps is at least a tenth of the gradient's mean size, and said, because it makes full steps of
 * rounding. With scales from earlier steps gradients are those of the second step: in the first scales are 1.
 * Layouts of one data-parallel size that differ by their zero level must have the same bits, and one rank with all that
 * saves memory those of the oracle.
 * A layout whose bounds are wide because of what is rounded in it runs once more with nothing rounded (unrounded.h).
 * Kernels are those that training would use; one rank, and a few of the layouts, run with the plain loops (ref) too,
 * which is compared among itself, and one rank with one rank. Routers in bf16 repeat the oracle's choices (replay.h).
 * Floor 11; may use run/. Order: Local: starts its ranks itself.
 */
#ifndef TUTTI_VERIFY_VERIFY_H
#define TUTTI_VERIFY_VERIFY_H

#include "config/config.h"
#include "verify/trained.h"

struct verify_layout {
    char layout[96]; /* "dp4 zero1", "dp4 replicate2 zero3" */
    int n_ranks;
    bool own;              /* the config's own */
    double bound;          /* for what max_rel_error is */
    double bound_totals;   /* for the errors of its losses and norms */
    double max_rel_error;  /* over gradients and values, the one nearest to its bound */
    char tensor[112];      /* where: "gradient of wq", "value of wq", or what the layout did not do */
    double step_rel_error; /* over what the steps made of values, of the optimizer's arrays, of the average */
    double bound_steps;
    double lean; /* of gradients and steps, in parts of what chance may make of it (compare.h) */
    char lean_tensor[112];
    char step_tensor[112]; /* where: "step of wq", "ema of wq" */
    bool bit_identical;    /* to the oracle: gradients, values, losses */
    double loss_rel_error; /* largest over the steps */
    double norm_rel_error;
    int64_t comm_bytes;    /* sent by rank 0 in one step */
    int64_t peak_bytes;    /* of rank 0's ledger */
    uint64_t bits;         /* hash of gradients, values and losses: equal for layouts with equal bits */
    double eval_rel_error; /* of the evaluation's loss */
    char resumed[96]; /* the layout whose checkpoint it went on from; "": layouts that hold their state as one before
                         are not asked */
    bool resume_identical;   /* every value and moment arrived, bit for bit */
    double resume_rel_error; /* of the next step's values and loss */
    double bound_resumed;
    double ref_rel_error;       /* of this layout with plain loops, beside one rank with them; -1: not run */
    bool ref_ok;                /* and within the bounds */
    double unrounded_rel_error; /* of this layout with nothing rounded (unrounded.h); -1: not run */
    double unrounded_over;      /* the worst, in parts of its bound; INFINITY: it was not complete */
    bool unrounded_ok;
    char unrounded_where[112];
    double trained_rel_error; /* of the trainer itself in this layout, beside it on one rank (trained.h); -1: not run */
    char trained_where[320];  /* "grad_norm of line 2", or with what it ended */
    int64_t answer_tokens;    /* that were written and learned (answers.h); 0: none */
    int64_t answers_unlike;   /* of those: in training with other bits */
    double answers_most;      /* by so many nats at most */
    bool answers_identical;   /* every rank wrote, with the initial weights, what one rank writes */
    int64_t routed, elsewhere; /* choices of routers, and those that were free to be and were not the oracle's */
    bool complete; /* it made its steps, its replicas agree, what it read is what was saved, and bits that must be are
                      the oracle's */
    bool ok;       /* and all is within its bounds */
};
struct verify {
    bool ok;
    int n_trained;          /* layouts in which the trainer itself ran too */
    char untrained[400];    /* why it ran in none; "": it did, or nobody gave its config */
    char rounded_only[400]; /* why wide layouts did not run unrounded; "": they did, or there were none */
    double ref_rel_error;   /* one rank with plain loops beside one rank with training's kernels */
    bool replayed;          /* routers repeated the oracle's choices */
    double loss;            /* of one rank after the last step */
    double bound;           /* where only whole sequences are shared out */
    int left_out;           /* of the steps, by fp16, on one rank; a layout that leaves out others is not equal */
    double eps; /* of Adam in every run: the config's, or what gradients that are rounding drown in; 0: no Adam */
    struct verify_layout *layout;
    int n, room;
};

/* Which layouts: those that share out work along these axes and no other; one rank, run twice, is always among them. ep
 * takes its ranks from dp, cp and tp, so alone it has no layout. */
enum verify_axes {
    VERIFY_TP = 1,
    VERIFY_CP = 2,
    VERIFY_PP = 4,
    VERIFY_EP = 8,
    VERIFY_SERVERS = 16,
    VERIFY_DP = 32,
    VERIFY_ALL = 63
};
/* "dp,tp"; false: another word is among them. */
bool verify_axes_parse(const char *text, unsigned *axes);

struct layouts;
struct verify_asked {
    const struct config *config; /* resolved for one rank */
    const struct config *own;    /* resolved for the ranks of its own layout, which is compared first; NULL: not */
    const struct trained_asked *trains; /* what the trainer itself reads; NULL: it does not run */
    int max_ranks;                      /* layouts of up to so many; 0: none but own */
    const struct layouts *only;         /* these of them (layouts.h); NULL: all */
    unsigned axes;                      /* of enum verify_axes */
    int steps;                          /* >= 1 */
    const struct config *rounded; /* layouts that are wide in this config, and no others; NULL: all (unrounded.h) */
};
/* ERR_* only when something could not run, or when no layout of several ranks uses only these axes; differences are in
 * v. */
int verify_all(struct verify *v, const struct verify_asked *q, struct err *e);
int verify_run(struct verify *v, const struct config *c, int max_ranks, unsigned axes, int steps, struct err *e);
void verify_free(struct verify *v);
void verify_print(const struct verify *v, struct str *out);
void verify_json(const struct verify *v, struct str *out);

#endif
