/* SPDX-License-Identifier: Apache-2.0 */
/* scan.h: state spaces where the tokens of a sequence lie on several ranks of cp: what comes before each rank's pieces
 * (kernel/pieces.h) is fetched, everything else is done where it lies.
 *
 *   the convolution   needs the K - 1 rows before a piece. Every rank sends the last rows of its pieces to all
 *                     (all-gather), and takes those that stand before its own.
 *   the scan          needs the state before a piece. A rank runs over its pieces from zero states, and sends to all
 *                     what comes out with what a state before would be multiplied by; each then goes through all pieces
 *                     in the sequence's order up to its own (Dao and Gu 2024, section 8.2), and scans them again, from
 *                     there.
 *
 *   sent per rank and layer, forward, of B sequences on n ranks:  2 (n - 1) B ((K - 1) C + H (A N + 1)) numbers
 *
 * however long the sequence is. Backward sends gradients of the same back (reduce-scatter). All of it are rows of the
 * tape: the states that travel are as many as pieces, none per token. Rejected: passing one state from rank to rank (n
 * times less memory for ends; but as many messages one after the other as there are pieces, and ranks in the middle
 * would wait for those at both ends).
 * Order: Collective over cp when the program runs. Floors 0-3.
 */
#ifndef TUTTI_PARALLEL_SCAN_H
#define TUTTI_PARALLEL_SCAN_H

#include "parallel/parallel.h"

/* x: S0 over cp. a.at: filled in here but for batch and seq. doc_W: ids of all tokens in order, or TID_NONE. */
tid par_conv(struct tape *t, const struct par *p, tid x_TC, tid w_CK, tid b_C, tid doc_W, struct conv_attrs a,
             const char *name);
tid par_scan(struct tape *t, const struct par *p, tid x, tid bc, tid s, tid skip_H, tid doc_W, struct scan_attrs a,
             const char *name);

#endif
