#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# 64-bit Arm from another processor: cross-compiles tutti, runs the tests of its kernels, `tutti verify` and some training under
# qemu-user, and compares the training of every instruction set with the reference's. Debian's packages.
#
#   scripts/arm.sh             build and test in build-arm/
#   scripts/arm.sh --count     executed instructions of NEON kernels and of the reference, counted under emulation
#
# Ends with 77, and says why, where the tools or the Arm system's libraries cannot be had. TUTTI_JOBS: how many things run at once.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build-arm
files=$build/sysroot
jobs=${TUTTI_JOBS:-$(nproc)}
libraries=(libc6-dev libyaml-dev libonig-dev libxxhash-dev zlib1g-dev libzstd-dev libhwloc-dev libcurl4-openssl-dev libssl-dev libutf8proc-dev libsnappy-dev libbrotli-dev liblz4-dev libarchive-dev libdivsufsort-dev libmicrohttpd-dev libdw-dev libjpeg-dev libpng-dev libwebp-dev libcmocka-dev) # FFmpeg and libsndfile, which bring a hundred others, are tried without here

count=0
case ${1:-} in
'') ;;
--count) count=1 ;;
*)
    echo "usage: scripts/arm.sh [--count]" >&2
    exit 2
    ;;
esac
not_tested() {
    echo "arm: aarch64 was not tested: $*" >&2
    exit 77
}
say() { echo "arm: $*" >&2; }

if [ "$(uname -m)" = aarch64 ]; then
    say "this is one: scripts/test.sh tests it without emulation"
    exit 0
fi

# ---- the cross compiler and the emulator ----
qemu() { command -v qemu-aarch64-static || command -v qemu-aarch64; }
have_tools() { command -v aarch64-linux-gnu-gcc >/dev/null && qemu >/dev/null; }
if ! have_tools; then
    tools=(gcc-aarch64-linux-gnu qemu-user-static)
    as_root=()
    if [ "$(id -u)" != 0 ]; then as_root=(sudo -n); fi # nobody is asked for a password because of it
    command -v apt-get >/dev/null || not_tested "there is no aarch64-linux-gnu-gcc or qemu-aarch64 here, and no apt-get"
    say "installing ${tools[*]}"
    get=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y)
    "${get[@]}" install --no-install-recommends "${tools[@]}" >/dev/null 2>&1 ||
        { "${get[@]}" update && "${get[@]}" install --no-install-recommends "${tools[@]}"; } >/dev/null 2>&1 || true
    have_tools || not_tested "could not install ${tools[*]}"
fi

