#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# -n beside a launcher: the same number is fine, another one is refused, once and by name; so is a batch script that forgot srun.
. "${2:?the source root, as CMakeLists.txt gives it}/tests/comm/mpirun.sh"
keys=(model.layers=1 model.hidden=16 model.heads=2 model.kv_heads=2 model.ffn=32 model.seq_len=16 batch.global=4 batch.micro=1 "data.train=$root/README.md"
    "data.valid=[]" run.steps=1 run.threads=1 run.tensorboard=false)
config=$root/examples/quickstart.yaml
ranks 2 "$tutti" train "$config" -n 3 "${keys[@]}" "run.dir=$dir/a" 2>"$dir/err" && fail "-n 3 beside 2 processes is taken"
[ "$(grep -c -- '-n 3: the launcher started 2 processes' "$dir/err")" = 1 ] || fail "-n 3 beside 2 processes: $(cat "$dir/err")"
[ ! -e "$dir/a" ] || fail "a refused request leaves a directory"
ranks 2 "$tutti" train "$config" -n 2 "${keys[@]}" "run.dir=$dir/b" 2>"$dir/err" || fail "-n 2 beside 2 processes: $(cat "$dir/err")"
grep -q '"ranks":2' "$dir/b/starts.jsonl" || fail "not two ranks: $(cat "$dir/b/starts.jsonl")"

batch() { SLURM_JOB_ID=7 SLURM_NTASKS=4 "$tutti" train "$config" "${keys[@]}" "$@"; } # as in a batch script
batch "run.dir=$dir/c" 2>"$dir/err"
[ $? = 2 ] && grep -q 'the job has 4 tasks, and this is one process.*srun tutti train' "$dir/err" || fail "sbatch without srun: $(cat "$dir/err")"
[ ! -e "$dir/c" ] || fail "a refused request leaves a directory"
batch -n 1 "run.dir=$dir/d" 2>"$dir/err" || fail "sbatch -n 1: $(cat "$dir/err")"
SLURM_STEP_ID=0 batch "run.dir=$dir/e" 2>"$dir/err" || fail "a step of one task: $(cat "$dir/err")"
passed
