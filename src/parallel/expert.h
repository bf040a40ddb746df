/* SPDX-License-Identifier: Apache-2.0 */
/* expert.h: expert parallelism: experts are shared out over ep, and a token's copies travel to where their experts are.
 *
 * par_dispatch takes a buffer of rows sorted by expert (PERMUTE) and how many each expert has; on every rank it gives
 * the rows of all ranks for the experts here, again sorted by expert (and by source rank inside one, or in the order
 * that choice->order says), and their numbers. par_combine brings results of such rows back to where they came from,
 * into the order of the first buffer.
 *
 *   call           forward      moves                                   backward
 *   par_dispatch   I -> S0      numbers, then rows: two all-to-alls     combine of the gradients
 *                               (in rounds: an all-gather of numbers)
 *   par_combine    S0 -> I      rows: one all-to-all                    dispatch of the gradients
 *
 * Where several ranks share the columns of an expert, and tp's other ranks have other tokens (1 < etp < tp), a row goes
 * to each of them (over etp I -> R), and what comes back is added up (P -> I), in fp32 and in the ranks' order, as the
 * gradients are.
 *
 * Buffers are sized for the worst choice: with n ranks (ep, times these etp), T tokens on the fullest, k choices, E'
 * experts here, n T min(k, E') rows, or m E' capacity S where a capacity limits S sequences and the n ranks hold tokens
 * of m microbatches (less than n where they share a sequence: cp, and tp with whole experts); or for some rows at a
 * time (struct expert_room). How many rows travel is the router's: on the null device the choice counts as even. Rows
 * beyond the used ones are zero. Source: Lepikhin et al. 2021 (GShard); Hwang et al. 2023 (Tutel) for exchanging
 * numbers first. Floors 0-3. Order: Collective over the group at par_run.axis[AXIS_EP] when the program runs: ep, and
 * inside it these ranks of etp.
 */
#ifndef TUTTI_PARALLEL_EXPERT_H
#define TUTTI_PARALLEL_EXPERT_H

#include "parallel/parallel.h"
#include "parallel/run.h"

struct dispatched {
    tid z_WD, rows_E;   /* rows for the experts here, and how many each has */
    tid sent_E, from;   /* what the way back needs */
    int64_t n_sent;     /* rows of the buffer that was dispatched */
    int64_t n_expected; /* rows here when the choice is even */
    struct dispatch_attrs at;
};
/* How large the buffer of dispatched rows is, where the worst choice is larger: so many times the even share, but not
 * below `least` rows. Then rows come in rounds (tape.h, waves; waves.h). even 0: for the worst choice, always. */
struct expert_room {
    double even;
    int64_t least;
    bool in_order; /* an expert's rows of a microbatch lie as on one rank, also where cp shares out its sequences:
                      blocks of recipes of fewer bits lie across them (source_order) */
};
/* The order that PERMUTE and par_dispatch are to keep of `sequences` sequences; none where rows of a microbatch do not
 * come together, or lie as on one rank in any case. */
struct source_order par_source_order(const struct par *p, int64_t sequences, struct expert_room room);
/* choice: PERMUTE's; tokens: of the fullest rank. Experts are cut by region_split. In rounds (d.at.waves) the waves of
 * the tape are open from here to par_combine. */
struct dispatched par_dispatch(struct tape *t, const struct par *p, tid y_UD, tid rows_E,
                               const struct permute_attrs *choice, int64_t tokens, struct expert_room room);
tid par_combine(struct tape *t, const struct par *p, tid z_WD, const struct dispatched *d);

/* OP_DISPATCH and OP_COMBINE, both phases, and their scratch; called by parallel/run.c. begin: rows are on their way
 * when it returns (the numbers of a dispatch, out[1] and out[2], are there); end: they have arrived, and lie by
 * expert. */
int64_t expert_begin(struct par_run *x, struct stream *s, const struct kernel_call *c);
void expert_end(struct par_run *x, struct stream *s, const struct kernel_call *c, int64_t ticket);
size_t expert_scratch(const struct kernel_call *c);
/* For program_args.ranks: the rounds of a DISPATCH whose numbers are there. */
int64_t expert_rounds(struct par_run *x, struct stream *s, const struct kernel_call *c);

#endif