# ---- the Arm system's libraries: packages unpacked into a folder, by an apt that knows of nothing else ----
if [ "$(cat "$files/.complete" 2>/dev/null)" != "${libraries[*]}" ]; then
    command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || not_tested "no apt-get to get Arm's libraries with"
    say "getting ${libraries[*]} for arm64 into ${files#"$root/"}"
    rm -rf "$files" "$build/apt"
    mkdir -p "$files" "$build/apt/state/lists/partial" "$build/apt/cache/archives/partial"
    : >"$build/apt/status"
    apt=(apt-get -q -y -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State="$build/apt/state"
        -o Dir::State::status="$build/apt/status" -o Dir::Cache="$build/apt/cache" -o Debug::NoLocking=1
        -o APT::Sandbox::User=root -o Acquire::Languages=none)
    "${apt[@]}" update >"$build/apt/log" 2>&1 || true # a list that is not for Arm is no matter
    "${apt[@]}" install --download-only --no-install-recommends "${libraries[@]}" >>"$build/apt/log" 2>&1 ||
        not_tested "could not get ${libraries[*]} for arm64 ($build/apt/log)"
    for package in "$build"/apt/cache/archives/*.deb; do dpkg-deb -x "$package" "$files"; done
    if [ ! -e "$files/lib" ]; then ln -s usr/lib "$files/lib"; fi
    rm -rf "$build/apt"
    echo "${libraries[*]}" >"$files/.complete"
fi

# ---- build ----
say "building in ${build#"$root/"}"
log=$(mktemp)
scratch=$(mktemp -d)
trap 'rm -rf "$log" "$scratch"' EXIT
generator=()
if [ ! -e "$build/CMakeCache.txt" ] && command -v ninja >/dev/null; then generator=(-G Ninja); fi
werror=()
if [ -n "${CI:-}" ]; then werror=(-DTUTTI_WERROR=ON); fi
# Rooms whose code differs from processor to processor: their tests, each a part of its room's program.
tests=$(cd "$root/tests" && ls kernel/test_*.c layout/test_*.c comm/test_fold.c base/test_rng.c | grep -v test_rows_itself | sed 's#\.c$##')
targets=(tutti kernel_tests layout_tests comm_tests base_tests)
if [ "$count" = 1 ]; then targets=(count_calls); fi
if ! cmake -S "$root" -B "$build" "${generator[@]}" --toolchain "$root/cmake/aarch64.cmake" -DTUTTI_SYSROOT="$files" \
    "${werror[@]}" >"$log" 2>&1 || ! cmake --build "$build" --parallel "$jobs" --target "${targets[@]}" >"$log" 2>&1; then
    grep -v '^\[[0-9/]*\] Building\|^\[[0-9/]*\] Linking' "$log" >&2 || true
    say "failed in $build"
    exit 1
fi
emulator=("$(qemu)" -cpu max -L "$files")

# ---- instructions ----
if [ "$count" = 1 ]; then
    echo "instructions executed, counted under emulation ($("${emulator[0]}" --version | sed -n 's/.*version \([0-9.]*\).*/qemu \1/p'), $(aarch64-linux-gnu-gcc --version | head -1))"
    mkfifo "$scratch/log"
    for isa in neon neon-bf16; do
        awk -f "$root/scripts/arm_count.awk" <"$scratch/log" >"$scratch/counts" &
        TUTTI_ISA=$isa "${emulator[@]}" -d in_asm,exec,nochain -D "$scratch/log" "$build/tests/count_calls" >"$scratch/labels"
        wait
        paste -d' ' "$scratch/counts" "$scratch/labels" | awk -v isa="$isa" '
            BEGIN { printf("%-34s %10s %10s %6s\n", "", "ref", isa, "part") }
            { who = $NF; n = $1; $1 = ""; $NF = ""
              if (who == "ref") { ref[$0] = n; next }
              part = n / ref[$0]
              printf("%-34s %10d %10d %6.3f%s\n", $0, ref[$0], n, part, part > 0.25 ? "  more than a quarter" : "") }'
    done
    exit 0
fi

# ---- tests ----
failed=0
pattern=$(paste -sd '|' <<<"$tests")
(cd "$build" && ctest --output-on-failure --no-tests=error -j "$jobs" -R "^($pattern)\$") || failed=1

# The whole program: layouts against one rank, and every instruction set's training against the reference's.
cd "$scratch"
for i in $(seq 300); do echo "$i. The quick brown fox jumps over $((i * 7 % 9)) lazy dogs; they sleep."; done >text.txt
cat >toy.yaml <<'END'
model: {layers: 2, hidden: 32, heads: 4, kv_heads: 2, ffn: 44, seq_len: 32}
data: {train: [text.txt]}
batch: {global: 4, micro: 2}
run: {steps: 6, threads: 1}
END
"${emulator[@]}" "$build/tutti" verify toy.yaml -n 2 || { say "verify failed"; failed=1; }
losses() { sed -n 's/.*"loss": *\([0-9.e+-]*\).*/\1/p' "$1/metrics.jsonl"; }
for recipe in fp32 bf16; do
    for isa in ref neon neon-bf16; do
        TUTTI_ISA=$isa "${emulator[@]}" "$build/tutti" train toy.yaml "precision.recipe=$recipe" "run.dir=$recipe-$isa" 2>"$log" ||
            { cat "$log" >&2; failed=1; }
        # f32: sums in another order; bf16: rounded at other places.
        paste <(losses "$recipe-ref") <(losses "$recipe-$isa") | awk -v what="$recipe $isa" -v bound="$([ $recipe = fp32 ] && echo 1e-4 || echo 2e-2)" '
            { d = $1 - $2; if (d < 0) d = -d; if (!(d <= bound)) bad = 1; if (d > most) most = d }
            END { printf("arm: %s: %d losses, the last %s, within %.1e of ref\n", what, NR, $2, most); exit bad || NR != 6 }' ||
            { say "$recipe with $isa differs from ref"; failed=1; }
    done
done
exit $failed
