/* SPDX-License-Identifier: Apache-2.0 */
/* by_place.h: which operations go by a token's place in its sequence, so that whoever puts tokens in another order
 * (layout/document_order.h) can ask. Floors 0-1 and kernel.h only. Order: Local.
 */
#ifndef TUTTI_KERNEL_BY_PLACE_H
#define TUTTI_KERNEL_BY_PLACE_H

#include "kernel/attention_heads.h"

/* Why an operation on a tape of training needs every token at its own place; NULL: it gives the same where documents
 * that do not see each other stand in another order, each in its own. told: its input ATTENTION_TOKEN is there. */
const char *op_by_place(enum op op, const struct op_attrs *at, bool told);

#endif
