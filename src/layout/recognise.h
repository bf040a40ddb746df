/* SPDX-License-Identifier: Apache-2.0 */
/* recognise.h: what of several tensors' routes is a collective.
 *
 *   fan   one rank sends the same boxes of the same tensors to each of several others: a broadcast. Of n bytes to k
 *         ranks the sender's link carries 2n k/(k+1) at most instead of k n
 *   sum   one rank gets the same boxes from each of several others, one term of a sum owed from each, in the order of
 *         their ranks, and none from itself: a reduction. It holds one message at a time instead of k
 *
 * Both are found in the messages themselves, not in letters, so the two layouts may be on different meshes (servers and
 * workers). Who carries routes out often runs them as what they are (state/route_run.h); gathers between equal
 * neighbours stay messages, since they carry the same bytes over each link. Floor 1; includes base only. Order: Local;
 * the same routes give the same list on every rank.
 */
#ifndef TUTTI_LAYOUT_RECOGNISE_H
#define TUTTI_LAYOUT_RECOGNISE_H

#include "layout/route.h"

enum known_kind { KNOWN_FAN, KNOWN_SUM };
struct known {
    enum known_kind kind;
    int root;     /* who sends to all; who gets the sum */
    int n, *rank; /* the others, ascending: two at least */
};
struct known_list {
    struct known *p;
    int n;
};

/* Of n routes over n_ranks ranks. A rank that also sends something else to somebody is no root of a fan, one that also
 * receives something else is none of a sum. */
void recognise(struct known_list *k, const struct route *const *r, int n, int n_ranks);
void known_free(struct known_list *k);
/* "fan 4 to 0, 1, 2; sum 0, 1, 2 to 4", "nothing". */
void known_print(const struct known_list *k, struct str *out);

#endif
