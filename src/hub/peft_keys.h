/* SPDX-License-Identifier: Apache-2.0 */
/* peft_keys.h: which keys of adapter_config.json tutti understands. For peft.c. Includes: base. Order: Local. */
#ifndef TUTTI_HUB_PEFT_KEYS_H
#define TUTTI_HUB_PEFT_KEYS_H

#include "base/err.h"
#include "base/json.h"

/* Every key is one that is read, one whose values all give the same numbers, or one that asks for nothing (null,
 * false, 0 members, "none"). ERR_REQUEST names the first that is none of these, and what to do. */
int peft_keys_check(const struct json *config, const char *path, struct err *e);
/* Whether the table has a row for it. For tests: what is in no row is refused where it asks for anything. */
bool peft_keys_know(const char *key);

#endif
