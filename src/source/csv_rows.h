/* SPDX-License-Identifier: Apache-2.0 */
/* csv_rows.h: records of comma- or tab-separated values (RFC 4180).
 *
 * A field that begins with " goes on to the next single " (two stand for one), over marks and line ends; behind that a
 * mark or the record's end has to follow: what else does is a stray quote, which would join rows that are none. In a
 * field that begins otherwise a " is a letter like any. A record ends at a line end, LF or CR LF, outside of quotes.
 * Includes: libc. Order: Local.
 */
#ifndef TUTTI_SOURCE_CSV_ROWS_H
#define TUTTI_SOURCE_CSV_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How far a record has been looked through; begins as zeros. */
struct csv_scan {
    size_t at;
    bool inside, in_field; /* between quotes; behind a field's first byte */
    bool stray;            /* something follows a closing quote: */
    int64_t stray_line;    /* on which line of the record, from 0 */
    int64_t lines;         /* line ends so far, those within quotes too */
};

/* Bytes of the record that begins at p, with its line end; 0: it goes on beyond p[n). Called again with more bytes it
 * goes on where it was. at_end: nothing follows, the rest is a record; when s->inside then, a quote was not closed. */
size_t csv_record(struct csv_scan *s, const char *p, size_t n, bool at_end, char mark);

int csv_columns(const char *p, size_t n, char mark);
/* Column `column` >= 0 of the record p[0..n) with or without its line end, without quotes: *length bytes, in the
 * record's own place, which is spoilt. NULL: there are fewer. */
char *csv_field(char *p, size_t n, char mark, int column, size_t *length);
/* The next field of a row, without its quotes, into out, which has room for n; *at is 0 before the first. False: there
 * are no more. */
bool csv_take(const char *p, size_t n, char mark, size_t *at, char *out, size_t *length);

#endif
