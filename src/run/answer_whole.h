/* SPDX-License-Identifier: Apache-2.0 */
/* answer_whole.h: an answer (run/answering.h) that is kept until it is at its end, for those that write many and tell
 * them in order. Floor 8. Order: Local.
 */
#ifndef TUTTI_RUN_ANSWER_WHOLE_H
#define TUTTI_RUN_ANSWER_WHOLE_H

#include "base/str.h"
#include "run/answering.h"

struct answer_whole { /* all zero: nothing yet */
    struct str said;
    bool done;
    enum answer_end why;
    struct answer_counts counts;
    struct err err; /* why FAILED */
};

void answer_whole_keep(struct answer_spec *s, struct answer_whole *x); /* x stays until it is done or cancelled */
void answer_whole_free(struct answer_whole *x);

#endif
