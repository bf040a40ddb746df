/* SPDX-License-Identifier: Apache-2.0 */
/* record_format.h: what a kind of input file (text, jsonl, csv, ...) is to source.c: a row of one table.
 *
 * A format is a file format_<name>.c that defines its row; source.c opens files, asks the rows in their order whose the
 * file is, and hands out what its reader finds. To add one: the file, and its row in record_format.c.
 *
 *   by ending   the name ends as the row says, a .gz or .zst behind it not counted
 *   by bytes    its first bytes, unpacked, are what `begins` knows; asked first, for every file
 *   by records  it has another name and begins with JSON records (format_json.c)
 *   else        plain text
 *
 * Includes: base, blob.h, source_list.h, source_buffer.h. Order: Local.
 */
#ifndef TUTTI_SOURCE_RECORD_FORMAT_H
#define TUTTI_SOURCE_RECORD_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/json.h"
#include "source/blob.h"
#include "source/source_buffer.h"
#include "source/source_list.h"

enum { RECORD_PLACE = 600 };

/* Records that cannot be used: an error, or counted, told and passed over. */
struct bad_records {
    bool skip;
    void (*tell)(void *ctx, const char *what); /* file, line or offset, reason; NULL: nobody */
    void *ctx;
    int64_t n;
};
/* What a format returns when it can go on behind what is wrong: OK where it is skipped, else the code it is given. */
int bad_record(struct bad_records *b, int code, const struct err *e);

/* The open file of a source. */
struct record_file {
    const struct source_file *listed;   /* its path; whether a person named it */
    const char *column;                 /* the member or column that is the text */
    bool chosen;                        /* by a person: what has no columns is an error then */
    bool whole;                         /* records are wanted as they are: their text may be missing */
    bool pictures;                      /* of samples are counted, and captions records (source.h) */
    const struct source_fields *fields; /* that samples have (source.h); NULL: none of a name */
    int64_t number;                     /* of the file, from 0 */
    bool lines;                         /* a row of a table is handed out as a record's line, too */
    bool quiet;                         /* only looked at: nothing is logged */
    struct blob *blob;
    struct source_buffer buffer; /* its first bytes, at least SOURCE_BUFFER of them or all */
    /* The part that is wanted: byte offsets where `cut` says offsets, row groups where it says those. Everything: 0 to
     * INT64_MAX. */
    int64_t from, to;
    struct bad_records *bad;
    int64_t done; /* bytes of the file that were used, for progress, where the buffer does not count them; -1 */
};

/* One record: its text stays until the next call. */
struct record {
    const char *text;
    size_t n;
    int64_t offset;   /* where it begins: in bytes of what the file holds unpacked; of a table its row */
    int64_t members;  /* of the record itself, where the format has one; 0: it has none */
    const char *line; /* and as it is written, or as JSON; borrowed like the text */
    size_t line_n;
    int pictures; /* of its sample */
};

struct unit_list { /* parts [from, to) of a file, in order */
    int64_t (*part)[2];
    int64_t n, room;
};
void unit_list_add(struct unit_list *l, int64_t from, int64_t to);

struct record_format {
    const char *name;
    const char *endings; /* ".csv .tsv" */
    bool letters;        /* its files are text: one that is none of the format's is plain text, and binary ones are
                            no files of it; else a file that `open` does not take is passed over in a folder */
    bool is_utf8;        /* its texts are checked by its reader */
    bool (*begins)(const unsigned char *p, size_t n); /* NULL: by its ending alone */
    /* 1: *reader reads the file; 0: it is not of this format after all, which a named file cannot be, *e says why;
     * < 0: an error. */
    int (*open)(void **reader, struct record_file *f, struct err *e);
    /* The next record, passing over empty texts: 1, 0 at the end, < 0 an error. */
    int (*next)(void *reader, struct record *r, struct err *e);
    /* NULL: a record's text is whole. Else the next part of it: 1, 0 at its end, < 0. */
    int (*read)(void *reader, const char **p, size_t *n, struct err *e);
    /* Where the last record lies: "t.csv:12". */
    void (*place)(const void *reader, char out[RECORD_PLACE]);
    /* Parts of about `bytes` each that can be read by themselves, one after the other the whole; NULL: it has none. */
    int (*cut)(void *reader, int64_t bytes, struct unit_list *l, struct err *e);
    void (*close)(void *reader); /* NULL is fine */
};

extern const struct record_format format_text, format_jsonl, format_json, format_csv, format_parquet, format_tar;
extern const struct record_format format_fields; /* of files that have `fields`, whatever they are called */

/* What JSON the first bytes of a file are that no ending says: of lines, of records that stand otherwise (in a list, or
 * over several lines), or none of it. For a .json anything that could be records is; for other names they have to have
 * what is wanted of them, since other texts may begin with a brace. */
enum json_shape { JSON_NONE, JSON_LINES, JSON_VALUES };
enum json_shape json_shape_of(const struct record_file *f);
/* Whose the file is, whose first bytes are in its buffer. */
const struct record_format *record_format_of(const struct record_file *f);
/* The file's name ends so, but for what packed it: t.jsonl.gz is a .jsonl. */
bool record_file_ends(const struct record_file *f, const char *ending);
/* The member of this name; where there is none and the name has dots, "message.content", the member of a member. NULL:
 * neither. */
const struct json *record_member(const struct json *v, const char *name);
bool record_blank(const char *p, size_t n); /* nothing but spaces and line ends */

#endif
