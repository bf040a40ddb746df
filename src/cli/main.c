/* SPDX-License-Identifier: Apache-2.0 */
/* tutti: the table of commands. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/str.h"
#include "cli/cli.h"
#include "comm/comm.h"

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *usage, *what;
} commands[] = {
    {"train", cmd_train, "CONFIG [-n RANKS] [key=value ...]", "train a model"},
    {"generate", cmd_generate, "CHECKPOINT --prompt TEXT [...]", "continue a text"},
    {"data", cmd_data, "tokenize|train-tokenizer|inspect ...", "prepare and look at data"},
    {"plan", cmd_plan, "CONFIG [--json] [key=value ...]", "memory and work of a config, without running it"},
    {"verify", cmd_verify, "CONFIG [-n RANKS] [--json] [key=value ...]", "prove that every layout equals one rank"},
    {"explain", cmd_explain, "CONFIG layout|tape|schedule|memory|comm [-n RANKS] [...]", "print the plans of a config"},
    {"checkpoint", cmd_checkpoint, "list|inspect|verify|diff|import|export ...",
     "look at, compare, convert checkpoints"},
    {"schedule", cmd_schedule, "KIND --stages P --microbatches M [...]", "a pipeline schedule: text, picture, figures"},
    {"report", cmd_report, "RUN [--html FILE]", "one page of a run: curves, samples, memory, pictures"},
    {"trace", cmd_trace, "FILE [--json]", "where the time went in a run that was traced"},
    {"bench", cmd_bench, "train|gemm|comm|experts [--json] ...", "measure this machine"},
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static void print_help(FILE *f)
{
    fprintf(f, "tutti %s: trains large language models\n\nusage:\n", TUTTI_VERSION);
    for (int i = 0; i < N_COMMANDS; i++)
        fprintf(f, "  tutti %-10s %-52s %s\n", commands[i].name, commands[i].usage, commands[i].what);
    fprintf(f, "\n  tutti COMMAND --help tells more; tutti --version\n");
}

/* A file that is opened while stdin, stdout or stderr is closed would take its number, and get what is printed. */
static void open_standard_files(void)
{
    for (int fd; (fd = open("/dev/null", O_RDWR)) >= 0;)
        if (fd > STDERR_FILENO) {
            close(fd);
            return;
        }
}

int main(int argc, char **argv)
{
    open_standard_files();
    signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is an error like a full disk, not a sudden end */
    if (argc < 2) {
        print_help(stderr);
        return 2;
    }
    if (argc > 2 && !strcmp(argv[1], "help")) { /* tutti help train: tutti train --help */
        static char asked[] = "--help";
        argv[1] = argv[2];
        argv[2] = asked;
        argc = 3;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
        print_help(stdout);
        return 0;
    }
    if (!strcmp(argv[1], "--version")) {
        printf("tutti %s%s%s\n", TUTTI_VERSION, comm_mpi_name() ? ", " : "", comm_mpi_name() ? comm_mpi_name() : "");
        return 0;
    }
    const char *names[N_COMMANDS];
    for (int i = 0; i < N_COMMANDS; i++) {
        if (!strcmp(argv[1], commands[i].name)) return commands[i].run(argc - 1, argv + 1);
        names[i] = commands[i].name;
    }
    const char *near = str_nearest(argv[1], names, N_COMMANDS);
    fprintf(stderr, "tutti: there is no command '%s'%s%s%s; tutti --help lists them\n", argv[1],
            near ? "; did you mean '" : "", near ? near : "", near ? "'" : "");
    return 2;
}
