/* SPDX-License-Identifier: Apache-2.0 */
/* contamination.h: texts that must not be trained on (benchmarks), as the set of their n-grams, and where a document
 * has one (Brown et al., "Language models are few-shot learners", 2020, appendix C).
 *
 * Words are those of the normal form "words" (normal.h), so case, marks and spaces do not hide a text. A benchmark's
 * text of fewer than n words, but of `least` at least, is one n-gram of its own length; shorter ones mean too little
 * and are counted. Of an n-gram that several texts have the first is told. Memory: 24 bytes or less per word of the
 * benchmarks, and their names. Finding is linear in the document, times the number of different lengths. Includes:
 * base, source/source.h. Order: Local; a set that is made is read by any number of threads.
 */
#ifndef TUTTI_CURATE_CONTAMINATION_H
#define TUTTI_CURATE_CONTAMINATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

enum { GRAM_MOST = 64 };
struct gram {
    uint64_t hash;
    uint32_t file, document; /* whose: of `files`, and its place there, from 0 */
};
struct contamination {
    int n, least;     /* words of an n-gram */
    struct gram *set; /* a hash table; hash 0 is empty */
    size_t mask, count;
    uint64_t lengths; /* bit i: there are n-grams of i + 1 words */
    char **files;
    int n_files;
    int64_t texts, too_short;
    uint64_t key; /* of what the files hold */
};
/* 1 <= least <= n <= GRAM_MOST. */
void contamination_init(struct contamination *c, int n, int least);
void contamination_fini(struct contamination *c);
/* Adds all texts of a file or folder (source/source.h). */
int contamination_add_file(struct contamination *c, const char *path, const char *column, struct err *e);
void contamination_add(struct contamination *c, const char *text, size_t n, uint32_t file, uint32_t document);

/* An n-gram of the set in a document: bytes [from, to), first word's beginning to last word's end. */
struct gram_found {
    size_t from, to;
    const struct gram *gram;
};
struct gram_search {
    struct gram_found *found; /* in order of from; they may overlap */
    size_t n, room;
    uint64_t *hashes; /* scratch: of the words, and where they lie */
    size_t *bounds;
    size_t n_words, hashes_room, bounds_room;
    struct str word;
};
void contamination_find(const struct contamination *c, const char *text, size_t n, struct gram_search *s);
void gram_search_fini(struct gram_search *s);

#endif
