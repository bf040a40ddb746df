/* SPDX-License-Identifier: Apache-2.0 */
/* timing_impl.h: what timing_read.c reads and timing.c counts. Not for other rooms. */
#ifndef TUTTI_REPORT_TIMING_IMPL_H
#define TUTTI_REPORT_TIMING_IMPL_H

#include "report/timing.h"

enum timing_span_kind { SPAN_STEP, SPAN_ACTION, SPAN_KERNEL, SPAN_CALL, SPAN_OTHER };
struct timing_span { /* on a rank's own thread, in ns of the file */
    int64_t from, to;
    enum timing_span_kind kind;
    int32_t what;  /* ACTION: enum time_action; KERNEL: index of its operation, -1 none */
    bool waits;    /* CALL: it waited, else it started an operation or moved bytes */
    uint64_t of;   /* CALL: of which group and ticket; 0: of none */
    int64_t step;  /* STEP */
    int32_t stage; /* ACTION */
};
struct timing_part { /* of an operation between ranks */
    uint64_t id, of; /* the same at all ranks; group and ticket at this one */
    int64_t from;
    int rank;
};
struct rank_lines {
    struct timing_span *span;
    int64_t n, room;
    int64_t whole_from; /* ns: everything that ended later is in the file */
    bool there;
};
struct timing_lines {
    struct timing *t;
    struct rank_lines *rank;
    struct timing_part *part;
    int64_t n_parts, room_parts;
    bool begun; /* the first line was a trace's */
};

enum { TIMING_RANKS = 1 << 16 };
int lines_read_file(struct timing_lines *x, const char *path, struct err *e);
int lines_read_text(struct timing_lines *x, const char *text, size_t n, const char *what, struct err *e);
void lines_free(struct timing_lines *x);

#endif
