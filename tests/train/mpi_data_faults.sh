#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# suite: waits
# suite: unwatched sanitizers
# Hosts with files of their own: one of them cannot read its data, has other data under the same name, cannot write what it
# tokenizes, has another config. Every process ends, the rank and its reason are named, the status is 1 or 2, and nothing was trained or saved.
set -u
# shellcheck source=tests/comm/mpirun.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/comm/mpirun.sh"

cat >"$dir/tiny.yaml" <<YAML
model: {family: llama, layers: 1, hidden: 16, heads: 2, ffn: 20, seq_len: 24}
data: {train: [text.txt], valid: [valid.txt], cache_dir: cache}
batch: {global: 6, micro: 1}
comm: {timeout_s: 1000} # longer than ranks() lets them wait: what is found only then is not found
run: {threads: 1, steps: 3, tensorboard: false, eval_every: 3, eval_batches: 1}
YAML
# A rank works in the folder of its host, which may have keys of its own.
cat >"$dir/host.sh" <<'HOST'
#!/bin/bash
cd "$1/host${OMPI_COMM_WORLD_RANK:-${PMI_RANK:?no rank}}" || exit 9
[ ! -f keys ] || mapfile -t own <keys
exec "${@:2}" "${own[@]}"
HOST
chmod +x "$dir/host.sh"

hosts() { # fresh folders of 3 hosts, with equal files
    rm -rf "$dir"/host[0-9] "$dir/run"
    for h in 0 1 2; do
        mkdir "$dir/host$h"
        foxes 100 >"$dir/host$h/text.txt"
        foxes 40 >"$dir/host$h/valid.txt"
    done
}
run() {
    ranks 3 "$dir/host.sh" "$dir" "$tutti" train "$dir/tiny.yaml" run.dir="$dir/run" "$@" >"$dir/log" 2>&1
    status=$?
}
# refused WHAT PATTERN KEYS...
refused() {
    local what=$1 pattern=$2
    shift 2
    run "$@"
    [ $status = 1 ] || [ $status = 2 ] || fail "$what: status $status: $(tail -5 "$dir/log")"
    grep -qE -- "$pattern" "$dir/log" || fail "$what: no line like '$pattern' in: $(cat "$dir/log")"
    [ ! -s "$dir/run/metrics.jsonl" ] || fail "$what: it trained all the same"
    [ -z "$(ls "$dir/run/checkpoints" 2>/dev/null)" ] || fail "$what: it saved all the same"
}

for keys in "" "parallel.servers=1" "parallel.servers=1 parallel.server_mode=async"; do
    hosts
    # shellcheck disable=SC2086
    run $keys
    [ $status = 0 ] || fail "equal files $keys: status $status: $(tail -5 "$dir/log")"
done

hosts
rm "$dir/host1/text.txt"
refused "no file on rank 1" "^error: rank 1: .*data.train: text.txt: no such file"
hosts
rm "$dir/host0/text.txt"
refused "no file on rank 0" "^error: .*data.train: text.txt: no such file"
hosts
rm "$dir/host1/valid.txt"
refused "nothing to validate with on rank 1, a worker" "^error: rank 1: .*data.valid: valid.txt: no such file" parallel.servers=1
hosts
foxes 99 >"$dir/host1/text.txt"
refused "a shorter file on rank 1" "^error: rank 1: .*data.train: not the data of rank 0, which has [0-9]+ tokens; here are [0-9]+; copy"
hosts
sed -i 's/fox/cat/' "$dir/host2/text.txt"
refused "other words on rank 2" "^error: rank 2: .*data.train: not the data of rank 0.*, other ones; copy"
hosts
sed -i 's/fox/cat/' "$dir/host1/valid.txt"
refused "other words to validate with" "^error: rank 1: .*data.valid: not the data of rank 0.*, other ones; copy" \
    parallel.servers=1 parallel.server_mode=async
hosts
touch "$dir/host1/cache"
refused "no folder for tokens on rank 1" "^error: rank 1: .*data.train: .*cache"

for key in precision.recipe=fp32 parallel.zero=1 optimizer.lr=0.001 run.steps=4 data.seed=2 "parallel.servers=1"; do
    hosts
    echo "$key" >"$dir/host1/keys"
    refused "another config on rank 1: $key" "^tutti: rank 1: command line: ${key%=*}: '${key#*=}' here, '[a-z0-9.]+' on rank 0; start every"
    [ $status = 2 ] || fail "another config on rank 1: $key: status $status"
done
hosts
echo "data.train=[{path: text.txt, weight: 2}]" >"$dir/host1/keys"
refused "another weight on rank 1" "data.train.weight: '2[.0]*' here, '1[.0]*' on rank 0; start every"
hosts
printf '%s\n' run.threads=2 data.cache_dir=elsewhere "data.train=./text.txt" >"$dir/host1/keys"
run
[ $status = 0 ] || fail "other threads and folders: status $status: $(tail -5 "$dir/log")"

passed
