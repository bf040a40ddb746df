/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_data.c: `tutti data`: finds the subcommand and reads its options.
 *
 * Results go to stdout (as JSON with --json), everything else to stderr. Exit status: 0 done, 2 the request or an input
 * was wrong, 1 it failed while running.
 */
#include "cli/cmd_data.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

static const struct data_command *const commands[] = {&data_tokenize,        &data_train_tokenizer,
                                                      &data_inspect,         &data_ledger,
                                                      &data_clean,           &data_dedup,
                                                      &data_train_language,  &data_train_classifier,
                                                      &data_import_megatron, &data_export_megatron,
                                                      &data_synthesise};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

void data_print_json(struct str *text)
{
    str_putc(text, '\n');
    fwrite(str_text(text), 1, text->n, stdout);
    str_free(text);
}

double data_per_second(int64_t n, double seconds) { return (double)n / (seconds > 1e-9 ? seconds : 1e-9); }

static int run(const struct data_command *c, int argc, char **argv)
{
    struct err e = {.code = OK};
    int status = 0;
    void *options = xmalloc(c->size);
    memcpy(options, c->defaults, c->size);
    if (cli_read(c->table, argc, argv, options, &status)) {
        int code = c->run(options, &e);
        if (!code && fflush(stdout)) code = err_set(&e, ERR_IO, "standard output cannot be written");
        if (code) status = cli_fail(&e);
    }
    xfree(options);
    return status;
}

int cmd_data(int argc, char **argv)
{
    if (argc > 1 && argv[1][0] != '-') {
        struct cli_command rows[N_COMMANDS] = {0};
        for (int i = 0; i < N_COMMANDS; i++) rows[i] = (struct cli_command){.name = commands[i]->name};
        const struct cli_command *c = cli_choose("data", rows, N_COMMANDS, argv[1]);
        return c ? run(commands[c - rows], argc - 1, argv + 1) : 2;
    }
    struct str s = {0};
    bool help = cli_lists(argc, argv);
    for (int i = 0; i < N_COMMANDS; i++) {
        if (i) str_puts(&s, "\n");
        cli_help(commands[i]->table, commands[i]->defaults, &s);
    }
    fputs(str_text(&s), help ? stdout : stderr);
    str_free(&s);
    return help ? 0 : 2;
}
