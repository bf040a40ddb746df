/* SPDX-License-Identifier: Apache-2.0 */
/* source_buffer.h: the bytes of a file as they were before they were packed, one after the other, through a buffer that
 * slides. For record formats that are read from front to back.
 *
 * What is read and not used yet is buf[at .. n). Only a record that does not fit makes the buffer grow, up to
 * SOURCE_RECORD_MAX. Includes: base, blob.h, unpack.h. Order: Local.
 */
#ifndef TUTTI_SOURCE_SOURCE_BUFFER_H
#define TUTTI_SOURCE_SOURCE_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "source/blob.h"
#include "source/unpack.h"

enum { SOURCE_BUFFER = 64 << 10, SOURCE_RECORD_MAX = 256 << 20 };

struct source_buffer {
    struct blob *blob;
    struct unpack *unpack;
    int64_t listed; /* bytes the file had when it was listed */
    int64_t from;   /* the offset reading began at; other than 0 only in what is not packed */
    char *buf;
    size_t at, n, room;
    int64_t begin; /* the offset, in what is unpacked, of buf[0] */
    bool at_end;   /* nothing follows buf[n) */
    int64_t line;  /* lines that whoever reads has counted since `from` */
};

void source_buffer_init(struct source_buffer *b, struct blob *blob, int64_t listed);
void source_buffer_fini(struct source_buffer *b);

/* Reads more behind buf[n), moving what is not used to the front; sets at_end when there is no more.
 *   fails   as unpack_read; ERR_IO: the file has become shorter; ERR_REQUEST: a record longer than SOURCE_RECORD_MAX */
int source_buffer_fill(struct source_buffer *b, struct err *e);
/* As many bytes as the buffer has room for now, or all there are. */
int source_buffer_begin(struct source_buffer *b, struct err *e);
/* Goes on at an offset of a file that is not packed. */
void source_buffer_seek(struct source_buffer *b, int64_t at);
/* The next line: buf[at .. at + *n) without its newline, of which the caller goes on by source_buffer_pass. 1; 0: no
 * more. */
int source_buffer_line(struct source_buffer *b, size_t *n, struct err *e);
void source_buffer_pass(struct source_buffer *b, size_t n); /* n bytes and the newline behind them */
/* Drops bytes up to and with the next newline, however many. */
int source_buffer_drop_line(struct source_buffer *b, struct err *e);

int64_t source_buffer_offset(const struct source_buffer *b); /* of buf[at] */
int64_t source_buffer_taken(const struct source_buffer *b);  /* bytes of the file since `from` */
bool source_buffer_packed(const struct source_buffer *b);
/* `line` counted from the beginning of the file. Reads what lies before `from`: for errors. */
int64_t source_buffer_line_number(const struct source_buffer *b);

#endif
