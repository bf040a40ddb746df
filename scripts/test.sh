#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds what is needed and runs the tests.
#
#   scripts/test.sh            normal build: all tests but those of packages, and of the grid of crossings the rows that this commit
#                              draws; AddressSanitizer and UndefinedBehaviorSanitizer: all but the long ones; ThreadSanitizer: the
#                              rooms that use threads
#   scripts/test.sh --fast     normal build only, without the long tests
#   scripts/test.sh --all      packages too, the sanitizers run the long tests, the whole grid of crossings
#                              (tests/verify/test_grid.c), numeric tests at every level of instruction sets, kernels for 64-bit Arm,
#                              emulated: for a release (hours). --long is its older name. If all pass, tests/whole.txt says when,
#                              and the others tell how long ago that was
#
#   --costs beside any of these    what each test took of a processor goes to tests/costs.txt
#
# TUTTI_JOBS: how many things run at once (default: the cores).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
jobs=${TUTTI_JOBS:-$(nproc)}

fast=0 all=0 costs=
for arg in "$@"; do
    case $arg in
    --fast) fast=1 ;;
    --all | --long) all=1 ;;
    --costs) costs=$(mktemp -d) ;;
    *)
        echo "usage: scripts/test.sh [--fast] [--all] [--costs]" >&2
        exit 2
        ;;
    esac
done

# gcc warns falsely about formats and uninitialised values in the code that a sanitizer adds.
quiet_flags='-Wno-format-truncation -Wno-maybe-uninitialized -Wno-stringop-overflow'
case $(basename "$(readlink -f "$(command -v "${CC:-cc}")")") in
*clang*) quiet_flags= ;;
esac
# A library that was not built with ThreadSanitizer synchronises in ways it cannot see.
export TSAN_OPTIONS="suppressions=$root/scripts/tsan.supp ${TSAN_OPTIONS:-}"
export LSAN_OPTIONS="suppressions=$root/scripts/lsan.supp:print_suppressions=0 ${LSAN_OPTIONS:-}"
export ASAN_OPTIONS="allocator_may_return_null=1 ${ASAN_OPTIONS:-}"
export UBSAN_OPTIONS="print_stacktrace=1 ${UBSAN_OPTIONS:-}"

lines=() failed=0 prefix=()

