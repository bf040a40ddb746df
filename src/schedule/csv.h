/* SPDX-License-Identifier: Apache-2.0 */
/* csv.h: reading a schedule from a table of cells (csv.c says how it looks). Internal to schedule/; others call
 * schedule_parse, which tells the two forms apart. Floor 1. Order: Local. */
#ifndef TUTTI_SCHEDULE_CSV_H
#define TUTTI_SCHEDULE_CSV_H

#include "schedule/schedule.h"

int schedule_parse_csv(struct schedule **out, const char *text, const char *what, struct err *e);

#endif
