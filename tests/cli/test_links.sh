#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# suite: unwatched sanitizers
# Links and names in the docs are true: lines of definitions, files that exist, pages that are there.
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit
"$root/scripts/links.sh" --check || fail "scripts/links.sh writes the lines as they are now"
[ "$(grep -oE '#L[0-9]+' "$root/docs/tour.md" | wc -l)" -ge 30 ] || fail "the tour has lost its links"

# The check finds what it is for: a definition that moved, one that is gone, a file that is gone.
mkdir -p "$dir/scripts" "$dir/docs" "$dir/src/a"
cp "$root/scripts/links.sh" "$dir/scripts/"
printf 'int other(void);\n\nint moved(int x)\n{\n    return moved(x);\n}\nstruct box {\n};\n' >"$dir/src/a/b.c"
echo '[`moved`](../src/a/b.c#L3) [`box`](../src/a/b.c#L7)' >"$dir/docs/x.md"
touch "$dir/README.md"
"$dir/scripts/links.sh" --check || fail "true links are refused"
sed -i '1i// one line more' "$dir/src/a/b.c"
"$dir/scripts/links.sh" --check 2>"$dir/err" && fail "a definition that moved is not noticed"
"$dir/scripts/links.sh" && [ "$(cat "$dir/docs/x.md")" = '[`moved`](../src/a/b.c#L4) [`box`](../src/a/b.c#L8)' ] || fail "not mended: $(cat "$dir/docs/x.md")"
sed -i 's/moved/renamed/' "$dir/src/a/b.c"
"$dir/scripts/links.sh" 2>"$dir/err" && fail "a definition that is gone is not noticed"
rm "$dir/src/a/b.c"
"$dir/scripts/links.sh" 2>"$dir/err" && fail "a file that is gone is not noticed"

# Every paper that a source cites (Name 2020, Name et al. 2020, Name and Name 2020) stands in docs/papers.md, with that year.
grep -rhoE "\b[A-Z][a-z]+( et al\.| and [A-Z][a-z]+)?,? (19|20)[0-9]{2}\b" "$root/src" | grep -E " (and|et al)|^(Shazeer|Cristian) " | sed -E 's/^([A-Z][a-z]+).* ([0-9]{4})$/\1 \2/' |
    sort -u | while read -r name year; do grep -qE "$name.*$year" "$root/docs/papers.md" || echo "$name $year"; done >"$dir/papers"
[ ! -s "$dir/papers" ] || fail "docs/papers.md has not, and a source cites: $(paste -sd, "$dir/papers")"

# Pages that pages name, and sources that docs/papers.md and docs/architecture.md name.
cd "$root/docs" || exit 1
for page in *.md ../README.md ../CONTRIBUTING.md; do
    for link in $(grep -oE '\]\([^)#: ]+' "$page" | cut -c3-); do
        [ -e "$(dirname "$page")/$link" ] || fail "$page: $link is not there"
    done
done
for file in $(grep -ohE '`(base|layout|schedule|device|kernel|comm|tape|state|parallel|optim|data|checkpoint|nn|run|plan|report|verify|cli)/[a-z0-9_/]+\.[ch]`' papers.md architecture.md tour.md glossary.md | tr -d '`' | sort -u); do
    [ -e "../src/$file" ] || fail "src/$file is named and not there"
done
# A word of the glossary stands in the file that the glossary sends its reader to.
while IFS=$'\t' read -r word file; do
    grep -qiE "(^|[^a-z])$word" "../src/$file" || fail "docs/glossary.md: src/$file does not say '$word'"
done < <(sed -nE 's/^\| \*\*([a-z ]+)\*\*.*\| `([^`]*)` \|$/\1\t\2/p' glossary.md)
[ "$(grep -c '^| \*\*' glossary.md)" -ge 50 ] || fail "the glossary has lost its words"
passed
