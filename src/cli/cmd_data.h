/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_data.h: the subcommands of tutti data: a file each, cmd_data_ before its name, and a row in cmd_data.c. */
#ifndef TUTTI_CLI_CMD_DATA_H
#define TUTTI_CLI_CMD_DATA_H

#include "base/err.h"
#include "base/str.h"
#include "cli/cli.h"

struct data_command {
    const char *name; /* "tokenize" */
    const struct cli_table *table;
    const void *defaults; /* its options, of size bytes, where none is given */
    size_t size;
    int (*run)(const void *options, struct err *e); /* prints its results on stdout */
};
extern const struct data_command data_tokenize, data_train_tokenizer, data_inspect, data_clean, data_dedup, data_ledger;
extern const struct data_command data_import_megatron, data_export_megatron;
extern const struct data_command data_train_language, data_train_classifier, data_synthesise;

/* One JSON document, with a newline behind it, on stdout; frees it. */
void data_print_json(struct str *text);
/* n in `seconds`, which may be none. */
double data_per_second(int64_t n, double seconds);

struct config;
struct json_out;
/* Of `tutti data ledger`: that the run left a step's batch out. why: "run.skip" or skips.jsonl; NULL: it did not. */
void data_tell_left_out(const struct config *c, const char *why, struct json_out *j);

/* What help says in several of them. */
#define DATA_TOKENIZER "byte, a tokenizer.json, or a directory that holds one"
#define DATA_INPUT                                                                                                     \
    "INPUT is a text file, a .jsonl, .json, .csv, .tsv or .parquet file (one document per record or row), a tar "      \
    "shard of\n"                                                                                                       \
    "samples, packed by gzip or zstd or not, several in braces (s-{00..99}.tar), or a folder (its text files, "        \
    "recursively; hidden, empty and binary ones are passed over).\n"
#define DATA_COLUMN(T, field)                                                                                          \
    {                                                                                                                  \
        "--column", "NAME", CLI_TEXT, offsetof(T, field),                                                              \
            .help = "the member of .jsonl lines, or the column of a table, that is the text (default text)"            \
    }

#define DATA_SKIP_BAD(T, field)                                                                                        \
    {                                                                                                                  \
        "--skip-bad", NULL, CLI_FLAG, offsetof(T, field),                                                              \
            .help = "skip records that cannot be used (no JSON, no UTF-8, damaged) and list them, instead of an error" \
    }

#endif
