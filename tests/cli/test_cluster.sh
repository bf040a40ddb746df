#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What docs/cluster.md gives to who has a cluster. The batch scripts of examples/slurm/ run, with stand-ins for srun, mpirun, scontrol and
# scancel (Slurm's own are not asked for): each way that a turn can end leads to the right next step. Recipes name what exists.
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit
unset "${!SLURM_@}" "${!OMPI_@}" "${!PMI@}"
mkdir "$dir/bin"
# The stand-in starts one rank, and does to it what EVENT says as soon as there is a line of metrics, or a checkpoint.
cat >"$dir/bin/srun" <<'F'
#!/bin/bash
while [[ $1 = -* ]]; do
    case $1 in --map-by) shift ;; esac
    echo "$1" >>"$LOG.options"
    shift
done
trap '[ -z "$pid" ] || kill -USR1 $pid' USR1
"$@" &
pid=$!
has() { case $EVENT in *late) [ -e "$RUN/checkpoints/latest" ] ;; *) [ -s "$RUN/metrics.jsonl" ] ;; esac; }
if [ -n "$EVENT" ]; then
    until has || ! kill -0 $pid 2>/dev/null; do sleep 0.05; done
    case $EVENT in
    usr1*) kill -USR1 $pid ;;
    kill*) kill -KILL $pid ;;
    script*) kill -USR1 "$PPID" ;; # --signal=B:
    esac
fi
wait $pid
status=$?
while kill -0 $pid 2>/dev/null; do wait $pid; status=$?; done
exit $status
F
cp "$dir/bin/srun" "$dir/bin/mpirun"
printf '#!/bin/bash\necho scontrol "$@" >>"$LOG.calls"\n' >"$dir/bin/scontrol"
printf '#!/bin/bash\necho scancel "$@" >>"$LOG.calls"\n' >"$dir/bin/scancel"
chmod +x "$dir"/bin/*
cat >"$dir/toy.yaml" <<F
model: {layers: 1, hidden: 16, heads: 2, kv_heads: 2, ffn: 32, seq_len: 16}
data: {train: $root/CHANGELOG.md}
optimizer: {schedule: {name: constant, warmup_steps: 0}}
batch: {global: 4, micro: 1}
run: {threads: 1, tensorboard: false}
checkpoint: {every: 0}
F
turn() { # SCRIPT EVENT RUN KEYS...: status in $status, what it says in log, what it asks of Slurm in log.calls
    local script=$1
    export EVENT=$2 RUN=$dir/$3 LOG=$dir/log TUTTI=$tutti RANKS=1
    shift 3
    rm -f "$LOG" "$LOG.calls" "$LOG.options"
    touch "$LOG.calls"
    PATH=$dir/bin:$PATH SLURM_JOB_ID=7 SLURM_ARRAY_JOB_ID=5 SLURM_CPUS_PER_TASK=1 bash "$root/examples/slurm/$script.sbatch" "$dir/toy.yaml" "$RUN" "$@" >"$LOG" 2>&1
    status=$?
}
ends() { # WHAT STATUS SAYS CALLS
    [ "$status" = "$2" ] || fail "$1: status $status, wanted $2: $(tail -4 "$LOG")"
    grep -q "^job 7: $3" "$LOG" || fail "$1: does not say '$3': $(tail -4 "$LOG")"
    [ "$(cat "$LOG.calls")" = "$4" ] || fail "$1: asks Slurm for '$(cat "$LOG.calls")', wanted '$4'"
}
for script in one_node nodes mpirun array; do
    signal=usr1 again="scontrol requeue 7" done= over=
    [ $script != mpirun ] || signal=script
    [ $script != array ] || again= done="scancel --state=PENDING 5" over=$done
    bash -n "$root/examples/slurm/$script.sbatch" || fail "$script: syntax"
    turn $script $signal $script run.steps=1000000
    ends "$script, signalled" 0 "not finished (status 0)" "$again"
    step=$(readlink "$RUN/checkpoints/latest")
    turn $script "" $script run.steps=$((10#${step#step-} + 2))
    ends "$script, goes on" 0 finished "$done"
    grep -q "resumed from .*$step" "$LOG" || fail "$script: does not go on from $step: $(cat "$LOG")"
    # Finished once, then wanted longer and killed: the line of the first end does not count.
    turn $script kill $script run.steps=1000000
    ends "$script, killed" 137 "failed (status 137) or came no further than step-" "$over"
    turn $script "" $script model.layers=none
    ends "$script, wrong request" 2 "failed (status 2)" "$over"
done
turn nodes killlate kept run.steps=1000000 checkpoint.every=1 run.log_every=1000
ends "killed after a checkpoint" 0 "not finished (status 137)" "scontrol requeue 7"
turn nodes "" early optimizer.name=sgd optimizer.lr=1e6 optimizer.clip=0 run.steps=50
ends "diverged" 1 "failed (status 1)" ""
turn nodes "" first run.steps=2
ends "at once" 0 finished ""
grep -qx -- "--mpi=pmix" "$LOG.options" && grep -qx -- "--cpus-per-task=1" "$LOG.options" || fail "srun is told: $(cat "$LOG.options")"
! grep -hE '^#SBATCH' "$root"/examples/slurm/*.sbatch | grep -vE '^#SBATCH --[a-z-]+(=[^ ]+)?$' || fail "a line of #SBATCH that is none"
for script in one_node nodes mpirun; do # one decision
    [ "$(sed -n '/^# What next/,$p' "$root/examples/slurm/$script.sbatch")" = "$(sed -n '/^# What next/,$p' "$root/examples/slurm/nodes.sbatch")" ] ||
        fail "$script decides in another way than nodes"
done

# Containers: both recipes say the same, build with what scripts/deps.sh installs, and bring what the program is linked with.
packages() { grep -oE 'apt-get install -y --no-install-recommends [^&]*' "$root/examples/containers/$1" | sed 's/.*recommends //; s/ *$//'; }
[ "$(packages Dockerfile)" = "$(packages tutti.def)" ] && [ "$(packages tutti.def | wc -l)" = 2 ] || fail "Dockerfile and tutti.def install different things"
[ "$(grep -o 'cmake -S.*' "$root/examples/containers/Dockerfile")" = "$(grep -o 'cmake -S.*' "$root/examples/containers/tutti.def")" ] || fail "Dockerfile and tutti.def build in different ways"
for p in $(packages Dockerfile | head -1); do
    grep -qwF -- "$p" "$root/scripts/deps.sh" || fail "the containers build with $p, which scripts/deps.sh does not know"
done
if command -v dpkg-query >/dev/null && grep -q '^VERSION_ID="12"' /etc/os-release && ! grep -q libasan <(ldd "$tutti"); then
    for library in $(ldd "$tutti" | grep -oE '/[^ ]*/lib(yaml-0|onig|xxhash|z|zstd|hwloc|microhttpd|utf8proc|snappy|brotlidec|lz4|archive|divsufsort|dw|dnnl|jpeg|png16|webp|sndfile|avformat|avcodec|avutil|swscale)\.so[^ ]*'); do
        p=$(dpkg-query -S "$library" "/usr$library" 2>/dev/null | head -1 | sed 's/:.*//')
        packages Dockerfile | tail -1 | grep -qwF -- "$p" || fail "tutti is linked with $library of $p, which the containers do not bring"
    done