# suite NAME DIRECTORY CTEST_OPTION...: one ctest run (-j may be given again); keeps the sentence it closes with.
suite() {
    local name=$1 directory=$2 log start=$SECONDS total
    shift 2
    log=$(mktemp)
    echo "test: $name" >&2
    if [ -n "$costs" ]; then export TUTTI_COSTS=$costs/$name; fi
    if ! (cd "$directory" && "${prefix[@]}" ctest --output-on-failure --no-tests=error -j "$jobs" "$@") 2>&1 | tee "$log"; then
        failed=1
    fi
    total=$(grep -E '^[0-9]+% tests passed' "$log" || echo "no tests ran")
    lines+=("$(printf '%-10s %s in %d s' "$name" "$total" $((SECONDS - start)))")
    # What failed is told again at the end: an hour of lines may lie between.
    while IFS= read -r line; do lines+=("  $line"); done < <(awk '
        function told(  i) { for (i = n > 12 ? n - 12 : 0; i < n; i++) print "  " said[i]; n = 0; on = 0 }
        /^ *[0-9]+\/[0-9]+ Test +#/ { told(); on = /\*\*\*/ && !/Skipped/; if (on) print; next }
        /^[0-9]+% tests passed/ { told() }
        /^ +Start +[0-9]+: / { next }
        on { said[n++] = $0 }
        END { told() }' "$log")
    rm -f "$log"
}

# build_sanitized DIRECTORY SANITIZERS
build_sanitized() {
    "$root/scripts/build.sh" "$1" -DTUTTI_SANITIZE="$2" -DCMAKE_BUILD_TYPE=Sanitize \
        -DCMAKE_C_FLAGS="$quiet_flags" -DCMAKE_C_FLAGS_SANITIZE="-O1 -g1" -DFUZZ_SECONDS=2
}

# other_levels: numeric tests once more at each lower level of this processor (TUTTI_ISA, kernel/cpuid.h), and at those that it lacks,
# emulated (tests/emulate/avx512.h): what adds up and rounds differently there.
other_levels() {
    local -A flag=([avx2]=avx2 [avx512]=avx512vl [avx512-bf16]=avx512_bf16 [amx]=amx_tile)
    local level own= levels=(avx2 avx512 avx512-bf16 amx)
    local numeric='^(kernel/test_(gemm_tile|gemm_linear|rows|vec_rows|attention|gradients|scaled|grouped_scaled)|golden/test_golden|verify/test_waves|run/test_t5)$'
    if [ "$(uname -m)" != x86_64 ]; then return; fi
    for level in "${levels[@]}"; do
        if grep -qw "${flag[$level]}" /proc/cpuinfo; then own=$level; fi
    done
    for level in "${levels[@]}"; do
        if [ "$level" = "$own" ] || ! grep -qw "${flag[$level]}" /proc/cpuinfo; then continue; fi
        TUTTI_ISA=$level suite "$level" "$root/build" -L '^(kernel|parallel|optim|state|golden|run|verify)$' -LE '^(long|grid|waits|package)$'
    done
    if [ "$own" = amx ] || [ -z "$own" ]; then return; fi
    if [ ! -e /usr/include/simde/x86/avx512.h ] && ! { [ "$(id -u)" = 0 ] && apt-get install -y -q libsimde-dev >/dev/null 2>&1; }; then
        lines+=("emulated   levels above $own were not tested: libsimde-dev is not installed")
        return
    fi
    "$root/scripts/build.sh" build-emulated -DTUTTI_EMULATE=ON
    for level in "${levels[@]}"; do
        if grep -qw "${flag[$level]}" /proc/cpuinfo; then continue; fi
        TUTTI_ISA=$level suite "$level"'*' "$root/build-emulated" -R "$numeric" --timeout 3600
    done
}

# whole_told: how far what was last tested whole is behind.
whole_told() {
    local commit date behind days
    commit=$(sed -n 's/^commit //p' "$root/tests/whole.txt" 2>/dev/null || true)
    date=$(sed -n 's/^date //p' "$root/tests/whole.txt" 2>/dev/null || true)
    if [ -z "$commit" ]; then
        echo "scripts/test.sh --all has not passed yet (tests/whole.txt)"
        return
    fi
    days=$((($(date +%s) - $(date -d "$date" +%s)) / 86400))
    if ! behind=$(git -C "$root" rev-list --count "$commit..HEAD" 2>/dev/null); then
        echo "scripts/test.sh --all passed $days days ago, at a commit that is not here"
    elif [ "$behind" -gt 60 ]; then
        echo "SCRIPTS/TEST.SH --ALL PASSED $behind COMMITS AND $days DAYS AGO: MUCH MAY HAVE CHANGED THAT ONLY IT TESTS"
    else
        echo "scripts/test.sh --all passed $behind commits and $days days ago"
    fi
}

# whole_write: all passed, here and now.
whole_write() {
    {
        echo '# When scripts/test.sh --all last passed, and what it ran.'
        echo "commit $(git -C "$root" rev-parse HEAD)"
        echo "date $(date -u +%Y-%m-%d)"
        echo "machine $(uname -m), $(nproc) cores, $(grep -owE 'avx2|avx512vl|avx512_bf16|amx_tile|asimd' /proc/cpuinfo | sort -u | tr '\n' ' ')"
        printf '%s\n' "${lines[@]}"
        echo "in all     $SECONDS s"
    } >"$root/tests/whole.txt"
}

bash "$root/scripts/deps.sh" --tests --quiet
"$root/scripts/build.sh"
if [ "$fast" = 1 ]; then
    suite normal "$root/build" -LE '^(long|fuzz|waits|grid|drawn)$'
    suite waits "$root/build" -L '^waits$' -j $((2 * jobs))
else
    release='|package|grid'
    if [ "$all" = 1 ]; then release=; fi
    suite normal "$root/build" -LE "^(fuzz|waits$release)\$"
    suite waits "$root/build" -L '^waits$' -j $((2 * jobs))
    without=()
    if [ "$all" = 0 ]; then without=(-LE '^(long|grid)$'); fi
    build_sanitized build-asan address,undefined
    suite asan+ubsan "$root/build-asan" "${without[@]}"
    build_sanitized build-tsan thread
    # Old ThreadSanitizers cannot live with the address layouts of new kernels.
    if setarch "$(uname -m)" -R true 2>/dev/null; then prefix=(setarch "$(uname -m)" -R); fi
    suite tsan "$root/build-tsan" "${without[@]}"
    if [ "$all" = 1 ]; then
        other_levels
        # Another processor, where its compiler, emulator and libraries can be had.
        rc=0 start=$SECONDS
        bash "$root/scripts/arm.sh" || rc=$?
        case $rc in
        0) lines+=("$(printf '%-10s passed in %d s' aarch64 $((SECONDS - start)))") ;;
        77) lines+=("aarch64    was not tested: the reason is above") ;;
        *) lines+=("aarch64    failed") failed=1 ;;
        esac
    fi
fi

# What waits is part of the normal build.
if [ -n "$costs" ]; then
    cat "$costs/normal" "$costs/waits" >"$costs/all" || true
    touch "$costs/asan+ubsan" "$costs/tsan"
    bash "$root/tests/costs.sh" "$costs/all" "$costs/asan+ubsan" "$costs/tsan"
    rm -rf "$costs"
fi
if ! bash "$root/scripts/browser.sh" >/dev/null 2>&1; then
    lines+=("browser    none here: the page of a run was not seen in one")
fi
echo
for line in "${lines[@]}"; do echo "$line"; done
if [ "$failed" = 1 ]; then
    echo "tests failed"
    exit 1
fi
if [ "$all" = 1 ]; then whole_write; else whole_told; fi
echo "all tests passed"
