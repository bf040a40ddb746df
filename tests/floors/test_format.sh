#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The sources are laid out as .clang-format says, and no line is longer than 120 columns but in tables that are laid by hand
# (clang-format off). Another version than 14 lays out otherwise: without it nothing is looked at.
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit
formatter=$(command -v clang-format-14) || { echo "skipped: clang-format-14 is not installed"; exit 77; }

# long FILES: lines of more than 120 columns outside of tables laid by hand.
long() {
    awk 'FNR == 1 { off = 0 } /clang-format off/ { off = 1 } /clang-format on/ { off = 0 }
         !off && length($0) > 120 { print FILENAME ":" FNR ": " length($0) " columns" }' "$@"
}
# The checks see what they are for.
cp "$root/.clang-format" "$dir/"
printf 'int f(int x)\n{\n  return   x;\n}\n' >"$dir/loose.c"
"$formatter" --style=file --dry-run -Werror "$dir/loose.c" 2>/dev/null && fail "loose.c passes"
printf '/* %0130d */\n' 1 >"$dir/long.c"
[ "$(long "$dir/long.c" | wc -l)" = 1 ] || fail "long.c passes"

mapfile -t files < <(find "$root/src" "$root/tests" "$root/bench" "$root/examples" -name '*.[ch]' | sort)
[ ${#files[@]} -gt 300 ] || fail "only ${#files[@]} sources"
# Every day those that the last commits touched, and a quarter of the others.
declare -A changed=()
while read -r file; do changed[$root/$file]=1; done < <(git -C "$root" diff --name-only HEAD~20 2>/dev/null)
asked=() part=-1
for i in 0 1 2 3; do if drawn_here $i 4; then part=$i; fi; done
[ -z "${TUTTI_WHOLE:-}" ] && [ ${#changed[@]} -gt 0 ] || part=-1
for i in "${!files[@]}"; do
    if [ $part = -1 ] || [ $((i % 4)) = $part ] || [ -n "${changed[${files[i]}]:-}" ]; then asked+=("${files[i]}"); fi
done
printf '%s\0' "${asked[@]}" | xargs -0 -n 50 -P 2 "$formatter" --style=file --dry-run -Werror 2>"$dir/found" ||
    fail "run clang-format-14 -i on: $(grep -oE '^[^:]+\.[ch]' "$dir/found" | sort -u | tr '\n' ' ')"
long "${files[@]}" >"$dir/long"
[ ! -s "$dir/long" ] || fail "$(cat "$dir/long")"
passed
