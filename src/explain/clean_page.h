/* SPDX-License-Identifier: Apache-2.0 */
/* clean_page.h: the report of `tutti data clean` as one HTML file that needs nothing beside it. Every text that comes
 * from documents, rules or names of files is escaped. Order: Local. */
#ifndef TUTTI_EXPLAIN_CLEAN_PAGE_H
#define TUTTI_EXPLAIN_CLEAN_PAGE_H

#include "base/str.h"
#include "curate/clean_pass.h"

void clean_page(const char *title, const char *rules, const struct pass_result *r, struct str *out);

#endif
