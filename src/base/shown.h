/* SPDX-License-Identifier: Apache-2.0 */
/* shown.h: text of others as it may stand on a screen. A key of a JSON line, a member of an archive, the name of a
 * tensor or of a run may hold what a terminal obeys; here it is spelt instead. One function says how, and all that
 * tutti writes for people goes through it: the log (log.c), and stdout and stderr of the program (cli/screen.h).
 * Includes: base. Order: Local.
 */
#ifndef TUTTI_BASE_SHOWN_H
#define TUTTI_BASE_SHOWN_H

#include <stdbool.h>

#include "base/str.h"

/* Control characters but newline and tab, the upper ones among them, become \x1b and the like, what turns the direction
 * of writing \u202e, bytes that are no UTF-8 \xff. newlines: they and tabs stay; else they are spelt, too. */
void shown_put(struct str *out, const char *p, size_t n, bool newlines);
/* Whether a character is spelt: newline and tab are, too. JSON spells the same ones, in its own way, so what is printed
 * of it stays as it is. */
bool shown_spelt(uint32_t c);
/* How many bytes at the end of these begin a character that goes on behind them. */
size_t shown_rest(const char *p, size_t n);

#endif
