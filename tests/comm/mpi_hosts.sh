#!/bin/bash
# Two hosts as network namespaces joined by a pair of virtual interfaces, two ranks on each, MPI between them over TCP: every
# operation by every algorithm, hosts found for what they are, and training to the bits of ranks as threads. Needs the
# right to make namespaces; skipped without it.
set -u
# shellcheck source=tests/comm/mpirun.sh
. "$2/tests/comm/mpirun.sh"
id=$$
a=tutti-a-$id b=tutti-b-$id
dir=$(mktemp -d)
clean() {
    ip netns del "$a" 2>/dev/null
    ip netns del "$b" 2>/dev/null
    rm -rf "$dir"
}
trap clean EXIT
skip() {
    echo "skipped: $*"
    exit 77
}
command -v ip >/dev/null && command -v unshare >/dev/null || skip "there is no ip or unshare"
ip netns add "$a" 2>/dev/null && ip netns add "$b" 2>/dev/null || skip "no right to make network namespaces"
ip link add "va$id" netns "$a" type veth peer name "vb$id" netns "$b" 2>/dev/null || skip "no virtual interfaces here"
for end in "$a va$id 10.213.77.1" "$b vb$id 10.213.77.2"; do
    read -r space link address <<<"$end"
    ip -n "$space" link set lo up
    ip -n "$space" address add "$address/24" dev "$link"
    ip -n "$space" link set "$link" up
done
ip netns exec "$a" ping -c1 -W2 10.213.77.2 >/dev/null 2>&1 || sleep 1

# host SPACE NAME COMMAND: there, under its own name
cat >"$dir/host" <<END_HOST
#!/bin/bash
space=\$1 name=\$2
shift 2
exec ip netns exec \$space unshare --uts bash -c "hostname \$name; \$*"
END_HOST
# What the launcher takes for ssh: the address stands somewhere before the command.
cat >"$dir/ssh" <<END_SSH
#!/bin/bash
while [ \$# -gt 0 ] && [ "\$1" != 10.213.77.2 ]; do shift; done
shift
exec $dir/host $b tutti-b "\$*"
END_SSH
chmod +x "$dir/host" "$dir/ssh"

export OMPI_MCA_plm_rsh_agent=$dir/ssh OMPI_MCA_btl_tcp_if_include=10.213.77.0/24 OMPI_MCA_oob_tcp_if_include=10.213.77.0/24
export OMPI_MCA_plm_rsh_no_tree_spawn=1 OMPI_MCA_btl=tcp,self,vader OMPI_MCA_pml=ob1
across() {
    local where=(--host "10.213.77.1:2,10.213.77.2:2")
    [ "$library" = mpich ] && where=(-launcher ssh -launcher-exec "$dir/ssh" -hosts 10.213.77.1,10.213.77.2 -ppn 2)
    printf -v command '%q ' "$mpirun" "${where[@]}" -np 4 "$@"
    timeout --kill-after=5 60 "$dir/host" "$a" tutti-a "$command" </dev/null
}

across "$programs/test_algorithms" 0 >"$dir/log" 2>&1 || fail "operations between hosts: $(tail -20 "$dir/log")"
grep -q "4 ranks .*, 2 a host: passed" "$dir/log" || fail "hosts are not found: $(tail -5 "$dir/log")"
across "$programs/test_crossing" 0 >"$dir/log" 2>&1 || fail "crossing between hosts: $(tail -20 "$dir/log")"

for i in $(seq 200); do echo "$i. The quick brown fox jumps over $((i * 7 % 9)) lazy dogs, and they sleep."; done >"$dir/text.txt"
cat >"$dir/tiny.yaml" <<YAML
model: {family: llama, layers: 2, hidden: 32, heads: 4, ffn: 44, seq_len: 24}
data: {train: [$dir/text.txt], cache_dir: $dir/cache}
batch: {global: 8, micro: 1}
optimizer: {lr: 1.0e-3, schedule: {name: constant, warmup_steps: 2}}
parallel: {dp_replicate: 2, dp_shard: 2, zero: 3}
run: {threads: 1, steps: 3, tensorboard: false, eval_every: 0}
YAML
"$tutti" train "$dir/tiny.yaml" -n 4 run.dir="$dir/threads" >"$dir/log" 2>&1 || fail "threads: $(tail -3 "$dir/log")"
across "$tutti" train "$dir/tiny.yaml" run.dir="$dir/hosts" >"$dir/log" 2>&1 || fail "training: $(tail -3 "$dir/log")"
"$tutti" checkpoint diff "$dir/threads/checkpoints/step-00000003" "$dir/hosts/checkpoints/step-00000003" >"$dir/diff" 2>&1 ||
    fail "other weights between hosts than between threads: $(head -3 "$dir/diff")"
[ $failures = 0 ]
