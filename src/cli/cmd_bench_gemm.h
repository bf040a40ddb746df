/* cmd_bench_gemm.h: `tutti bench gemm`. argv[0] is the word "gemm"; returns the process's exit status. */
#ifndef TUTTI_CLI_CMD_BENCH_GEMM_H
#define TUTTI_CLI_CMD_BENCH_GEMM_H
int cmd_bench_gemm(int argc, char **argv);
#endif
