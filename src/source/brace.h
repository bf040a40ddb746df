/* SPDX-License-Identifier: Apache-2.0 */
/* brace.h: several names written as one, as shells and WebDataset do: shard-{000..099}.tar, {train,valid}.jsonl.
 * Includes: base. Order: Local. */
#ifndef TUTTI_SOURCE_BRACE_H
#define TUTTI_SOURCE_BRACE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum { BRACE_NAMES_MAX = 1 << 20 };

bool brace_has(const char *pattern); /* there is something to expand */
/* All names, in order: the last braces run fastest. {A..B}: whole numbers from A to B, up or down, with A's digits kept
 * (000, 001, ...); {x,y}: these. Free with brace_free. ERR_REQUEST: braces that do not close or hold something else, or
 * more than BRACE_NAMES_MAX names. */
int brace_expand(const char *pattern, char ***names, int64_t *n, struct err *e);
void brace_free(char **names, int64_t n);

#endif
