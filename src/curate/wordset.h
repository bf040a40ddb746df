/* SPDX-License-Identifier: Apache-2.0 */
/* wordset.h: words in a set that is asked for every word of every document; from options and from files of one word or
 * phrase a line. Includes: base. Order: Local; any number of threads may ask. */
#ifndef TUTTI_CURATE_WORDSET_H
#define TUTTI_CURATE_WORDSET_H

#include <stddef.h>
#include <stdint.h>

#include "base/conf.h"

struct wordset {
    char **word;
    int n, room;
    int *slot; /* index + 1 */
    size_t mask, longest;
};
void wordset_add(struct wordset *s, const char *p, size_t n);       /* twice is once; empty: nothing */
void wordset_settle(struct wordset *s);                             /* after the last, before asking */
int wordset_find(const struct wordset *s, const char *p, size_t n); /* its index, or -1 */
uint64_t wordset_key(const struct wordset *s);
void wordset_fini(struct wordset *s);

/* Words of a list of option values (struct wordset_item), for a conf row. */
struct wordset_item {
    const char *word;
};
extern const struct conf_row wordset_rows[];
#define WORDSET_LIST                                                                                                   \
    .type = CONF_LIST, .item = wordset_rows, .item_bytes = sizeof(struct wordset_item), .item_short = "word"
void wordset_add_list(struct wordset *s, const struct conf_list *l);
/* Lines of a file, without white space around them; empty ones and what begins with # count for nothing. Errors begin
 * with `where`. */
int wordset_add_file(struct wordset *s, const char *path, const char *where, struct err *e);

#endif
