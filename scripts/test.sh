#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds what is needed and runs the tests.
#
#   scripts/test.sh            what everybody runs, in minutes: the normal build's tests but long ones, packages and the part of the grid
#                              of crossings and of layouts that this commit does not draw, on one of the two other devices; one build under
#                              a sanitizer, which the commit draws, and of its tests new and quick ones, those of rooms that changed, and
#                              what else there is time for (tests/chosen.sh)
#   scripts/test.sh --fast     of those the normal build's, without what waits
#   scripts/test.sh --all      everything: before an issue is closed, and for a release (hours). All tests, all layouts, the whole grid;
#                              all of them under AddressSanitizer with UndefinedBehaviorSanitizer, and ThreadSanitizer; numeric ones at
#                              every level of instruction sets; kernels for 64-bit Arm, emulated; packages
#   scripts/test.sh --part NAME   a part of --all: normal, waits, asan, tsan, levels, aarch64; may be given several times
#
#   --sanitizer address|thread    that one, instead of the one that the commit draws
#   --costs                       what each test took of a processor goes to tests/costs.txt
#
# A part that passed is written down in tests/whole.txt: the others tell how far behind that is.
# TUTTI_JOBS: how many things run at once (default: as many compilers as cores, and half as many tests more: they wait for disks and for
# each other).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
jobs=${TUTTI_JOBS:-$((($(nproc) * 3 + 1) / 2))}

every=(normal waits asan tsan levels aarch64) # the parts of --all
tier=day costs= sanitizer= parts=()
usage() {
    echo "usage: scripts/test.sh [--fast | --all | --part NAME ...] [--sanitizer address|thread] [--costs]; parts: ${every[*]}" >&2
    exit 2
}
while [ $# -gt 0 ]; do
    case $1 in
    --fast) tier=fast ;;
    --all | --long) tier=all parts=("${every[@]}") ;;
    --part)
        case " ${every[*]} " in *" ${2:-} "*) ;; *) usage ;; esac
        tier=all parts+=("$2")
        shift
        ;;
    --sanitizer)
        case ${2:-} in address | thread) sanitizer=$2 ;; *) usage ;; esac
        shift
        ;;
    --costs) costs=$(mktemp -d) ;;
    *) usage ;;
    esac
    shift
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

