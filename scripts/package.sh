#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes what can be carried to other machines of the same kind: a tarball that runs from any folder, where dpkg is a .deb, and
# the list of what the program is linked with (SPDX). The same commit and the same Debian packages give the same bytes, wherever
# and whenever it is made.
#
#   scripts/package.sh OUT [--check] [CMAKE OPTION...]      such as -DTUTTI_MPI=off, without which MPI is linked where it is found
#
#   --check    makes everything a second time, from a copy of the sources in another folder with other settings, without a cache of
#              compiled files, and compares bit for bit
#
# OUT receives tutti-VERSION-linux-MACHINE.tar.gz, tutti_VERSION_ARCH.deb, tutti-VERSION.spdx.json and SHA256SUMS.
set -euo pipefail
export LC_ALL=C
umask 022
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
usage() { echo "usage: scripts/package.sh OUT [--check] [CMAKE OPTION...]" >&2; exit 2; }
[ $# -ge 1 ] && [ "${1#-}" = "$1" ] || usage
mkdir -p "$1"
out=$(cd "$1" && pwd) check=0
shift
if [ "${1:-}" = --check ]; then check=1; shift; fi

version=$(sed -n 's/^project(tutti VERSION \([0-9.]*\).*/\1/p' "$root/CMakeLists.txt")
if [ -z "${TUTTI_PACKAGE_VERSION:-}" ] && git -C "$root" rev-parse -q --verify HEAD >/dev/null 2>&1; then
    : "${SOURCE_DATE_EPOCH:=$(git -C "$root" log -1 --format=%ct)}"
    if ! git -C "$root" tag --points-at HEAD | grep -qx "v$version"; then # before that version
        version+="~git$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y%m%d).$(git -C "$root" rev-parse --short=8 HEAD)"
    fi
fi
version=${TUTTI_PACKAGE_VERSION:-$version}
export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:?package: no git checkout: say the date of the sources, in seconds}"
export TUTTI_PACKAGE_VERSION=$version
export CCACHE_DISABLE=1 # its base folder rewrites paths before the compiler can map them away: other bits
machine=$(uname -m)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# ---- build and install ----
# Paths of this machine stay out of the program: what the compiler writes down of them is mapped away. -g is not asked for.
configured() {
    cmake -S "$root" -B "$work/build" -DCMAKE_BUILD_TYPE=Package -DCMAKE_C_FLAGS_PACKAGE=-O3 -DCMAKE_INSTALL_PREFIX=/usr \
        -DCMAKE_INSTALL_LIBDIR=lib -DCMAKE_C_FLAGS="-ffile-prefix-map=$work/build=. -ffile-prefix-map=$root=." \
        -DCMAKE_DISABLE_FIND_PACKAGE_cmocka=ON "$@"
}
generator=()
if command -v ninja >/dev/null; then generator=(-G Ninja); fi
echo "package: tutti $version" >&2
{ configured "${generator[@]}" "$@" && cmake --build "$work/build" --parallel "${TUTTI_JOBS:-$(nproc)}" --target tutti manual &&
    DESTDIR=$work/stage cmake --install "$work/build" --strip; } >"$work/log" 2>&1 || { tail -30 "$work/log" >&2; echo "package: the build failed" >&2; exit 1; }
usr=$work/stage/usr
doc=$usr/share/doc/tutti
strip --strip-debug --enable-deterministic-archives "$usr/lib/libtutti_core.a"
find "$usr/share/man" -type f -exec gzip -9n {} +
"$root/scripts/sbom.sh" "$usr/bin/tutti" tutti "$version" >"$doc/tutti.spdx.json"
cp "$doc/tutti.spdx.json" "$work/tutti-$version.spdx.json"
chmod -R u=rwX,go=rX "$work/stage"
find "$usr" -name '*.sh' -path '*/examples/*' -exec chmod 755 {} +
dated() { find "$1" -depth -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +; }

# ---- the tarball ----
name=tutti-$version-linux-$machine
cp -a "$usr" "$work/$name"
dated "$work/$name"
tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --format=ustar -cf - "$name" | gzip -9n >"$work/$name.tar.gz"

