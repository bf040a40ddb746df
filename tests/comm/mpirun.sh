# SPDX-License-Identifier: Apache-2.0
# Sourced by tests that start ranks through an MPI library: script.sh, and mpirun, programs, options, and
# ranks N COMMAND...: runs it under the library's launcher, more ranks than cores if need be, for at most 400 s; and
# beside COMMAND...: a case of its own that mostly waits, in the background, three at once: $dir is a folder of its own there, with links to
# the .yaml and .sh files of the script's; all_done: when they are over.
# No script asks how long a job took: what is to be found at once would otherwise be waited for (comm.timeout_s) longer than ranks lets it
# run, and its status is 124.
# shellcheck shell=bash disable=SC2034
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0" # what the libraries keep until the end is theirs
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit
mpirun=$4 programs=$5
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_btl_vader_single_copy_mechanism=none
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe PRTE_MCA_hwloc_default_binding_policy=none # Open MPI 5's launcher
unset "${!SLURM_@}" "${!PMI_@}" "${!PMIX_@}"
options=() # of the launcher
ranks() {
    local n=$1
    shift
    timeout --kill-after=5 400 "$mpirun" "${options[@]}" -np "$n" "$@" </dev/null
}
cases=0
beside() {
    local own=$dir/case-$((cases += 1))
    while [ "$(jobs -rp | wc -l)" -ge 3 ]; do wait -n; done
    mkdir "$own"
    find "$dir" -maxdepth 1 -type f -name '*.yaml' -exec ln -s {} "$own" \;
    (
        dir=$own
        "$@"
    ) &
}
all_done() { wait; }
