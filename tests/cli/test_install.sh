#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What is installed works where it lies: the program, a program of one's own through pkg-config, manual pages, completion. The
# list of keys in docs/ is the program's own.
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit
build=$(dirname "$tutti")
"$root/scripts/manual.sh" "$tutti" "$dir/manual" || fail "manual.sh"
cmp -s "$dir/manual/config.md" "$root/docs/config.md" || fail "docs/config.md is old: scripts/manual.sh build/tutti OUT, then copy OUT/config.md"
[ "$(grep -c '^| `' "$root/docs/config.md")" = "$("$tutti" train --help | sed '1,/^Keys:/d' | grep -c '^  [a-z]')" ] || fail "keys are lost on the way to docs/config.md"
for c in train generate plan report; do
    grep -q "^tutti\\\\-$c \\\\- " "$dir/manual/man1/tutti-$c.1" || fail "no manual page of $c"
    grep -q "    $c) options=\"" "$dir/manual/bash/tutti" || fail "no completion of $c"
done
grep -q 'memory.recompute\b' "$dir/manual/man1/tutti-train.1" || fail "the manual page of train has no keys"
complete() { # complete WORD...: what bash offers for the last word
    bash -c 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _tutti; echo "${COMPREPLY[@]}"' - "$dir/manual/bash/tutti" "$@"
}
[ "$(complete tutti gen)" = generate ] || fail "tutti gen: $(complete tutti gen)"
[[ " $(complete tutti train x parallel.) " == *" parallel.tp= "* ]] || fail "keys: $(complete tutti train x parallel.)"
[[ " $(complete tutti generate --t) " == *" --top-k "* ]] || fail "options: $(complete tutti generate --t)"
if command -v man >/dev/null && [ -z "$(man --version 2>&1 | grep -i minimized)" ]; then
    man --warnings -l "$dir/manual/man1/tutti-train.1" >"$dir/shown" 2>"$dir/warnings"
    ! grep -v "can't break line\|cannot adjust line" "$dir/warnings" | grep -q . || fail "man: $(head -3 "$dir/warnings")"
fi

[ -e "$build/cmake_install.cmake" ] || { passed; exit; } # a program of another build
cmake --install "$build" --prefix "$dir/here" >"$dir/log" 2>&1 || fail "install: $(tail -3 "$dir/log")"
mv "$dir/here" "$dir/moved" # nothing knows where it was put
"$dir/moved/bin/tutti" --version >"$dir/out" || fail "the installed program does not run"
for f in share/man/man1/tutti-train.1 share/bash-completion/completions/tutti share/doc/tutti/LICENSE share/doc/tutti/docs/config.md; do
    [ -s "$dir/moved/$f" ] || fail "$f is not installed"
done
case $(nm "$library" 2>/dev/null | grep -c __asan_init; nm "$library" 2>/dev/null | grep -c __tsan_init) in
*[1-9]*) ;; # a sanitizer's library wants its flags too
*)
    cat >"$dir/own.c" <<'C'
#include <stdio.h>
#include "layout/mesh.h"
#include "schedule/schedule.h"
int main(void)
{
    struct err e = {0};
    struct schedule *s;
    if (schedule_generate(&s, "1f1b", 4, 8, 0, 0, &e)) return 1;
    printf("%d\n", s->n_ranks);
    schedule_free(s);
    return 0;
}
C
    pc=$(find "$dir/moved" -name tutti.pc)
    export PKG_CONFIG_PATH=$(dirname "$pc")
    # shellcheck disable=SC2046
    ${CC:-cc} -std=gnu11 -o "$dir/own" "$dir/own.c" $(pkg-config --cflags --libs tutti) 2>"$dir/err" || fail "pkg-config: $(tail -5 "$dir/err")"
    [ "$("$dir/own")" = 4 ] || fail "a program of one's own does not run"
    ;;
esac
passed
