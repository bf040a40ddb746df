# SPDX-License-Identifier: Apache-2.0
# The pictures in the documentation are what the program draws. $1: the program, $2: the source root.
set -eu
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit
for page in "$2"/docs/schedules/*.svg; do
    kind=$(basename "$page" .svg)
    "$1" schedule "$kind" --stages 4 --microbatches 8 --svg "$dir/$kind.svg" > /dev/null
    cmp "$page" "$dir/$kind.svg" || { echo "FAILED: docs/schedules/$kind.svg is old: draw it again"; exit 1; }
    [ -f "$2/docs/schedules/$kind.md" ] || { echo "FAILED: no page about $kind"; exit 1; }
done
"$1" schedule --help | sed -n '/KINDS/,/OPTIONS/p' | awk 'NF > 1 {print $1}' | while read -r kind; do
    case $kind in onestage) continue ;; esac
    [ -f "$2/docs/schedules/$kind.md" ] || { echo "FAILED: no page about $kind"; exit 1; }
done
echo done
