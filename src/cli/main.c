/* SPDX-License-Identifier: Apache-2.0 */
/* tutti: the table of commands. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "comm/comm.h"
#include "kernel/cpuid.h"
#include "cli/screen.h"
#include "media/media.h"

static const struct cli_command commands[] = {
    {"train", cmd_train, "CONFIG [-n RANKS] [key=value ...]", "train a model"},
    {"launch", cmd_launch, "[--restarts K] -- COMMAND", "start a training job again when it dies"},
    {"eval", cmd_eval, "MODEL --tasks FILE [...]", "score a model by the records of a file"},
    {"score", cmd_score, "MODEL [...] <ANSWERS", "what a reward model says of answers"},
    {"generate", cmd_generate, "CHECKPOINT --prompt TEXT [...]", "continue a text"},
    {"serve", cmd_serve, "MODEL [--port P] [...]", "answer OpenAI's API for completions and chat"},
    {"data", cmd_data, "tokenize|clean|dedup|inspect|ledger|... ...", "prepare and look at data"},
    {"plan", cmd_plan, "CONFIG [--json] [key=value ...]", "memory and work of a config, without running it"},
    {"verify", cmd_verify, "CONFIG [-n RANKS] [--json] [key=value ...]", "prove that every layout equals one rank"},
    {"explain", cmd_explain, "CONFIG layout|tape|schedule|memory|comm|binding [...]", "print the plans of a config"},
    {"checkpoint", cmd_checkpoint, "list|inspect|verify|diff|import|export|... ...",
     "look at, compare, convert checkpoints"},
    {"schedule", cmd_schedule, "KIND --stages P --microbatches M [...]", "a pipeline schedule: text, picture, figures"},
    {"report", cmd_report, "RUN [--html FILE]", "one page of a run: curves, samples, memory, pictures"},
    {"watch", cmd_watch, "RUN [--every SECONDS] [--once] [--json]", "how a run is, live"},
    {"replay", cmd_replay, "RUN [--step N] [--one-rank] [--json] [key=value ...]", "a step of a run once more, alone"},
    {"trace", cmd_trace, "FILE [--json]", "where the time went in a run that was traced"},
    {"bench", cmd_bench, "train|gemm|comm|data|checkpoint|... [--json] ...", "measure this machine"},
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static void print_help(FILE *f)
{
    fprintf(f, "tutti %s: trains large language models\n\nusage:\n", TUTTI_VERSION);
    for (int i = 0; i < N_COMMANDS; i++)
        fprintf(f, "  tutti %-10s %-52s %s\n", commands[i].name, commands[i].usage, commands[i].what);
    fprintf(f, "\n  tutti COMMAND --help tells more; tutti --version\n");
}

/* A level that nobody knows would be passed over, and what is measured or compared would be another one's. */
static int refuse_isa(void)
{
    fprintf(stderr, "tutti: TUTTI_ISA=%s is no level of this processor's kind; one of:", isa_unknown());
    for (int i = 0; i < ISA_N; i++) fprintf(stderr, " %s", isa_name((enum isa)i));
    fprintf(stderr, "\n");
    return 2;
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
    screen_open();
    signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is an error like a full disk, not a sudden end */
    if (isa_unknown()) return refuse_isa();
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
    if (cli_lists(argc, argv) || !strcmp(argv[1], "help")) {
        print_help(stdout);
        return 0;
    }
    if (!strcmp(argv[1], "--version")) {
        char missing[128];
        media_missing(missing);
        printf("tutti %s%s%s%s%s, kernels up to %s\n", TUTTI_VERSION, comm_mpi_name() ? ", " : "",
               comm_mpi_name() ? comm_mpi_name() : "", missing[0] ? ", " : "", missing, isa_name(isa_built()));
        return 0;
    }
    const struct cli_command *c = cli_choose("", commands, N_COMMANDS, argv[1]);
    int status = c ? c->run(argc - 1, argv + 1) : 2;
    screen_close();
    return status;
}
