/* SPDX-License-Identifier: Apache-2.0 */
/* source.h: text inputs as one sequence of documents.
 *
 *   a text file      one document
 *   a .jsonl file    one document per line: its member `text`; blank lines and texts that are empty or null are passed
 *                    over. So are files of such lines, and of such objects in one list or over several lines, under
 *                    other names (format_json.c)
 *   a .csv, .tsv     one document per row after the first, which names the columns (csv_rows.h): its column `text`
 *   a .parquet       one document per row: its column `text` (format_parquet.c)
 *   a .tar           one document per sample (format_tar.c)
 *   a folder         these and its text files, recursively, names in byte order. Passed over: names that begin with a
 *                    dot, empty and binary files, what is no regular file, what tutti writes beside data
 *                    (beside_data.h), folders seen before (so links may loop). A file of records or a table in it that
 *                    has no `text` (a log, say) is plain text, but for a Parquet table, which is passed over
 *   s-{00..99}.tar   the files of these names (brace.h), all of which have to be there
 *
 * Another name than `text` may be chosen for all; "a.b" is the member b of the member a.
 *
 * An http://, https:// or s3:// address is what lies there, read as a file of that name; s3://BUCKET/PREFIX/ is a
 * folder (remote/remote.h). Its version is part of source_key, and one that changes while it is read is an error.
 *
 * A file that is packed by gzip or zstd (by its bytes; t.jsonl.gz is a .jsonl file by its name) is what it holds; one
 * that is damaged or cut short is an error wherever it lies.
 *
 * A file is binary when its first 64 KiB hold a NUL, when more than a tenth of them are control characters or
 * bad UTF-8, or when it begins like one of the formats made of letters that are no text (base/magic.h). An input named
 * by the user that is missing, empty, binary or unreadable is an error.
 *
 * Bad records are what cannot be used in a file that can: lines that are no JSON or have no text, rows without the
 * column, texts that are no valid UTF-8 (in records always; a plain text's bytes are taken as they are, but where bad
 * records are skipped such a file is one), lines of more than 256 MiB, damaged row groups, samples without text, what
 * lies behind damage in a packed file or an archive, and what says more than is read of it: rows with stray quotes or
 * surplus fields, samples with two texts, members that are there twice. A folder that cannot be listed, and a file that
 * cannot be opened or read, or gets shorter meanwhile, is an error always: what was not read is not "none".
 *
 * Invariants: 1. the order is a function of the names; 2. memory is one buffer, and one record, of a Parquet table a
 * page and a dictionary. Includes: base. Order: Local.
 */
#ifndef TUTTI_SOURCE_SOURCE_H
#define TUTTI_SOURCE_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

struct source;
/* Shards whose samples have fields of these names: places in a sample as sample_field.h has them. What comes of a
 * sample are records of conversations (format_fields.c): of its caption, or of its question (context), one for each
 * answer. */
struct source_fields {
    const char *image;             /* extensions, "jpg;png", of which a sample has one member: its picture */
    const char *caption;           /* NULL: context and answers */
    const char *context, *answers; /* NULL: caption */
    /* Of file `file`, as inputs were named: the sample of this key is left out; how many samples it has. NULL: nobody
     * says. */
    bool (*excludes)(const void *ctx, int64_t file, const char *key);
    int64_t (*samples)(const void *ctx, int64_t file);
    const void *ctx;
    uint64_t key; /* changes with what is left out */
};
struct source_options {
    const char *column; /* the member or column that is the text; NULL: "text". With a column chosen an input that is
                           plain text is an error */
    bool whole_records; /* JSON objects, as source_read's text: lines, rows of a table (parquet_record.h), a shard's
                           .json and .jsonl; what has no records is an error where named */
    const struct remote_options *remote; /* how addresses are read; NULL: as remote_defaults has it */
    bool pictures; /* with whole_records: a shard's samples may have pictures, which are counted (source_pictures), and
                      a .txt without .json is the record {"prompt": "<image>" for each, "completion": its text} */
    const struct source_fields *fields; /* with whole_records and pictures: every input is such a shard. It and its
                                           texts outlive the source. NULL: none is */
    bool lines;                         /* rows of tables as records, too (source_line): their columns of texts */
    bool skip_bad;                      /* bad records (below) are told and passed over; else they are errors */
    void (*tell_bad)(void *ctx, const char *what); /* file, line or offset, reason, of each; NULL: nobody */
    void *tell_ctx;
    int64_t unit_bytes; /* a file larger than this is read in parts (units, below); 0: SOURCE_UNIT_BYTES */
};
/* Lists the inputs; reads nothing yet. */
int source_open_with(struct source **s, const char *const *paths, int n_paths, const struct source_options *o,
                     struct err *e);
