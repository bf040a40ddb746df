/* SPDX-License-Identifier: Apache-2.0 */
/* parquet_pages.h: the values of one column in one row group after the other, page by page.
 *
 * Memory is one page as it lies and unpacked, and one dictionary; a page's size is compared with what lies in the file
 * before it is allocated, and unpacked it may be UNPACK_RATIO times that beyond UNPACK_FREE at most. Checksums of pages
 * are compared where a writer wrote them. Includes: base, blob.h, parquet_meta.h, parquet_values.h. Order: Local.
 */
#ifndef TUTTI_SOURCE_PARQUET_PAGES_H
#define TUTTI_SOURCE_PARQUET_PAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "source/blob.h"
#include "source/parquet_meta.h"
#include "source/parquet_values.h"

struct parquet_pages {
    struct blob *blob;
    const struct parquet_meta *meta;
    int64_t chunk;          /* the row group that is read */
    int64_t at;             /* where its next page begins */
    int64_t page_at;        /* where the page that is read begins, for errors */
    int64_t left;           /* values of the page still to come, nulls too */
    int64_t seen;           /* values of the row group so far */
    int64_t given, allowed; /* values and their bytes so far, all row groups; more is refused as a bomb */
    struct rle rep, def;
    struct parquet_values values;
    struct parquet_dictionary dictionary;
    bool has_dictionary;
    unsigned char *raw, *page, *words; /* as it lies; unpacked; the dictionary's page */
    size_t raw_room, page_room, words_room;
};

struct parquet_value {
    bool begins_row; /* else it is one more of the row's list */
    bool there;      /* else null, or an empty list */
    int rep, def;    /* its levels */
    const char *p;   /* stays until the next call */
    size_t n;
};

void parquet_pages_init(struct parquet_pages *r, struct blob *b, const struct parquet_meta *m);
void parquet_pages_fini(struct parquet_pages *r);
/* Goes to the beginning of a row group. ERR_CORRUPT or ERR_REQUEST: it cannot be read. */
int parquet_pages_go(struct parquet_pages *r, int64_t chunk, struct err *e);
/* The next value: 1; 0: the row group is at its end; < 0. An error is the row group's: others can be gone to. */
int parquet_pages_next(struct parquet_pages *r, struct parquet_value *v, struct err *e);

#endif
