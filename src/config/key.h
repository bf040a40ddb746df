/* SPDX-License-Identifier: Apache-2.0 */
/* key.h: one key of the config by its name: its row, its value, where it came from. For who goes through tables of
 * keys. Floor 7. Order: Local.
 */
#ifndef TUTTI_CONFIG_KEY_H
#define TUTTI_CONFIG_KEY_H

#include "config/config.h"

const struct conf_row *key_row(const char *key); /* a key that is none is a bug */
void *key_value(const struct conf_row *r, struct config *c);
/* Numbers, truths, choices and texts; lists have no value of one word (a bug). */
size_t key_bytes(const struct conf_row *r);
bool key_same(const struct conf_row *r, const void *a, const void *b);
const char *key_show(const struct conf_row *r, const void *v, char out[64]);
/* A file or the command line gives it; a number that is written as null is not given. */
bool key_given(const struct conf *f, const struct conf_row *r, const void *v);

#endif
