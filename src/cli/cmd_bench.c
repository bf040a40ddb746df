/* SPDX-License-Identifier: Apache-2.0 */
/* tutti bench WHAT ...: the table of benchmarks. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

static const struct bench {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *what;
} benches[] = {
    {"gemm", cmd_bench_gemm, "matrix products of a model, beside the library and what the processor could do"},
    {"experts", cmd_bench_experts, "grouped products of experts, beside a dense product of as many rows"},
    {"train", cmd_bench_train, "whole training steps: tokens per second and where the time goes"},
    {"comm", cmd_bench_comm, "operations between ranks, by every algorithm, beside what the memory could do"},
};

int cmd_bench(int argc, char **argv)
{
    size_t n = sizeof benches / sizeof *benches;
    for (size_t i = 0; argc > 1 && i < n; i++)
        if (!strcmp(argv[1], benches[i].name)) return benches[i].run(argc - 1, argv + 1);
    bool help = argc > 1 && cli_wants_help(argc, argv);
    if (argc > 1 && !help)
        return cli_usage("bench", "there is no benchmark '%s': comm, experts, gemm or train", argv[1]);
    FILE *f = help ? stdout : stderr;
    fprintf(f, "tutti bench WHAT [--json] ...\n\n");
    for (size_t i = 0; i < n; i++) fprintf(f, "  %-8s %s\n", benches[i].name, benches[i].what);
    fprintf(f, "\n  tutti bench WHAT --help tells more\n");
    return help ? 0 : 2;
}
