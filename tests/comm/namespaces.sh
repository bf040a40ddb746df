# SPDX-License-Identifier: Apache-2.0
# Hosts as network namespaces on one bridge: sourced by what runs MPI between hosts of one machine.
#
#   hosts_open DIR N      N namespaces, addresses 10.213.77.1 to N; non-zero, and hosts_why says why, where that may not be.
#                         DIR/ssh is what a launcher takes for ssh
#   hosts_close           ends what runs there, and removes them
#   hosts_run LIBRARY MPIRUN RANKS_PER_HOST SECONDS COMMAND...   the command on all ranks, started from the first host
# shellcheck shell=bash
hosts_n=0 hosts_id=$$ hosts_dir='' hosts_why=''

hosts_close() {
    # A launcher that is killed leaves its half on other hosts, and what that started, to themselves.
    for ((i = 1; i <= hosts_n; i++)); do ip netns pids "tutti-$hosts_id-$i" 2>/dev/null | xargs -r kill -KILL 2>/dev/null; done
    for ((i = 1; i <= hosts_n; i++)); do ip netns del "tutti-$hosts_id-$i" 2>/dev/null; done
    ip netns del "tutti-$hosts_id-bridge" 2>/dev/null
    hosts_n=0
}

hosts_open() {
    hosts_dir=$1
    command -v ip >/dev/null && command -v unshare >/dev/null || { hosts_why="there is no ip or unshare"; return 1; }
    local bridge=tutti-$hosts_id-bridge
    ip netns add "$bridge" 2>/dev/null || { hosts_why="no right to make network namespaces"; return 1; }
    ip -n "$bridge" link add bridge type bridge 2>/dev/null && ip -n "$bridge" link set bridge up ||
        { hosts_why="no bridges here"; return 1; }
    for ((hosts_n = 1; hosts_n <= $2; hosts_n++)); do
        local space=tutti-$hosts_id-$hosts_n link=v$hosts_id-$hosts_n
        ip netns add "$space" && ip link add "$link" netns "$space" type veth peer name "$link" netns "$bridge" 2>/dev/null ||
            { hosts_why="no virtual interfaces here"; return 1; }
        ip -n "$space" link set lo up
        ip -n "$space" address add "10.213.77.$hosts_n/24" dev "$link"
        ip -n "$space" link set "$link" up
        ip -n "$bridge" link set "$link" master bridge up
    done
    hosts_n=$2
    ip netns exec "tutti-$hosts_id-1" ping -c1 -W2 "10.213.77.$hosts_n" >/dev/null 2>&1 || sleep 1
    # host I COMMAND: there, under its own name
    cat >"$hosts_dir/host" <<END_HOST
#!/bin/bash
i=\$1
shift
exec ip netns exec tutti-$hosts_id-\$i unshare --uts bash -c "hostname tutti-\$i; \$*"
END_HOST
    # What the launcher takes for ssh: the address stands somewhere before the command.
    cat >"$hosts_dir/ssh" <<END_SSH
#!/bin/bash
while [ \$# -gt 0 ] && [[ \$1 != 10.213.77.* ]]; do shift; done
i=\${1##*.}
shift
exec $hosts_dir/host \$i "\$*"
END_SSH
    chmod +x "$hosts_dir/host" "$hosts_dir/ssh"
    export OMPI_MCA_plm_rsh_agent=$hosts_dir/ssh OMPI_MCA_btl_tcp_if_include=10.213.77.0/24
    export OMPI_MCA_oob_tcp_if_include=10.213.77.0/24 OMPI_MCA_plm_rsh_no_tree_spawn=1 OMPI_MCA_btl=tcp,self,vader OMPI_MCA_pml=ob1
}

hosts_run() {
    local library=$1 mpirun=$2 each=$3 seconds=$4 all='' slots='' where command
    shift 4
    for ((i = 1; i <= hosts_n; i++)); do all+=${all:+,}10.213.77.$i slots+=${slots:+,}10.213.77.$i:$each; done
    where=(--host "$slots")
    [ "$library" = mpich ] && where=(-launcher ssh -launcher-exec "$hosts_dir/ssh" -hosts "$all" -ppn "$each")
    printf -v command '%q ' "$mpirun" "${where[@]}" -np $((hosts_n * each)) "$@"
    timeout --kill-after=5 "$seconds" "$hosts_dir/host" 1 "$command" </dev/null
}
