/* SPDX-License-Identifier: Apache-2.0 */
/* hf_numbers.h: a model's numbers in and out of config.json, by the spellings that the rows of a table give them. For
 * hf_config.c, hf_config_put.c and hf_keys.c. Includes: base, model, hf.h. Order: Local.
 */
#ifndef TUTTI_HUB_HF_NUMBERS_H
#define TUTTI_HUB_HF_NUMBERS_H

#include "hub/hf.h"

/* Numbers that only their files have: dropouts beside ours, the spread of initial weights. Offsets are in struct
 * hf_model; those of model_numbers are in its member `model`. */
extern const struct number hf_more_numbers[];

/* Every number of the rows with a spelling in `in` (families or kinds of object, as in struct spelling), from object to
 * base; what the object leaves out is the spelling's default. object NULL: all of them are, and none is missed.
 * ERR_REQUEST names `what`, the key and the range of the number's row. */
int hf_numbers_read(void *base, const struct number *rows, const struct json *object, unsigned in, const char *what,
                    struct err *e);

/* The object has that member, and it is not null. */
bool hf_given(const struct json *object, const char *key);
/* The number that is spelt so there; NULL: none. */
const struct number *hf_number_spelt(const char *key, unsigned in);
/* The place of a word in "a|b|c"; -1: it is none of them. */
int hf_word(const char *words, const char *word);

/* What is written, in the order of `at` and, of equals, of adding. */
struct hf_put {
    int at;
    const char *key;
    void (*put)(struct json_out *o, const struct hf_put *p);
    const void *of; /* the value, or what it is made of */
    const struct number *number;
};
enum { HF_PUTS = 96 };
struct hf_puts {
    struct hf_put p[HF_PUTS];
    int n;
};
void hf_puts_add(struct hf_puts *s, struct hf_put p);
/* p's number under p's key. */
void hf_put_value(struct json_out *o, const struct hf_put *p);
/* base outlives s. */
void hf_puts_add_numbers(struct hf_puts *s, const void *base, const struct number *rows, unsigned in);
void hf_puts_write(const struct hf_puts *s, struct json_out *o);

#endif
