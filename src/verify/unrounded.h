/* SPDX-License-Identifier: Apache-2.0 */
/* unrounded.h: a config with nothing in it that rounds to fewer bits than fp32. Where a layout's bounds are wide
 * because of what is rounded in it, they let half an update pass; so such a layout runs once more in fp32, without a
 * codec and with the moments that it has, beside one rank that does so too, and then differs by the order of its sums
 * (and what moments make of it) alone. What it does on its axes, and who steps what by which factor, is the same
 * program; what is only in the path that rounds stays within the wide bounds. Floor 11. Order: Local.
 */
#ifndef TUTTI_VERIFY_UNROUNDED_H
#define TUTTI_VERIFY_UNROUNDED_H

#include "verify/verify.h"

struct config unrounded_of(const struct config *c);
/* Whether a layout's bounds say little of it: of several ranks, and a gradient may be off by more than bf16's sums, or
 * a step by a quarter of itself. */
bool unrounded_is_wanted(const struct config *c);
/* Runs of q's layouts those that are wanted, unrounded, and enters in v what was found. What such a config is refused
 * for is said in v, and is no error; whatever else goes wrong is one. */
int unrounded_run(struct verify *v, const struct verify_asked *q, struct err *e);

#endif
