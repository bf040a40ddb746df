#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Enforces floors.txt: who may include whom, where third-party headers and malloc may appear, and that the library
# holds no mutable globals but those that are listed with a reason. Then it checks itself: a small tree that breaks
# every rule once must be refused for each of them.
#
#   test_floors.sh PROGRAM SOURCE_ROOT LIBRARY      (PROGRAM is not used)
set -euo pipefail
root=$2 library=$3
table=$root/tests/floors/floors.txt
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# check_sources TABLE SRC [whole]: prints "file:line: what is wrong", one per line. whole: SRC is all that TABLE is about, so what it
# allows is used there.
check_sources() {
    (cd "$2" && find . -name '*.[ch]' -o -name '*.cu' | sed 's|^\./||' | sort) >"$work/files"
    awk -v src="$2/" -v whole="${3:-}" '
        # The longest room that holds this path, or "".
        function room_of(path,   p) {
            for (p = path; sub(/\/[^\/]*$/, "", p);) if (p in rooms) return p
            return ""
        }
        function allowed(path, places,   list, n, i) {
            n = split(places, list, " ")
            for (i = 1; i <= n; i++) if (index(path, list[i]) == 1) return 1
            return 0
        }
        function complain(what) { print file ":" line ": " what }
        function check_include(text,   name, to) {
            if (text !~ /^[ \t]*#[ \t]*include[ \t]*["<]/) return
            name = text
            sub(/^[^"<]*["<]/, "", name)
            sub(/[">].*$/, "", name)
            if (name in header && !allowed(file, header[name]))
                complain("includes " name ", which belongs to " header[name])
            if (text ~ /</ || name !~ /\//) return
            to = room_of(name)
            used[room, to] = 1
            if (to == "") complain("includes " name ", which is in no room of floors.txt")
            else if (to != room && index(" " rooms[room] " ", " " to " ") == 0)
                complain("room " room " may not include " name " (room " to ")")
        }
        function check_calls(code,   f) {
            gsub(/"([^"\\]|\\.)*"/, "\"\"", code)
            for (f in calls)
                if (code ~ ("(^|[^A-Za-z0-9_])" f "[ \t]*\\(") && !allowed(file, calls[f]))
                    complain("calls " f ", which belongs to " calls[f])
            for (f in members)
                if (code ~ ("(\\.|->)" f "[.[]") && !allowed(file, members[f]))
                    complain("looks into " f ", which belongs to " members[f])
        }
        # The line without its comments; `inside` carries a block comment to the next line.
        function strip(text,   out, at) {
            out = ""
            while (text != "") {
                if (inside) {
                    at = index(text, "*/")
                    if (!at) return out
                    text = substr(text, at + 2)
                    inside = 0
                }
                at = index(text, "/*")
                if (!at) break
                out = out substr(text, 1, at - 1)
                text = substr(text, at + 2)
                inside = 1
            }
            sub(/\/\/.*/, "", text)
            return out text
        }
        /^(room|header|call|member) / {
            split($0, half, " *: *")
            split(half[1], word, " +")
            if (word[1] == "room") rooms[word[2]] = half[2]
            if (word[1] == "header") header[word[2]] = half[2]
            if (word[1] == "call") calls[word[2]] = half[2]
            if (word[1] == "member") members[word[2]] = half[2]
            next
        }
        /^LIST$/ { listing = 1; next }
        listing {
            file = $0
            line = 0
            inside = 0
            room = room_of(file)
            if (room == "") { complain("is in no room of floors.txt"); next }
            while ((getline text < (src file)) > 0) {
                line++
                text = strip(text)
                check_include(text)
                check_calls(text)
            }
            close(src file)
        }
        # Whether b is reached from a by what the table allows.
        function reaches(a, b,   list, n, i) {
            n = split(rooms[a], list, " ")
            for (i = 1; i <= n; i++) {
                if (list[i] == b) return 1
                if (!((list[i], b) in seen)) {
                    seen[list[i], b] = 1
                    if (reaches(list[i], b)) return 1
                }
            }
            return 0
        }
        # The table itself: it allows what is used, and no way leads back.
        END {
            file = "floors.txt"
            for (a in rooms) {
                if (!whole) break
                line = "room " a
                n = split(rooms[a], list, " ")
                for (i = 1; i <= n; i++) {
                    if (!(list[i] in rooms)) complain("allows " list[i] ", which is no room")
                    else if (!((a, list[i]) in used)) complain("allows " list[i] ", which nothing there includes")
                }
                if (reaches(a, a)) complain("a way leads back to it")
            }
        }' <(cat "$1"; echo LIST; cat "$work/files")
}

# check_globals TABLE LIBRARY: prints "object: symbol ..." for every mutable global that has no reason.
check_globals() {
    objdump -t "$2" | awk '
        /^global / { reason[$2 ".o " $3] = 1; next }
        /:     file format / { object = $1; sub(/:$/, "", object); next }
        $1 ~ /^[0-9a-f]+$/ {
            for (i = 2; i <= NF; i++) if ($i ~ /^\.(data|bss|tdata|tbss)/ || $i == "*COM*") break
            if (i > NF || $i ~ /^\.data\.rel\.ro/ || i + 2 > NF) next # constant tables of pointers
            name = $NF
            if (name ~ /^\./) next # the section itself
            sub(/\.[0-9]+$/, "", name) # a static inside a function
            if (!((object " " name) in reason)) print object ": " name " is a mutable global (" $i ")"
        }' "$1" -
}

# expect_refusal TEXT: the fixture's findings must contain it.
expect_refusal() {
    if ! grep -qF -- "$1" "$work/found"; then
        echo "the check is blind: the fixture should have been refused with '$1'; it found:"
        cat "$work/found"
        exit 1
    fi
}

# A tree with one breach of each rule.
bad=$work/bad
mkdir -p "$bad/base" "$bad/device" "$bad/nn" "$bad/kernel/ref" "$bad/kernel/cpu" "$bad/cellar"
cat >"$bad/base/up.c" <<'C'
#include "device/device.h"
/* malloc( in a comment is fine */
void *up(void) { return malloc (4); }
C
echo '#include "kernel/cpu/x.h"' >"$bad/kernel/ref/sibling.c"
printf '#include <stdio.h>\n#include <yaml.h>\n' >"$bad/nn/third.c"
printf '/* two\n lines */ #include "train/train.h"\n' >"$bad/nn/window.c"
echo 'int x;' >"$bad/cellar/lost.c"
echo '#include "attic/a.h"' >"$bad/nn/attic.c"
printf '#include "base/err.h"\nconst char *s = "malloc(";\n' >"$bad/device/good.c"
printf 'int f(const struct op_attrs *at) { return at->as.norm.eps > 0 || has.as.act; }\n' >"$bad/nn/looks.c"
check_sources "$table" "$bad" >"$work/found"
expect_refusal 'base/up.c:1: room base may not include device/device.h (room device)'
expect_refusal 'base/up.c:3: calls malloc, which belongs to base/mem.c'
expect_refusal 'kernel/ref/sibling.c:1: room kernel/ref may not include kernel/cpu/x.h (room kernel/cpu)'
expect_refusal 'nn/third.c:2: includes yaml.h, which belongs to base/conf_yaml.c'
expect_refusal 'nn/window.c:2: room nn may not include train/train.h (room train)'
expect_refusal 'cellar/lost.c:0: is in no room of floors.txt'
expect_refusal 'nn/attic.c:1: includes attic/a.h, which is in no room of floors.txt'
expect_refusal 'nn/looks.c:1: looks into as, which belongs to kernel/attrs.h'
if [ "$(wc -l <"$work/found")" != 8 ]; then
    echo "the check is too strict; of these, only the eight known breaches are real:"
    cat "$work/found"
    exit 1
fi
# A table with one fault of each kind, and a tree that breaks none of its lines.
mkdir -p "$work/small/one" "$work/small/two" "$work/small/three"
echo '#include "two/a.h"' >"$work/small/one/a.h"
echo '#include "three/a.h"' >"$work/small/two/a.h"
echo '#include "two/a.h"' >"$work/small/three/a.h"
printf 'room one : two three attic\nroom two : three\nroom three : two\n' >"$work/small.txt"
check_sources "$work/small.txt" "$work/small" whole >"$work/found"
expect_refusal 'floors.txt:room one: allows three, which nothing there includes'
expect_refusal 'floors.txt:room one: allows attic, which is no room'
expect_refusal 'floors.txt:room two: a way leads back to it'
expect_refusal 'floors.txt:room three: a way leads back to it'
if [ "$(wc -l <"$work/found")" != 4 ]; then
    echo "the check is too strict; of these, only the four known faults of the table are real:"
    cat "$work/found"
    exit 1
fi

# tags_twice SRC: what two headers both define under one tag: a search for a name finds one.
tags_twice() {
    grep -rhoE '^(struct|enum|union) [a-z_0-9]+ \{' --include='*.h' "$1" | sort | uniq -d | sed 's/ {$/: two headers have one of this tag/'
}
printf 'struct one {\n    int a;\n};\nstruct two {\n' >"$work/small/one/b.h"
printf 'struct one;\nenum one {\nstruct two {\n' >"$work/small/two/b.h"
[ "$(tags_twice "$work/small")" = "struct two: two headers have one of this tag" ] || { echo "the check of tags finds: $(tags_twice "$work/small")"; exit 1; }

cat >"$work/globals.c" <<'C'
static const char *const table[] = {"a", "b"};
int counter = 1;
static int hidden;
_Thread_local int mine;
const char *pick(int i);
const char *pick(int i) { static int calls; calls++; hidden += i; return table[(hidden + mine + i + calls) % 2]; }
C
"${CC:-cc}" -O1 -c "$work/globals.c" -o "$work/globals.o"
check_globals "$table" "$work/globals.o" >"$work/found"
for symbol in counter hidden mine calls; do expect_refusal "$symbol is a mutable global"; done
if grep -q ': table is' "$work/found"; then
    echo "the check takes a constant table for a mutable global"
    exit 1
fi

# And now the real ones.
check_sources "$table" "$root/src" whole >"$work/found"
check_globals "$table" "$library" >>"$work/found"
# A file's name says where an idea is: no name twice, but for kernel families, whose files are named for the rows of one table.
grep -vE '^(.*/)?kernel/(ref|cpu|onednn|none|cuda)/' "$work/files" | sed 's|.*/||' | sort | uniq -d | sed 's/$/: a file of this name is in two rooms/' >>"$work/found"
tags_twice "$root/src" >>"$work/found"
if [ -s "$work/found" ]; then
    cat "$work/found"
    echo "$(wc -l <"$work/found") breaches of tests/floors/floors.txt"
    exit 1
fi
echo "floors: $(wc -l <"$work/files") files, no breach"