# ---- the package ----
# What libraries are called and how new they must be is dpkg-shlibdeps' business. It wants to see a source package's folder.
depends() {
    mkdir -p "$work/source/debian"
    printf 'Source: tutti\n\nPackage: tutti\nArchitecture: any\n' >"$work/source/debian/control"
    (cd "$work/source" && dpkg-shlibdeps -O -e"$usr/bin/tutti" 2>"$work/log") | sed -n 's/^shlibs:Depends=//p' | sed 's/, */\n/g' | sort | paste -sd, | sed 's/,/, /g'
}
debian() {
    local tree=$work/deb arch needs launcher=''
    arch=$(dpkg --print-architecture)
    needs=$(depends)
    [ -n "$needs" ] || { cat "$work/log" >&2; echo "package: dpkg-shlibdeps names no libraries" >&2; exit 1; }
    case $needs in *libopenmpi*) launcher=openmpi-bin ;; *libmpich*) launcher=mpich ;; esac
    mkdir -p "$tree/DEBIAN"
    cp -a "$usr" "$tree/usr"
    local doc=$tree/usr/share/doc/tutti
    { echo "tutti ($version) unstable; urgency=medium"; echo; echo "  * As the sources of this version: see CHANGELOG.md beside this file."; echo
      echo " -- The tutti maintainers <tutti@localhost>  $(date -u -R -d "@$SOURCE_DATE_EPOCH")"; } | gzip -9n >"$doc/changelog.gz"
    { echo "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/"; echo "Upstream-Name: tutti"; echo
      echo "Files: *"; echo "Copyright: The tutti maintainers"; echo "License: Apache-2.0"; echo
      echo "License: Apache-2.0"; echo " On Debian systems the text of this licence is in /usr/share/common-licenses/Apache-2.0."; } >"$doc/copyright"
    rm "$doc/LICENSE"
    (cd "$tree" && find usr -type f | sort | xargs md5sum) >"$tree/DEBIAN/md5sums"
    { echo "Package: tutti"; echo "Version: $version"; echo "Architecture: $arch"; echo "Maintainer: The tutti maintainers <tutti@localhost>"
      echo "Installed-Size: $(find "$tree/usr" -type f -printf '%s\n' | awk '{ n += int(($1 + 1023) / 1024) } END { print n }')"
      echo "Depends: $needs"
      [ -z "$launcher" ] || echo "Recommends: $launcher"
      echo "Suggests: libyaml-dev, libonig-dev, libxxhash-dev, zlib1g-dev, libzstd-dev, libhwloc-dev, libcurl4-openssl-dev, libssl-dev, libutf8proc-dev, libsnappy-dev, libbrotli-dev, liblz4-dev, libarchive-dev, libdivsufsort-dev, libmicrohttpd-dev, libdw-dev, libjpeg-dev, libpng-dev, libwebp-dev, libsndfile1-dev, libavformat-dev, libavcodec-dev, libavutil-dev, libswscale-dev, pkg-config"
      echo "Section: science"; echo "Priority: optional"
      echo "Description: distributed training of large language models"
      echo " One program that trains, checks, plans and runs language models, over threads"; echo " of a machine or over MPI."
      echo " ."; echo " The library and its headers, for programs of one's own, are part of it; what they"
      echo " need to be linked is suggested."; } >"$tree/DEBIAN/control"
    chmod -R u=rwX,go=rX "$tree"
    find "$tree" -name '*.sh' -path '*/examples/*' -exec chmod 755 {} +
    dated "$tree"
    dpkg-deb --root-owner-group -Zxz --threads-max=1 --build "$tree" "$work/tutti_${version}_$arch.deb" >/dev/null
}
if command -v dpkg-deb >/dev/null && command -v dpkg-shlibdeps >/dev/null; then debian
else echo "package: no dpkg-deb and dpkg-shlibdeps here, so no .deb" >&2; fi

cd "$work"
files=(tutti-"$version"*.tar.gz tutti-"$version".spdx.json)
for deb in tutti_*.deb; do [ ! -e "$deb" ] || files+=("$deb"); done
sha256sum "${files[@]}" >SHA256SUMS
cp "${files[@]}" SHA256SUMS "$out"

# ---- once more, elsewhere ----
if [ "$check" = 1 ]; then
    mkdir -p "$work/somewhere-else" "$work/again"
    (cd "$root" && { git ls-files -z --cached --others --exclude-standard 2>/dev/null || find . -type f -not -path './build*' -print0; }) |
        tar -C "$root" --null -T - --ignore-failed-read -cf - | tar -C "$work/somewhere-else" -xf -
    (umask 027; cd /; env TZ=Pacific/Auckland "$work/somewhere-else/scripts/package.sh" "$work/again" "$@" >/dev/null)
    same=1
    for f in "${files[@]}"; do cmp "$out/$f" "$work/again/$f" >&2 || same=0; done
    [ $same = 1 ] || { echo "package: the second build differs from the first" >&2; exit 1; }
    echo "package: built twice, the same bits" >&2
fi
for f in "${files[@]}"; do echo "$out/$f"; done