# suite NAME DIRECTORY CTEST_OPTION...: one ctest run (-j may be given again); keeps the sentence it closes with, and what it left out.
suite() {
    local name=$1 directory=$2 log start=$SECONDS total all ran
    shift 2
    log=$(mktemp)
    echo "test: $name" >&2
    if [ -n "$costs" ]; then export TUTTI_COSTS=$costs/$name; fi
    if ! (cd "$directory" && "${prefix[@]}" ctest --output-on-failure --no-tests=error -j "$jobs" "$@") 2>&1 | tee "$log"; then
        failed=1
    fi
    total=$(grep -E '^[0-9]+% tests passed' "$log" || echo "no tests ran")
    ran=$(sed -n 's/^.* out of \([0-9]*\)$/\1/p' <<<"$total")
    all=$(cd "$directory" && ctest -N -LE '^fuzz$' | sed -n 's/^Total Tests: //p')
    lines+=("$(printf '%-10s %s in %d s; %d not run' "$name" "$total" $((SECONDS - start)) $((all - ${ran:-0})))")
    # What failed is told again at the end: many lines may lie between.
    while IFS= read -r line; do lines+=("  $line"); done < <(awk '
        function told(  i) { for (i = n > 12 ? n - 12 : 0; i < n; i++) print "  " said[i]; n = 0; on = 0 }
        /^ *[0-9]+\/[0-9]+ Test +#/ { told(); on = /\*\*\*/ && !/Skipped/; if (on) print; next }
        /^[0-9]+% tests passed/ { told() }
        /^ +Start +[0-9]+: / { next }
        on { said[n++] = $0 }
        END { told() }' "$log")
    rm -f "$log"
}

# build NAME OPTION...: scripts/build.sh, and how long it took.
build() {
    local name=$1 start=$SECONDS
    shift
    bash "$root/scripts/build.sh" "$@"
    lines+=("$(printf '%-10s built in %d s' "$name" $((SECONDS - start)))")
}

# build_sanitized NAME DIRECTORY SANITIZERS [OPTION...]
build_sanitized() {
    build "$1" "$2" -DTUTTI_SANITIZE="$3" "${@:4}" -DCMAKE_BUILD_TYPE=Sanitize \
        -DCMAKE_C_FLAGS="$quiet_flags" -DCMAKE_C_FLAGS_SANITIZE="-O1 -g1" -DFUZZ_SECONDS=2
}

# other_levels: numeric tests once more at each lower level of this processor (TUTTI_ISA, kernel/cpuid.h), and at those that it lacks,
# emulated (tests/emulate/avx512.h): what adds up and rounds differently there.
other_levels() {
    local -A flag=([avx2]=avx2 [avx512]=avx512vl [avx512-bf16]=avx512_bf16 [amx]=amx_tile)
    local level own= levels=(avx2 avx512 avx512-bf16 amx)
    local numeric='^(kernel/test_(gemm_tile|gemm_linear|rows|vec_rows|attention|gradients|scaled|grouped_scaled)|golden/test_golden|verify/test_waves|engine/test_t5)$'
    if [ "$(uname -m)" != x86_64 ]; then return; fi
    for level in "${levels[@]}"; do
        if grep -qw "${flag[$level]}" /proc/cpuinfo; then own=$level; fi
    done
    for level in "${levels[@]}"; do
        if [ "$level" = "$own" ] || ! grep -qw "${flag[$level]}" /proc/cpuinfo; then continue; fi
        TUTTI_ISA=$level suite "$level" "$root/build" -L '^(kernel|parallel|optim|state|golden|engine|decode|learn|site|train|verify)$' -LE '^(long|grid|waits|package)$'
    done
    if [ "$own" = amx ] || [ -z "$own" ]; then return; fi
    if [ ! -e /usr/include/simde/x86/avx512.h ] && ! { [ "$(id -u)" = 0 ] && apt-get install -y -q libsimde-dev >/dev/null 2>&1; }; then
        lines+=("emulated   levels above $own were not tested: libsimde-dev is not installed")
        return
    fi
    "$root/scripts/build.sh" build-emulated -DTUTTI_EMULATE=ON
    for level in "${levels[@]}"; do
        if grep -qw "${flag[$level]}" /proc/cpuinfo; then continue; fi
        TUTTI_ISA=$level suite "$level"'*' "$root/build-emulated" -R "$numeric"
    done
}

# whole_told: how far what was last tested whole is behind, by its oldest part.
whole_told() {
    local part commit date behind days oldest= most=-1 missing=
    for part in "${every[@]}"; do
        read -r commit date < <(sed -n "s/^part $part commit \([0-9a-f]*\) date \([0-9-]*\).*/\1 \2/p" "$root/tests/whole.txt" 2>/dev/null) || true
        if [ -z "${commit:-}" ] || ! behind=$(git -C "$root" rev-list --count "$commit..HEAD" 2>/dev/null); then
            missing+=" $part"
        elif [ "$behind" -gt "$most" ]; then
            most=$behind oldest=$part days=$((($(date +%s) - $(date -d "$date" +%s)) / 86400))
        fi
        commit=
    done
    if [ -n "$missing" ]; then
        echo "scripts/test.sh --all: of its parts${missing} ${missing:+have not passed yet at a commit that is here (tests/whole.txt)}"
    fi
    if [ "$most" -gt 60 ]; then
        echo "SCRIPTS/TEST.SH --ALL: ITS PART $oldest PASSED $most COMMITS AND $days DAYS AGO: MUCH MAY HAVE CHANGED THAT ONLY IT TESTS"
    elif [ "$most" -ge 0 ]; then
        echo "scripts/test.sh --all: its oldest part, $oldest, passed $most commits and $days days ago"
    fi
}

# whole_write PART SECONDS SENTENCE: it passed, here and now.
whole_write() {
    local file=$root/tests/whole.txt new
    new=$(mktemp)
    {
        echo '# When the parts of scripts/test.sh --all last passed: the commit, the day, the machine, how long it took.'
        { grep '^part ' "$file" 2>/dev/null || true; } | grep -v "^part $1 " || true
        echo "part $1 commit $(git -C "$root" rev-parse HEAD) date $(date -u +%Y-%m-%d) machine $(uname -m)," \
            "$(nproc) cores,$({ grep -owE 'avx2|avx512vl|avx512_bf16|amx_tile|asimd' /proc/cpuinfo || true; } | sort -u | sed 's/^/ /' | tr -d '\n')," \
            "$2 s: $3"
    } >"$new"
    cat "$new" >"$file"
    rm -f "$new"
}

# What changed since every part of --all passed, or since the first commit: rooms of src/ and tests/, one a line.
changed_rooms() {
    local part commit since=
    for part in asan tsan; do
        commit=$(sed -n "s/^part $part commit \([0-9a-f]*\) .*/\1/p" "$root/tests/whole.txt" 2>/dev/null || true)
        if [ -z "$commit" ] || ! git -C "$root" merge-base --is-ancestor "$commit" HEAD 2>/dev/null; then since= && break; fi
        if [ -z "$since" ] || git -C "$root" merge-base --is-ancestor "$commit" "$since"; then since=$commit; fi
    done
    if [ -z "$since" ]; then
        (cd "$root/src" && ls -d -- */)
    else
        git -C "$root" diff --name-only "$since" -- src tests | sed -n 's,^\(src\|tests\)/\([a-z]*\)/.*,\2/,p'
    fi | sort -u | tr -d /
}

# part_begin, part_end NAME: a part of --all, which is written down if it passed.
part_begin() { ever=$((ever | failed)) failed=0 at=${#lines[@]} start=$SECONDS; }
part_end() {
    if [ "$failed" = 0 ]; then whole_write "$1" $((SECONDS - start)) "$(printf '%s; ' "${lines[@]:at}")"; fi
    failed=$((ever | failed))
}

bash "$root/scripts/deps.sh" --tests --quiet
wants() { case " ${parts[*]} " in *" $1 "*) ;; *) return 1 ;; esac; }
commit=$(git -C "$root" rev-parse HEAD 2>/dev/null || echo 0)
drawn=$((16#${commit:0:7}))
if [ -z "$sanitizer" ]; then
    if [ $((drawn % 2)) = 1 ]; then sanitizer=thread; else sanitizer=address; fi
fi
# Old ThreadSanitizers cannot live with the address layouts of new kernels.
unmoved=()
if setarch "$(uname -m)" -R true 2>/dev/null; then unmoved=(setarch "$(uname -m)" -R); fi

day() {
    local waits rc=0 name=asan what=address,undefined column=3 names devices=(late untouchable)
    local replay='|replay' # under the sanitizer, where it is one of addresses
    if [ "$sanitizer" = thread ]; then replay=; fi
    build normal
    suite normal "$root/build" -LE "^(long|whole|fuzz|waits|package|grid|${devices[drawn / 2 % 2]}$replay)\$"
    if [ "$tier" = fast ]; then return; fi
    # What waits needs no core: it does so while the next build has them.
    waits=$(mktemp)
    (
        lines=() failed=0
        suite waits "$root/build" -L '^waits$' -j $((2 * jobs)) >"$waits.log" 2>&1
        printf '%s\n' "${lines[@]}" >"$waits"
        exit $failed
    ) &
    local waiting=$!
    if [ "$sanitizer" = thread ]; then name=tsan what=thread column=4 prefix=("${unmoved[@]}"); fi
    build_sanitized "$name" "build-$name-day" "$what" -DTUTTI_TEST_MPI=OFF -DTUTTI_ISA=native
    wait $waiting || rc=$?
    if [ $rc != 0 ]; then failed=1; fi
    cat "$waits.log"
    mapfile -t -O "${#lines[@]}" lines <"$waits"
    rm -f "$waits" "$waits.log"
    names=$(mktemp)
    (cd "$root/build-$name-day" && ctest -N -LE '^(long|whole|fuzz|package|grid)$' | sed -n 's/^ *Test *#[0-9]*: //p') >"$names"
    # shellcheck disable=SC2046 # rooms are words
    bash "$root/tests/chosen.sh" "$names" $column "${TUTTI_SANITIZED_SECONDS:-250}" "$drawn" $(changed_rooms) >"$names.chosen" 2>"$names.told"
    suite "$name" "$root/build-$name-day" -R "^($(sed 's/[.]/[.]/g' "$names.chosen" | paste -sd '|'))\$"
    lines+=("           chosen: $(cat "$names.told")")
    rm -f "$names" "$names.chosen" "$names.told"
}

whole() {
    local at start rc ever=0
    export TUTTI_WHOLE=1
    if wants normal || wants waits || wants levels; then build normal; fi
    if wants normal; then
        part_begin
        suite normal "$root/build" -LE '^(fuzz|waits)$'
        part_end normal
    fi
    if wants waits; then
        part_begin
        suite waits "$root/build" -L '^waits$' -j $((2 * jobs))
        part_end waits
    fi
    if wants asan; then
        part_begin
        build_sanitized asan build-asan address,undefined
        suite asan "$root/build-asan" -LE '^fuzz$'
        part_end asan
    fi
    if wants tsan; then
        part_begin
        build_sanitized tsan build-tsan thread
        prefix=("${unmoved[@]}")
        suite tsan "$root/build-tsan" -LE '^fuzz$'
        prefix=()
        part_end tsan
    fi
    if wants levels; then
        part_begin
        other_levels
        part_end levels
    fi
    if wants aarch64; then
        # Another processor, where its compiler, emulator and libraries can be had.
        part_begin
        rc=0
        bash "$root/scripts/arm.sh" || rc=$?
        case $rc in
        0) lines+=("$(printf '%-10s passed in %d s' aarch64 $((SECONDS - start)))") ;;
        77) lines+=("aarch64    was not tested: the reason is above") ;;
        *) lines+=("aarch64    failed") failed=1 ;;
        esac
        if [ $rc = 77 ]; then failed=$((ever | failed)); else part_end aarch64; fi
    fi
}

if [ "$tier" = all ]; then whole; else day; fi

# What waits is part of the normal build.
if [ -n "$costs" ]; then
    for name in normal waits asan tsan; do touch "$costs/$name"; done
    cat "$costs/waits" >>"$costs/normal"
    bash "$root/tests/costs.sh" "$costs/normal" "$costs/asan" "$costs/tsan"
    rm -rf "$costs"
fi
if ! bash "$root/scripts/browser.sh" >/dev/null 2>&1; then
    lines+=("browser    none here: the page of a run was not seen in one")
fi
echo
for line in "${lines[@]}"; do echo "$line"; done
printf '%-10s %d s (%d min)\n' "in all" "$SECONDS" $(((SECONDS + 30) / 60))
if [ "$failed" = 1 ]; then
    echo "tests failed"
    exit 1
fi
if [ "$tier" != all ]; then
    echo "left out: long tests, packages, the layouts, crossings and the device that this commit does not draw, the other sanitizer, other processors: scripts/test.sh --all"
fi
whole_told
echo "all tests passed"
