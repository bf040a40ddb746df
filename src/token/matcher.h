/* SPDX-License-Identifier: Apache-2.0 */
/* matcher.h: a regular expression with Oniguruma's meaning, matched by pattern.h where that can, else by Oniguruma
 * itself.
 *
 * Includes: base. Order: Local; a matcher is read-only, a matcher_work belongs to one thread.
 */
#ifndef TUTTI_TOKEN_MATCHER_H
#define TUTTI_TOKEN_MATCHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct matcher;
/* ERR_REQUEST for an expression that is none, or whose meaning we cannot be sure to share with the reference (unknown
 * properties, \X). `what` names its place in errors. general: by Oniguruma, also where pattern.h could do it. */
int matcher_new(struct matcher **m, const char *pattern, size_t n, bool general, const char *what, struct err *e);
void matcher_free(struct matcher *m); /* NULL is fine */
/* Oniguruma cannot say whether more text would change a match: a text is brought to matcher_find whole. */
bool matcher_needs_whole_text(const struct matcher *m);
/* pattern_parts_before (pattern.h) where pattern.h matches; else false. */
bool matcher_parts_before(const struct matcher *m, int k, uint32_t before, bool *begins);

struct matcher_work;
struct matcher_work *matcher_work_new(void);
void matcher_work_free(struct matcher_work *w); /* NULL is fine */

/* One search: a match p[from..to); undecided: more text might change what is found, no match begins before `from`;
 * or neither: no match. */
struct found {
    bool match, undecided;
    size_t from, to;
};
/* The first match in the valid UTF-8 p[at..n). ERR_REQUEST: the matcher gave up, on this search or because all searches
 * of w together went back more often than the text that they passed is worth (token_bounds.h). */
int matcher_find(const struct matcher *m, struct matcher_work *w, const unsigned char *p, size_t n, size_t at,
                 bool final, struct found *f, struct err *e);

#endif
