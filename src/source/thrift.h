/* SPDX-License-Identifier: Apache-2.0 */
/* thrift.h: reading Thrift's compact protocol, in which Parquet writes what it says about itself.
 *
 * A reader walks over bytes in memory. The first thing that does not fit makes it `bad`, and from then on everything is
 * zero and empty: whoever reads a struct asks once, at its end. Nothing is allocated, and no list is believed to have
 * more items than bytes are left. Includes: libc. Order: Local.
 *
 *     struct thrift_field f = {0};
 *     while (thrift_next(&t, &f))
 *         switch (f.id) {
 *         case 1: x = thrift_int(&t, &f); break;
 *         default: thrift_skip(&t, &f);
 *         }
 *     if (t.bad) ...
 */
#ifndef TUTTI_SOURCE_THRIFT_H
#define TUTTI_SOURCE_THRIFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct thrift {
    const unsigned char *p;
    size_t n, at;
    int depth; /* of structs and lists that are being skipped */
    bool bad;
};
struct thrift_field {
    int id, type; /* begins as zeros in every struct */
};

/* The next field of a struct, of which the caller reads or skips the value; false at its end. */
bool thrift_next(struct thrift *t, struct thrift_field *f);
/* Values. A field of another type than is asked for makes the reader bad. */
int64_t thrift_int(struct thrift *t, const struct thrift_field *f); /* i8 to i64 */
bool thrift_bool(struct thrift *t, const struct thrift_field *f);
const char *thrift_string(struct thrift *t, const struct thrift_field *f, size_t *n); /* not terminated */
/* How many items a list has, which the caller reads next; *item is what stands for the field then. */
int64_t thrift_list(struct thrift *t, const struct thrift_field *f, struct thrift_field *item);
/* True when a struct begins, whose fields are read next. */
bool thrift_struct(struct thrift *t, const struct thrift_field *f);
void thrift_skip(struct thrift *t, const struct thrift_field *f);

#endif
