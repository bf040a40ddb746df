/* SPDX-License-Identifier: Apache-2.0 */
/* layout_picture.h: tutti explain CONFIG layout --svg FILE: which rank has what, as a picture. Floor 11. Order:
 * Local. */
#ifndef TUTTI_EXPLAIN_LAYOUT_PICTURE_H
#define TUTTI_EXPLAIN_LAYOUT_PICTURE_H

#include "config/config.h"

/* An SVG: a column per rank, of many ranks those that differ, with bands for those that are alike; rows are the tokens
 * of a step, the layers, and the parameters of one layer of each kind. c is resolved for n ranks. Local. */
int layout_picture(const struct config *c, int n, struct str *out, struct err *e);

#endif