/* With the column alone: an error at the first bad record. */
int source_open(struct source **s, const char *const *paths, int n_paths, const char *column, struct err *e);
void source_close(struct source *s);
/* Says why a path that is not there is not: what was meant by it, as far as its letters show, else `plain`.
 * ERR_REQUEST. */
int source_missing(const char *path, const char *plain, struct err *e);

/* 1: a document begins; 0: there are no more; < 0: an error. */
int source_next(struct source *s, struct err *e);
/* The next part of the document: 1 with bytes that stay until the next call, 0 at its end, < 0 an error. */
int source_read(struct source *s, const char **p, size_t *n, struct err *e);
/* Members of the document's record, where its format has such (.jsonl; a table's, where `lines` asks for them); else 0.
 */
int64_t source_members(const struct source *s);
const char *source_column(const struct source *s); /* the member or column that is the text */
/* The record as it is written, without its line end, until the next source_next; a row of a table as the object that it
 * is. NULL where the format has no such. */
const char *source_line(const struct source *s, size_t *n);
/* Pictures of the sample that the document is of. */
int source_pictures(const struct source *s);
/* Where the document that source_next began comes from; the path is the source's own. */
struct source_place {
    const char *path;
    int64_t number; /* among the documents of its file, or of its unit where units are read, from 0 */
    int64_t offset; /* of its record, in bytes of the file, or of what a packed file holds; of a table its row */
};
void source_where(const struct source *s, struct source_place *p);

/* The same in words, for errors: "a.jsonl:7", the line that its record is on. It may read the file up to there. */
void source_tell_place(const struct source *s, struct str *out);

/* The file that the document is in, counted from 0. */
int64_t source_file(const struct source *s);
const char *source_path(const struct source *s, int64_t file);
/* Goes on with this file instead of the first, before anything was read; `skipped` files before it were passed over,
 * the first of them as source_skipped said. */
void source_seek(struct source *s, int64_t file, int64_t skipped, const char *skipped_text);

/* -- in parts ----------------------------------------------------------------------------------------------- */

/* Units are parts of the inputs that are read by themselves; one after the other they are the same documents in the
 * same order as source_next alone gives. A unit is a file, or of a file larger than unit_bytes a part, where its
 * format has such (lines of a .jsonl that is not packed, row groups). They are a function of the files.
 *
 *     source_units(s, &n, e);                              lists them, once
 *     struct source *r = source_again(s, tell, ctx);       one reader per thread; s stays open until they are closed
 *     source_unit(r, i); while (source_next(r, e) > 0)...  the documents of unit i, then 0; then another unit
 *
 * What a reader counts (bytes done, skipped, bad) it counts over all units it has read. */
#define SOURCE_UNIT_BYTES ((int64_t)32 << 20)
int source_units(struct source *s, int64_t *n, struct err *e);
struct source *source_again(const struct source *s, void (*tell_bad)(void *ctx, const char *what), void *tell_ctx);
void source_unit(struct source *s, int64_t unit);
/* Units read one after the other as one: how many from `unit` on make a lot, whole files as long as they are together
 * no larger than a unit, or one part of a file. Also a function of the files. */
int64_t source_lot(const struct source *s, int64_t unit);
void source_go_to_lot(struct source *s, int64_t unit, int64_t n);
/* Goes on with this file of the lot, of which nothing was read yet; false: it is not in it. */
bool source_go_to_file(struct source *s, int64_t file);
/* What unit is. from: as its format counts (bytes, row groups), 0 for a whole file; bytes: about. */
struct source_unit_place {
    const char *path;
    int64_t from, bytes;
};
struct source_unit_place source_unit_where(const struct source *s, int64_t unit);

/* -- inspect ------------------------------------------------------------------------------------------------ */

/* A number that changes when a file is added, removed, resized or written to, or other options chosen. */
uint64_t source_key(const struct source *s);
int64_t source_bytes(const struct source *s); /* of all files, as they lie there: packed ones count so */
int64_t source_bytes_done(const struct source *s);
int64_t source_n_files(const struct source *s);
int64_t source_n_skipped(const struct source *s); /* no text, so far */
/* The first of them, and why: "a.xz is compressed by xz"; "": none. */
const char *source_skipped(const struct source *s);
int64_t source_n_bad(const struct source *s); /* bad records skipped so far */

#endif
