/* SPDX-License-Identifier: Apache-2.0 */
/* options.h: what a command line may say, as a table. From the rows a command line is read into the command's own
 * struct, wrong ones are refused in the same words everywhere, and --help is printed; manual pages and completion are
 * made from that.
 *
 * Invariants
 *   1. Options, words and keys come in any order. `--name VALUE` and `--name=VALUE` are the same; given twice, the last
 *      counts. Behind `--` all are words; `-` alone is a word.
 *   2. What is not given stays as the caller had set it, and help prints these defaults.
 *   3. --help or -h before `--` prints help on stdout; nothing else is looked at.
 */
#ifndef TUTTI_CLI_OPTIONS_H
#define TUTTI_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

enum cli_kind {
    CLI_FLAG,   /* bool: true when given */
    CLI_TEXT,   /* const char *: as it is */
    CLI_CHOICE, /* const char *: one of `choices` */
    CLI_INT,    /* int64_t in [lo, hi] */
    CLI_REAL,   /* double in [least, most] */
    CLI_OWN     /* read(into, value) */
};

struct cli_option {
    const char *name;  /* "--tokens" */
    const char *value; /* what help calls the value: "T"; NULL for a flag */
    enum cli_kind kind;
    size_t at;           /* of the field in the command's struct */
    int64_t lo, hi;      /* CLI_INT */
    double least, most;  /* CLI_REAL */
    const char *choices; /* CLI_CHOICE: "bf16|f32" */
    /* CLI_OWN: NULL when text is right, else what was wanted ("a list of sizes such as 4K,64M"), said with the text.
     * into: the command's struct. */
    const char *(*read)(void *into, const char *text);
    bool needed;
    const char *help; /* lines with \n between them, behind the choices; NULL: read, and not told */
};

/* An argument that is no option, in the order of the rows: a const char *. */
struct cli_word {
    const char *name; /* "CHECKPOINT" */
    size_t at;
    bool may_lack;
    bool many; /* the last row only: the field is a struct cli_words, of one or more */
};
struct cli_words {
    const char **p; /* within argv */
    int n;
};

/* key=value arguments, as they are. */
enum { CLI_MAX_KEYS = 256 };
struct cli_keys {
    char *p[CLI_MAX_KEYS];
    int n;
};

struct cli_table {
    const char *command; /* "bench gemm" */
    const char *usage;   /* behind it: "[--model NAME] ..." */
    const char *about;   /* paragraphs, ends with a newline */
    const struct cli_option *option;
    int n_options;
    const struct cli_word *word;
    int n_words;
    bool takes_keys;
    size_t keys;                   /* of the struct cli_keys, where keys are taken */
    void (*tell)(struct str *out); /* what help says behind the options; NULL: nothing */
};

/* Reads argv[1..argc) into the struct at `into`, which has the defaults. True: go on. False: the command ends with
 * *status: 0 after printing help, 2 after saying on stderr what is wrong. Moves words of a `many` row to the front of
 * argv. */
bool cli_read(const struct cli_table *t, int argc, char **argv, void *into, int *status);
/* Help, with the defaults at `into`. */
void cli_help(const struct cli_table *t, const void *into, struct str *out);

/* Rows that several commands have, for a struct of type T. */
#define CLI_JSON(T, field)                                                                                             \
    {                                                                                                                  \
        "--json", NULL, CLI_FLAG, offsetof(T, field), .help = "one JSON object on stdout (docs/json.md)"               \
    }
#define CLI_IGNORE(T, field)                                                                                           \
    {                                                                                                                  \
        "--ignore", "KEY,KEY", CLI_TEXT, offsetof(T, field),                                                           \
            .help = "keys of a Hugging Face config.json that tutti does not know and that do not matter"               \
    }
#define CLI_OPTIONS(rows) .option = (rows), .n_options = (int)(sizeof(rows) / sizeof *(rows))
#define CLI_WORDS(rows) .word = (rows), .n_words = (int)(sizeof(rows) / sizeof *(rows))

/* A command of several: `tutti bench WHAT ...`. */
struct cli_command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *usage, *what;
};
/* The row called `name`, or NULL after saying on stderr which there are and which is meant. of: "data"; "" for tutti
 * itself. */
const struct cli_command *cli_choose(const char *of, const struct cli_command *table, int n, const char *name);
/* Whether argv[1] asks what there is: then the list goes to stdout with status 0, and else to stderr with 2. */
bool cli_lists(int argc, char **argv);

#endif
