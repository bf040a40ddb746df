#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# scripts/package.sh: two builds in other folders, at other times, by other settings, give the same bits; what is in the packages runs
# where it is unpacked; what they say they need is what the program is linked with. Long, because it compiles everything twice (with little
# optimization, which is cheapest: with none, what the kernels are made of takes minutes; it hides no path, date or order that a build could leak).
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit
if nm "$library" 2>/dev/null | grep -q "__asan_init\|__tsan_init"; then echo "the packages are built without sanitizers, whichever build this is"; exit 0; fi
mkdir "$dir/work"
export SOURCE_DATE_EPOCH=1700000000 TUTTI_PACKAGE_VERSION=7.8.9
TMPDIR=$dir/work "$root/scripts/package.sh" "$dir/out" --check -DCMAKE_C_FLAGS_PACKAGE=-O1 >"$dir/made" 2>"$dir/log" ||
    { echo "FAILED: package.sh: $(tail -20 "$dir/log")"; exit 1; }
grep -q "built twice, the same bits" "$dir/log" || fail "says $(tail -3 "$dir/log")"
(cd "$dir/out" && sha256sum --quiet -c SHA256SUMS) || fail "SHA256SUMS"
while read -r made; do [ -s "$made" ] || fail "$made was not made"; done <"$dir/made"
[ -z "$(ls "$dir/work")" ] || fail "left behind: $(ls "$dir/work")"

# runs PREFIX: the program of an unpacked tree, and what lies beside it
runs() {
    local prefix=$1 program=$1/bin/tutti command path
    "$program" --version >"$dir/out.txt" || fail "$prefix: does not run"
    "$program" --help >"$dir/help" || fail "$prefix: --help"
    for command in $("$program" --help | sed -n 's/^  \([a-z][a-z]*\)  .*/\1/p'); do
        gzip -dc "$prefix/share/man/man1/tutti-$command.1.gz" | grep -q "^tutti\\\\-$command" || fail "$prefix: no manual page of $command"
    done
    "$program" verify "$prefix/share/doc/tutti/examples/quickstart.yaml" -n 2 model.layers=2 model.hidden=32 model.heads=2 \
        model.kv_heads=2 model.ffn=64 model.seq_len=32 batch.global=4 batch.micro=2 >"$dir/out.txt" 2>&1 || fail "$prefix: verify: $(tail -3 "$dir/out.txt")"
    for path in "$root" "$dir"; do
        grep -qF -- "$path/" "$program" && fail "$prefix: the program knows $path"
        grep -qF -- "$path/" "$prefix/lib/libtutti_core.a" && fail "$prefix: the library knows $path"
    done
    [ -z "$(find "$prefix" -not -type l -newermt "@$SOURCE_DATE_EPOCH" -o -perm /022 -not -type l)" ] || fail "$prefix: later files, or files that others may write"
}
mkdir "$dir/a" "$dir/b"
tar -C "$dir/a" -xzf "$dir"/out/*.tar.gz || fail "tar"
mv "$dir"/a/tutti-7.8.9-linux-* "$dir/moved"
runs "$dir/moved"

# A program of one's own against the moved library, which reads the list of what is linked.
cat >"$dir/own.c" <<'C'
#include <stdio.h>
#include "base/json.h"
int main(int argc, char **argv)
{
    struct json *root;
    struct err e = {0};
    if (argc != 2 || json_parse_file(&root, argv[1], 1 << 20, &e)) return printf("%s\n", e.text), 1;
    const struct json *packages = json_get(root, "packages"), *links = json_get(root, "relationships");
    for (size_t i = 0; i < json_size(packages); i++) {
        const struct json *p = json_at(packages, i);
        printf("%s %s\n", json_string(json_get(p, "name"), NULL, "?"), json_string(json_get(p, "versionInfo"), NULL, "?"));
    }
    for (size_t i = 0; i < json_size(links); i++)
        printf("%s -> %s\n", json_string(json_get(json_at(links, i), "spdxElementId"), NULL, "?"),
               json_string(json_get(json_at(links, i), "relatedSpdxElement"), NULL, "?"));
    json_free(root);
    return 0;
}
C
# shellcheck disable=SC2046
PKG_CONFIG_PATH=$dir/moved/lib/pkgconfig ${CC:-cc} -std=gnu11 -o "$dir/own" "$dir/own.c" $(PKG_CONFIG_PATH=$dir/moved/lib/pkgconfig pkg-config --cflags --libs tutti) \
    2>"$dir/err" || fail "pkg-config: $(tail -5 "$dir/err")"
"$dir/own" "$dir/moved/share/doc/tutti/tutti.spdx.json" >"$dir/listed" || fail "the list of what is linked: $(cat "$dir/listed")"
grep -qx "tutti 7.8.9" "$dir/listed" || fail "the list has no tutti 7.8.9"
needed=$(readelf -d "$dir/moved/bin/tutti" | sed -n 's/.*(NEEDED).*\[\(.*\)\].*/\1/p')
for soname in $needed; do
    grep -q -- "^SPDXRef-tutti -> SPDXRef-$soname$" "$dir/listed" || fail "not in the list as linked: $soname"
done
ldd "$dir/moved/bin/tutti" | awk '$2 == "=>" && $3 ~ /^\// { print $1 }' | while read -r soname; do
    grep -q -- "^$soname " "$dir/listed" || echo "$soname"
done >"$dir/missing"
[ ! -s "$dir/missing" ] || fail "not in the list: $(tr '\n' ' ' <"$dir/missing")"

deb=$(ls "$dir"/out/*.deb 2>/dev/null)
if [ -n "$deb" ]; then
    depends=$(dpkg-deb -f "$deb" Depends)
    dpkg-deb -x "$deb" "$dir/b" || fail "dpkg-deb -x"
    runs "$dir/b/usr"
    cmp -s "$dir/b/usr/bin/tutti" "$dir/moved/bin/tutti" || fail "the tarball and the package have different programs"
    for soname in $needed; do # every library that it is linked with comes with a package that it depends on
        case $soname in ld-linux*) continue ;; esac
        path=$(readlink -f "$(ldd "$dir/moved/bin/tutti" | awk -v s="$soname" '$1 == s { print $3 }')")
        package=$( (dpkg-query -S "$path" || dpkg-query -S "${path#/usr}") 2>/dev/null | head -1 | cut -d: -f1)
        [[ " $depends" == *" $package "* || " $depends," == *" $package,"* ]] || fail "needs $soname of $package, depends on $depends"
    done
    (cd "$dir/b" && dpkg-deb --ctrl-tarfile "$deb" | tar -xOf - ./md5sums | md5sum --quiet -c -) || fail "md5sums"
fi
passed
