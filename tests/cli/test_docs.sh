#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# suite: unwatched sanitizers
# What a reader copies from the pages of docs/ runs (the README's is in test_readme.sh, but for mpirun): every line of an indented block
# that begins with tutti, build/tutti or mpirun, in the page's order, one folder for each page. Names of the pages exist there: CONFIG a
# small config, FOLDER and FILE some text, MODEL and HF folders an exported model. Models are made small and runs short by keys
# behind the command. Lines that follow a command in its block are what it prints: their words are compared, numbers are not.
#
# Every day it is a third of the pages, which the commit draws.
#
#   test_docs.sh TUTTI ROOT [LIBRARY [PAGE...]]
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1
export OMPI_MCA_btl_vader_single_copy_mechanism=none PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"
unset "${!SLURM_@}" "${!PMI_@}" "${!PMIX_@}"

# Not run, and why. A line that none of these has is run.
library=$("$tutti" --version | grep -oE 'Open MPI|MPICH') mpirun=
for m in mpirun.openmpi mpirun.mpich mpirun; do
    [ -z "$mpirun" ] && [ -n "$library" ] || continue
    case $library:$("$m" --version 2>&1 </dev/null) in
    'Open MPI:'*Open?MPI* | 'Open MPI:'*OpenRTE* | 'Open MPI:'*PRTE* | MPICH:*HYDRA*) mpirun=$(command -v "$m") ;;
    esac
done
! nm "$tutti" 2>/dev/null | grep -q __tsan_init || mpirun= # as for the other tests over MPI
not_run() { # LINE: prints the reason
    case $1 in
    *' --host '*) echo "wants two hosts" ;;
    *s3://BUCKET*) echo "wants a server: remote/test_remote and data/test_objects have one" ;;
    *' bench '*) echo "measures for minutes: kernel/test_gemm_bench, comm/test_table, engine/test_timeline run it small" ;;
    *' 405b.yaml '*) echo "its keys are in plan/test_scale, which plans it" ;;
    mpirun*) [ -n "$mpirun" ] || echo "no launcher of the MPI library that tutti is built with, or ThreadSanitizer" ;;
    esac
}
# Keys behind a command that trains or checks.
small=(model.hidden=32 model.heads=4 model.kv_heads=2 model.ffn=64 model.seq_len=32)
short=(run.steps=2 run.threads=1 run.eval_batches=1 run.tensorboard=false)
keys_for() { # LINE: fills more
    more=()
    case $1 in
    *' --help'*) ;;
    *' train examples/finetune'*) more=(model.seq_len=32 "${short[@]}") ;;
    *' train examples/bert'*) more=(model.layers=1 model.hidden=32 model.seq_len=32 batch.global=8 "${short[@]}" data.train=FOLDER "data.valid=[]") ;;
    *' train examples/t5'*) more=(model.layers=2 model.encoder_layers=1 model.hidden=32 model.ffn=32 model.seq_len=32 batch.global=8 "${short[@]}" data.train=FOLDER "data.valid=[]") ;;
    *' train examples/dates_t5'*) more=(model.layers=2 model.encoder_layers=1 model.hidden=32 model.heads=2 model.ffn=32 "${short[@]}") ;;
    *' train examples/dates_lora'*) more=("${short[@]}") ;;
    *' train examples/dates'*) more=(model.layers=1 model.hidden=32 model.heads=2 model.ffn=32 "${short[@]}") ;;
    *' train examples/sums_rewards'*) more=("${short[@]}") ;;
    *' train examples/sums_score'*) more=(batch.global=16 "${short[@]}") ;;
    *' train examples/sums'*) more=(batch.global=32 batch.micro=32 "${short[@]}") ;;
    *' train examples/mixtral'* | *' train examples/deepseek'*) more=(model.seq_len=32 batch.global=8 "${short[@]}" data.train=FOLDER) ;;
    *' train examples/five_d'*) more=(run.steps=1 run.threads=1 data.train=FOLDER "data.valid=[]") ;;
    *model.layers=1000*) more=(model.layers=20 "${short[@]}") ;;
    *' train '*) more=("${small[@]}" model.layers=6 batch.global=24 batch.micro=1 "${short[@]}" data.train=FOLDER) ;;
    *' data inspect examples/'*) more=("${small[@]}" data.train=FOLDER "data.valid=[]" data.tokenizer=byte) ;;
    *' verify '*) more=("${small[@]}" model.layers=2 batch.global=4 batch.micro=1) ;;
    esac
    case $1 in
    *run.trace=*) more+=(run.steps=6) ;;
    *sample_every*) more+=(run.sample_every=2 checkpoint.every=2) ;;
    esac
}

