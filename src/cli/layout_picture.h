/* layout_picture.h: tutti explain CONFIG layout --svg FILE: which rank has what, as a picture. */
#ifndef TUTTI_CLI_LAYOUT_PICTURE_H
#define TUTTI_CLI_LAYOUT_PICTURE_H

#include "run/config.h"

enum { PICTURE_RANKS = 16 }; /* at most */

/* An SVG: a column per rank; rows are the tokens of a step, the layers, and the parameters of one layer of each kind. Every
 * rank is built on the null device. c is resolved for n ranks. Local. */
int layout_picture(const struct config *c, int n, struct str *out, struct err *e);

#endif
