/* SPDX-License-Identifier: Apache-2.0 */
/* several.h: the validation of several runs in one picture that stands by itself, and their last values as a table.
 * Floor 11; includes chart.h. Order: Local.
 */
#ifndef TUTTI_REPORT_SEVERAL_H
#define TUTTI_REPORT_SEVERAL_H

#include "base/err.h"
#include "report/chart.h"

/* Curves of runs (directories; their last words are the names) into svg; rows of a table, Markdown, into table: each
 * run's validation at the last step that the first was validated at too, and by how much it is above the first's there.
 * At most CHART_LINES runs. */
int several_draw(const char *const *runs, int n, struct str *svg, struct str *table, struct err *e);

#endif