fi
for f in modules/tutti.lua modules/tutti.tcl spack/repo.yaml spack/packages/tutti/package.py; do
    [ -s "$root/examples/$f" ] || fail "examples/$f is not there"
done
grep -q "0.1.0" <("$tutti" --version) || fail "the module files are of another version: $("$tutti" --version)"
if command -v python3 >/dev/null; then
    python3 -c 'import ast, sys; ast.parse(open(sys.argv[1]).read())' "$root/examples/spack/packages/tutti/package.py" || fail "package.py: syntax"
fi
# The module files do what they say, to stand-ins for the commands of Lmod and of Environment Modules.
if command -v lua >/dev/null; then
    lua -e 'function help() end whatis, conflict, depends_on = help, help, help function pathJoin(a, b) return a .. "/" .. b end
        function prepend_path(k, v) print(k .. "=" .. v) end dofile(arg[1])' "$root/examples/modules/tutti.lua" >"$dir/lua" || fail "tutti.lua"
    grep -qx "PATH=/opt/tutti/0.1.0/bin" "$dir/lua" || fail "tutti.lua: $(cat "$dir/lua")"
fi
if command -v tclsh >/dev/null; then
    { echo 'proc module-whatis x {}; proc conflict x {}; proc prepend-path {k v} {puts "$k=$v"}'; cat "$root/examples/modules/tutti.tcl"; } | tclsh >"$dir/tcl" || fail "tutti.tcl"
    grep -qx "PATH=/opt/tutti/0.1.0/bin" "$dir/tcl" || fail "tutti.tcl: $(cat "$dir/tcl")"
fi
passed
