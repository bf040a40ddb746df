/* SPDX-License-Identifier: Apache-2.0 */
/* tutti bench WHAT ...: the table of benchmarks. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

static const struct cli_command benches[] = {
    {"gemm", cmd_bench_gemm, "", "matrix products of a model, beside the library and what the processor could do"},
    {"generate", cmd_bench_generate, "", "writing text, beside what the memory could do and training's forward pass"},
    {"experts", cmd_bench_experts, "", "grouped products of experts, beside a dense product of as many rows"},
    {"train", cmd_bench_train, "", "whole training steps: tokens per second and where the time goes"},
    {"checkpoint", cmd_bench_checkpoint, "", "saving and loading, beside a plain writer and reader on the same disk"},
    {"cast", cmd_bench_cast, "", "conversions of arrays to number formats and back, beside a copy of as many bytes"},
    {"data", cmd_bench_data, "", "reading, tokenizing and batches of a config, beside what training needs"},
    {"comm", cmd_bench_comm, "", "operations between ranks, by every algorithm, beside what the memory could do"},
};
enum { N_BENCHES = sizeof benches / sizeof *benches };

int cmd_bench(int argc, char **argv)
{
    if (argc > 1 && argv[1][0] != '-') {
        const struct cli_command *b = cli_choose("bench", benches, N_BENCHES, argv[1]);
        return b ? b->run(argc - 1, argv + 1) : 2;
    }
    FILE *f = cli_lists(argc, argv) ? stdout : stderr;
    fprintf(f, "usage: tutti bench WHAT [--json] ...\n\n");
    for (int i = 0; i < N_BENCHES; i++) fprintf(f, "  %-10s %s\n", benches[i].name, benches[i].what);
    fprintf(f, "\n  tutti bench WHAT --help tells more\n");
    return f == stdout ? 0 : 2;
}
