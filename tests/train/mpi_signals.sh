#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# suite: unwatched sanitizers
# Signals under a launcher: sent to one process of a run, or to the launcher, which hands on what it likes; all ranks stop after the
# same step, with a checkpoint. During the set-up nothing half done is left.
set -u
# shellcheck source=tests/comm/mpirun.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/comm/mpirun.sh"
# shellcheck source=tests/train/faults.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/train/faults.sh"

# begin NAME KEYS...: in the background; the launcher in $launcher, the timeout before it in $guard
begin() {
    local name=$1
    shift
    ranks 3 "$tutti" train "$dir/tiny.yaml" run.dir="$dir/$name" batch.global=6 checkpoint.every=0 comm.timeout_s=1000 "$@" >"$dir/$name.log" 2>&1 &
    guard=$!
}
# started NAME: some steps are done
started() {
    until_so $guard grep -qs '"step":5,' "$dir/$1/metrics.jsonl" || fail "$1: step 5 did not come: $(cat "$dir/$1.log")"
}
launcher_of() { # below the shell's function and timeout; Open MPI 5's mpirun becomes prterun
    local child exe
    for child in $(cat /proc/"$1"/task/*/children 2>/dev/null); do
        exe=$(readlink "/proc/$child/exe")
        [ "$exe" = "$(readlink -f "$mpirun")" ] || [[ $exe = */prte || $exe = */prterun ]] && echo "$child" && return
        launcher_of "$child"
    done
}
ps_parent() { sed -n 's/^PPid:[[:space:]]*//p' "/proc/$1/status"; }
saved() {
    local steps
    steps=$(grep -c '"loss"' "$dir/$1/metrics.jsonl")
    [ -d "$dir/$1/checkpoints/$(printf step-%08d "$steps")" ] || fail "$1: no checkpoint of step $steps: $(ls "$dir/$1/checkpoints"; cat "$dir/$1.log")"
    "$tutti" checkpoint verify "$dir/$1" >"$dir/out" 2>&1 || fail "$1: a broken checkpoint: $(cat "$dir/out")"
    grep -qi "gone\|BUG" "$dir/$1.log" && fail "$1: blames somebody: $(cat "$dir/$1.log")"
}

# One process, the first and another one.
for rank in 0 1; do
    for signal in TERM USR1 HUP; do
        name=$signal$rank
        begin "$name"
        started "$name"
        kill -$signal "$(process_of_rank $guard $rank)"
        wait $guard
        status=$?
        [ $status = 0 ] || fail "$name: status $status: $(cat "$dir/$name.log")"
        saved "$name"
        grep -q "SIG$signal" "$dir/$name.log" || fail "$name: does not say what came: $(cat "$dir/$name.log")"
    done
done

# The launcher. Open MPI hands on SIGUSR1 and SIGUSR2, and SIGTERM with a kill soon after it; MPICH's dies of SIGUSR2.
for signal in USR1 TERM $([ "$library" = mpich ] || echo USR2); do
    name=launcher$signal
    begin "$name"
    started "$name"
    launcher=$(launcher_of $guard)
    [ -n "$launcher" ] || fail "$name: no launcher"
    kill -$signal "$launcher"
    wait $guard
    status=$?
    [ $signal = TERM ] || [ $status = 0 ] || fail "$name: status $status: $(cat "$dir/$name.log")"
    saved "$name"
done

# The launcher is killed, and whatever stands between it and the ranks: nobody could end them any more, so they save and stop, however
# long that takes. A run of ten million steps would never end by itself: however long it takes on a busy machine, that it ends is what is tried.
begin orphans
started orphans
pids=$(for rank in 0 1 2; do process_of_rank $guard $rank; done)
above=$(launcher_of $guard)
for pid in $pids; do above="$above $(ps_parent "$pid")"; done
above=$(printf '%s\n' $above | sort -u)
set -- $pids
[ $# = 3 ] || fail "orphans: not three ranks: $pids"
kill -STOP $above # those between end their children when they see the launcher go
kill -KILL $above
wait $guard
if kill -STOP "$3"; then # the others wait for it, for longer than Open MPI leaves a process that lost its launcher
    sleep 3
    kill -CONT "$3"
fi
for pid in $pids; do
    while [ -e "/proc/$pid" ]; do sleep 0.1; done
done
saved orphans

# While texts are tokenized by one of the processes and the others wait for it: whoever gets it, all end. Where another one than the
# process that gets it tokenizes, that one has to come to its end within the 3 s that a process in its set-up waits, or the launcher kills
# it with its half-made file, which the next start overwrites: so the text is one of a second, also on a busy machine.
yes "The quick brown fox jumps over the lazy dogs, 1234567 of them, and they sleep." | head -c 20000000 >"$dir/long.txt"
for rank in 0 2; do
    name=early$rank
    rm -rf "$dir/cache2"
    begin "$name" data.tokenizer="$root/tests/data/fixtures/gpt2.json" data.train="[$dir/long.txt]" data.cache_dir="$dir/cache2"
    until_so $guard compgen -G "$dir/cache2/*.tmp" >/dev/null
    kill -USR1 "$(process_of_rank $guard $rank)"
    wait $guard
    status=$?
    [ $status != 0 ] && [ $status != 124 ] || fail "$name: status $status: $(cat "$dir/$name.log")"
    compgen -G "$dir/cache2/*.[tl][mo][pc]*" && fail "$name: half a cache is left"
    grep -q "stopped.*while" "$dir/$name.log" || fail "$name: does not say what came: $(cat "$dir/$name.log")"
    grep -qi "gone\|BUG" "$dir/$name.log" && fail "$name: blames somebody: $(cat "$dir/$name.log")"
done

passed
