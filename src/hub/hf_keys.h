/* SPDX-License-Identifier: Apache-2.0 */
/* hf_keys.h: which keys of a model's config.json tutti understands. For hf_config.c. Includes: base, hf_numbers.h.
 * Order: Local. */
#ifndef TUTTI_HUB_HF_KEYS_H
#define TUTTI_HUB_HF_KEYS_H

#include "hub/hf_numbers.h"

/* Every key of the config is one that is read, one that never changes the model's numbers, or one whose value is what
 * tutti computes; a key whose value is null is as good as absent. ERR_REQUEST names the first that is none of these,
 * with its value and what is wanted of it. Keys named in `ignore` (NULL: none) are passed over, unless they are
 * read. */
int hf_keys_check(enum hf_family family, const struct json *config, const struct hf_ignore *ignore, const char *what,
                  struct err *e);
/* The same of an object inside of it, or of LLaVA's: of enum spelling's places (model/numbers.h). */
int hf_keys_check_in(unsigned in, const struct json *config, const struct hf_ignore *ignore, const char *what,
                     struct err *e);
/* The same for the object of rotary positions: `key` is its name, `in` its kind (IN_DEFAULT, IN_LLAMA3, IN_YARN).
 * Members are named "rope_scaling.factor" in `ignore` and in errors. */
int hf_keys_check_rope(enum hf_family family, const struct json *rope, const char *key, unsigned in,
                       const struct hf_ignore *ignore, const char *what, struct err *e);
/* What the tables say of a key. For tests, which hold them against lists of the libraries' own. */
enum hf_key_kind { HF_KEY_UNKNOWN, HF_KEY_READ, HF_KEY_ONE_VALUE, HF_KEY_HARMLESS };
enum hf_key_kind hf_key_kind(unsigned in, const char *name);
/* A value as errors show it, cut short. */
void hf_print_value(struct str *s, const struct json *v);
/* Keys with one value only that their libraries want to see. */
void hf_keys_add(struct hf_puts *s, unsigned in);

#endif