# ---- what the pages name ----
base=$dir/base
mkdir -p "$base/build" "$base/FOLDER" "$base/bin" "$base/tests"
ln -s "$tutti" "$base/build/tutti"
ln -s "$tutti" "$base/bin/tutti"
[ -z "$mpirun" ] || ln -s "$mpirun" "$base/bin/mpirun"
cp -r "$root/examples" "$base/"
bash "$root/examples/make_dates.sh" "$base/dates" 200 2>/dev/null
bash "$root/examples/make_sums.sh" "$base/sums"
ln -s "$root/src" "$base/src"
ln -s "$root/docs" "$base/docs"
ln -s "$root/README.md" "$base/README.md"
ln -s "$root/tests/train" "$base/tests/train"
cp "$root/CONTRIBUTING.md" "$base/FOLDER/a.txt"
cp "$root/CONTRIBUTING.md" "$base/FILE"
cp "$root/CONTRIBUTING.md" "$base/text"
cp "$root/CONTRIBUTING.md" "$base/big.txt"
mkdir -p "$base/corpus/raw"
cp "$root/CONTRIBUTING.md" "$root/SECURITY.md" "$base/corpus/raw"
cat >"$base/CONFIG" <<'Y'
model: {layers: 2, hidden: 32, heads: 4, kv_heads: 2, ffn: 64, seq_len: 32}
data: {train: [FOLDER]}
batch: {global: 24, micro: 1}
run: {dir: runs/config, steps: 2}
Y
cp "$base/CONFIG" "$base/tiny.yaml"
printf '%s\n' '{"text":"some words of a text"}' '{"prompt":"one","choices":[" two"," three"],"answer":0}' >"$base/tasks.jsonl"
echo "all_reduce hosts 8 any two_level,direct" >"$base/cluster.comm" # as the command above it writes it, on two hosts
(cd "$base" && "$tutti" train CONFIG "${short[@]}" run.dir=hf && "$tutti" checkpoint export hf HF_FOLDER && rm -r hf && ln -s HF_FOLDER Llama-3.2-1B && ln -s HF_FOLDER SMALLER_HF_FOLDER &&
    "$tutti" data train-tokenizer --vocab-size 300 --out tokenizer.json FILE && "$tutti" data tokenize --tokenizer tokenizer.json --out talk FILE) >"$dir/log" 2>&1 || { echo "FAILED: nothing to start from: $(tail -3 "$dir/log")"; exit 1; }

# ---- one page ----
# Commands and what is shown below them: "C command" and "O line"; a backslash at the end goes on.
lines_of() {
    awk -v only="$2" '
        /^    / { l = substr($0, 5); if (more) { l = whole " " l; more = 0 }
            if (l ~ /\\$/) { sub(/ *\\$/, "", l); whole = l; more = 1; next }
            if (l ~ ("^(" only ") ")) { print "C " l; block = 1 } else if (block) print "O " l
            next }
        { block = 0 }' "$1"
}
# The command alone: without comments, words in columns beside it, and what may be left out.
bare() { sed -E 's/(^| )#.*//; s/([^ ])   *.*/\1/; s/ \[(-|--|[a-z]+\.)[^]]*\]//g; s/build\/tutti data tokenize(.*) \/tmp\/x/build\/tutti data tokenize\1 x/' <<<"$1"; }
words() { sed -E "s/$(hostname)/node1/g; s/[0-9][0-9.]*[kMG]?/N/g; s/^binding: .*/binding:/; s/^kernels: .*/kernels:/; s/^transport: mpi, [^,]*,/transport: mpi,/"; }
page() { # FILE ONLY
    local name ran=0 command shown=0 why
    name=$(basename "$1" .md)
    cp -r "$base" "$dir/$name" && cd "$dir/$name" || exit 1
    PATH=$dir/$name/bin:$PATH
    : >log
    while read -r kind line; do
        if [ "$kind" = O ]; then
            [ $shown = 0 ] && continue
            words <log | grep -qxF -- "$(words <<<"$line")" || fail "$name: '$command' does not say '$line'"
            continue
        fi
        command=$(bare "$line") shown=0
        why=$(not_run "$command ")
        if [ -n "$why" ]; then
            echo "$name: not run, $why: $command"
            continue
        fi
        keys_for "$command "
        case $command in *' model.from=runs/'*) ;; *' train '*) rm -rf runs ;; esac # pages train one config in several ways
        eval "$command" '"${more[@]}"' >log 2>&1 </dev/null || fail "$name: $command: $(tail -2 log)"
        ran=$((ran + 1)) shown=1
    done < <(lines_of "$1" "$2")
    echo "$name: $ran commands run"
}
shift $(($# < 3 ? $# : 3))
pages=("$@")
[ $# -gt 0 ] || pages=("$root"/docs/*.md)
running=0 at=0
for p in "${pages[@]}"; do
    at=$((at + 1))
    [ $# -gt 0 ] || drawn_here $at 3 || continue
    (page "$p" 'build/tutti|tutti|mpirun') &
    ((++running < 2)) || { wait -n || fail "a page came to no end"; running=$((running - 1)); }
done
(page "$root/README.md" mpirun) || fail "README.md came to no end"
while [ $running -gt 0 ]; do wait -n || fail "a page came to no end"; running=$((running - 1)); done
passed
