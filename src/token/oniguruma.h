/* SPDX-License-Identifier: Apache-2.0 */
/* oniguruma.h: any other regular expression, by the library that the reference uses (Oniguruma, named in oniguruma.c
 * only), with its syntax and options, and with our tables in place of the Unicode version that the library here happens
 * to have.
 *
 * It cannot say whether more text would change a match: texts are matched whole.
 * Includes: base. Order: Local; an onig is read-only, an onig_work belongs to one thread.
 */
#ifndef TUTTI_TOKEN_ONIGURUMA_H
#define TUTTI_TOKEN_ONIGURUMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct onig;
/* ERR_REQUEST: not an expression, or one whose meaning hangs on tables that we do not have (\X, \y, unknown
 * properties). The error does not name the place. */
int onig_new_pattern(struct onig **out, const char *text, size_t n, struct err *e);
void onig_free_pattern(struct onig *x);

struct onig_work;
struct onig_work *onig_work_new(void);
void onig_work_free(struct onig_work *w);

/* The first match in p[from..n), looking back to p[0): *found, p[*at..*end). *left: how often it may go back; about as
 * often as it did is taken off, nothing for a search that is short. ERR_REQUEST: the library gave up. */
int onig_find(const struct onig *x, struct onig_work *w, const unsigned char *p, size_t n, size_t from, int64_t *left,
              bool *found, size_t *at, size_t *end, struct err *e);

#endif
