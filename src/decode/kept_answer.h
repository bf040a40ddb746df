/* SPDX-License-Identifier: Apache-2.0 */
/* kept_answer.h: an answer (decode/batching.h) that is kept until it is at its end, for those that write many and tell
 * them in order. Floor 8. Order: Local.
 */
#ifndef TUTTI_DECODE_KEPT_ANSWER_H
#define TUTTI_DECODE_KEPT_ANSWER_H

#include "base/str.h"
#include "decode/batching.h"

struct kept_answer { /* all zero: nothing yet */
    struct str said;
    bool done;
    enum answer_end why;
    struct answer_counts counts;
    struct err err; /* why FAILED */
};

void kept_answer_keep(struct answer_spec *s, struct kept_answer *x); /* x stays until it is done or cancelled */
void kept_answer_free(struct kept_answer *x);

#endif
