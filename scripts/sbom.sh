#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What a program is linked with, as an SPDX 2.3 document on stdout: the loader's answer, object by object, each with the
# package that it comes from, that package's version, and its licence as far as the package states it.
#
#   scripts/sbom.sh PROGRAM NAME VERSION
#
# SOURCE_DATE_EPOCH is the document's date. The same program and libraries give the same bytes.
set -euo pipefail
export LC_ALL=C
[ $# = 3 ] || { echo "usage: scripts/sbom.sh PROGRAM NAME VERSION" >&2; exit 2; }
program=$1 name=$2 version=$3
created=$(date -u -d "@${SOURCE_DATE_EPOCH:-0}" +%Y-%m-%dT%H:%M:%SZ)
sum=$(sha256sum "$program" | cut -d' ' -f1)

declare -A file # by soname
while read -r soname path; do file[$soname]=$path; done < <(
    ldd "$program" | awk '$2 == "=>" && $3 ~ /^\// { print $1, $3 } $1 ~ /^\// { n = split($1, part, "/"); print part[n], $1 }' | sort)
[ ${#file[@]} -gt 0 ] || { echo "sbom: $program: no dynamic program" >&2; exit 1; }

# Debian's short names of licences, where SPDX has one that means the same.
spdx_licence() {
    case $1 in
    Apache-2.0) echo Apache-2.0 ;;
    Expat | MIT) echo MIT ;;
    BSD-2-[Cc]lause) echo BSD-2-Clause ;;
    BSD-3-[Cc]lause) echo BSD-3-Clause ;;
    GPL-2) echo GPL-2.0-only ;;
    GPL-2+) echo GPL-2.0-or-later ;;
    GPL-3) echo GPL-3.0-only ;;
    GPL-3+) echo GPL-3.0-or-later ;;
    LGPL-2.1) echo LGPL-2.1-only ;;
    LGPL-2.1+) echo LGPL-2.1-or-later ;;
    LGPL-3+) echo LGPL-3.0-or-later ;;
    [Zz]lib) echo Zlib ;;
    *) echo NOASSERTION ;;
    esac
}
# The first paragraph of a package's copyright file that is about all its files; then every licence named anywhere in it.
licences() {
    local text=/usr/share/doc/$1/copyright
    [ -r "$text" ] || return 0
    awk 'tolower($1) == "files:" { all = $2 == "*" } all && /^License:/ { print $2; exit }' "$text"
}
every_licence() {
    local text=/usr/share/doc/$1/copyright
    [ ! -r "$text" ] || sed -n 's/^License: *//p' "$text" | tr -d '\r"\\' | awk 'NF' | sort -u | paste -sd, | sed 's/,/, /g'
}
needed() { readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\].*/\1/p' | sort; }
id() { tr -c 'A-Za-z0-9.\n-' - <<<"SPDXRef-$1"; }

cat <<JSON
{
 "spdxVersion": "SPDX-2.3",
 "dataLicense": "CC0-1.0",
 "SPDXID": "SPDXRef-DOCUMENT",
 "name": "$name-$version",
 "documentNamespace": "https://spdx.org/spdxdocs/$name-$version-$sum",
 "creationInfo": {"created": "$created", "creators": ["Tool: $name-scripts/sbom.sh"]},
 "documentDescribes": ["$(id "$name")"],
 "packages": [
  {"SPDXID": "$(id "$name")", "name": "$name", "versionInfo": "$version", "downloadLocation": "NOASSERTION", "filesAnalyzed": false,
   "licenseConcluded": "Apache-2.0", "licenseDeclared": "Apache-2.0", "copyrightText": "NOASSERTION", "primaryPackagePurpose": "APPLICATION",
   "checksums": [{"algorithm": "SHA256", "checksumValue": "$sum"}]}
JSON
mapfile -t sonames < <(printf '%s\n' "${!file[@]}" | sort)
for soname in "${sonames[@]}"; do
    path=${file[$soname]} package='' its_version=NOASSERTION source=''
    if command -v dpkg-query >/dev/null; then # a file may be known by its name before /lib became a link
        real=$(readlink -f "$path")
        package=$( (dpkg-query -S "$real" || dpkg-query -S "${real#/usr}" || dpkg-query -S "$path") 2>/dev/null | head -1 | sed 's/: .*//')
    fi
    if [ -n "$package" ]; then
        its_version=$(dpkg-query -W -f '${Version}' "$package")
        source=$(dpkg-query -W -f '${source:Package} ${source:Version}' "$package")
    fi
    package=${package%%:*}
    declared=$(licences "$package")
    every=$(every_licence "$package")
    comment="file ${path##*/}${package:+, package $package}${source:+, source $source}"
    printf '  ,{"SPDXID": "%s", "name": "%s", "versionInfo": "%s", "downloadLocation": "NOASSERTION", "filesAnalyzed": false,\n' \
        "$(id "$soname")" "$soname" "$its_version"
    printf '   "licenseConcluded": "NOASSERTION", "licenseDeclared": "%s", "copyrightText": "NOASSERTION", "primaryPackagePurpose": "LIBRARY",\n' \
        "$(spdx_licence "${declared:-none}")"
    printf '   "licenseComments": "%s", "comment": "%s",\n' "${every:+its package names: $every}" "$comment"
    printf '   "checksums": [{"algorithm": "SHA256", "checksumValue": "%s"}]}\n' "$(sha256sum "$path" | cut -d' ' -f1)"
done
echo ' ],'
echo ' "relationships": ['
printf '  {"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": "%s"}\n' "$(id "$name")"
link() { # NAME OBJECT: what it asks the loader for
    local soname
    for soname in $(needed "$2"); do
        [ -z "${file[$soname]:-}" ] ||
            printf '  ,{"spdxElementId": "%s", "relationshipType": "DYNAMIC_LINK", "relatedSpdxElement": "%s"}\n' "$(id "$1")" "$(id "$soname")"
    done
}
link "$name" "$program"
for soname in "${sonames[@]}"; do link "$soname" "${file[$soname]}"; done
echo ' ]'
echo '}'
