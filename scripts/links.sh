#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Keeps links from the docs into the sources true. A link [`name`](../src/FILE#L12) points at the line where FILE defines
# `name`: a function, a struct, an enum, or a macro.
#
#   scripts/links.sh            writes the lines as they are now into docs/*.md
#   scripts/links.sh --check    changes nothing; says which links are wrong, and exits 1
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
check=0
case ${1:-} in
'') ;;
--check) check=1 ;;
*)
    echo "usage: scripts/links.sh [--check]" >&2
    exit 2
    ;;
esac

# line FILE NAME: where NAME is defined: a definition that goes on, else its declaration.
line() {
    grep -nE "^([a-z].*[ *])?$2\(.*[^;]$" "$1" | head -1 | cut -d: -f1 | grep . ||
        grep -nE "^([a-z].*[ *])?$2\(|^(struct|enum) $2( \{|;)|^#define $2\b" "$1" | head -1 | cut -d: -f1 | grep .
}

wrong=0
for page in "$root"/docs/*.md "$root"/README.md; do
    while IFS=$'\t' read -r name file at; do
        path=$(dirname "$page")/$file
        if [ ! -e "$path" ] || ! now=$(line "$path" "$name"); then
            echo "${page#"$root"/}: $file has no $name" >&2
            wrong=1
        elif [ "$now" != "$at" ] && [ $check = 1 ]; then
            echo "${page#"$root"/}: $name is at line $now of $file, not $at; scripts/links.sh writes it" >&2
            wrong=1
        elif [ "$now" != "$at" ]; then
            sed -i "s|(\($file\)#L$at)|(\1#L@$now)|;s|\[\`$name\`\](\($file\)#L[0-9]*)|[\`$name\`](\1#L$now)|g; s|#L@|#L|g" "$page"
        fi
    done < <(grep -oE '\[`[A-Za-z0-9_]+`\]\((\.\./)?src/[^)#]*#L[0-9]+\)' "$page" | sed -E 's/\[`(.*)`\]\((.*)#L([0-9]+)\)/\1\t\2\t\3/' | sort -u)
done
exit $wrong
