/* lines.h: files of one JSON object a line that a run adds to now and then: samples.jsonl, starts.jsonl.
 * Floor 6. Order: Local to the rank that reports.
 */
#ifndef TUTTI_RUN_LINES_H
#define TUTTI_RUN_LINES_H

#include "base/err.h"
#include "base/str.h"

/* Adds the line, and its end, to dir/name in one write. */
int lines_append(const char *dir, const char *name, const struct str *line, struct err *e);

#endif
