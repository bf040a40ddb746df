#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A bare Debian of another release in a folder, with what README asks for, to build and test tutti there: other compilers,
# other libraries, other MPI launchers. Needs root and debootstrap; the folder is kept and used again.
#
#   scripts/debian.sh RELEASE FOLDER [--mirror URL] [COMMAND...]
#
# COMMAND runs in a shell at the source root inside the folder (the default is: scripts/test.sh --fast); the build lands in
# FOLDER/tutti. The mirror is the one that this machine's apt uses. Example:
#   sudo scripts/debian.sh trixie /var/tmp/trixie 'scripts/build.sh && cd build && ctest -R ^kernel/'
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
usage() { echo "usage: scripts/debian.sh RELEASE FOLDER [--mirror URL] [COMMAND...]" >&2; exit 2; }
[ $# -ge 2 ] || usage
release=$1 folder=$2 mirror=
shift 2
if [ "${1:-}" = --mirror ]; then
    [ $# -ge 2 ] || usage
    mirror=$2
    shift 2
fi
command=${*:-scripts/test.sh --fast}
[ "$(id -u)" = 0 ] || { echo "debian: needs root, for chroot and mounts" >&2; exit 1; }
command -v debootstrap >/dev/null || { echo "debian: no debootstrap here: apt-get install debootstrap" >&2; exit 1; }
if [ -z "$mirror" ]; then
    mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | grep -v security | head -1)
    [ -n "$mirror" ] || { echo "debian: apt names no mirror; give one: --mirror URL" >&2; exit 1; }
fi

if [ ! -e "$folder/.complete" ]; then
    debootstrap --variant=minbase --include=ca-certificates "$release" "$folder" "$mirror"
    touch "$folder/.complete"
fi
mounted=()
cleanup() { for ((i = ${#mounted[@]} - 1; i >= 0; i--)); do umount -l "${mounted[i]}"; done; }
trap cleanup EXIT
attach() { # KIND WHERE OPTION...
    mkdir -p "$folder/$2"
    mount "${@:3}" "$1" "$folder/$2"
    mounted+=("$folder/$2")
}
attach proc proc -t proc
attach sysfs sys -t sysfs
attach /dev dev --bind
attach tmpfs dev/shm -t tmpfs
attach devpts dev/pts -t devpts
cp -L /etc/resolv.conf "$folder/etc/resolv.conf"

# A copy, so that the build and the tests of one release do not meet those of another.
mkdir -p "$folder/tutti"
git -C "$root" ls-files -z --cached --others --exclude-standard | tar -C "$root" --null -T - --ignore-failed-read -cf - |
    tar -C "$folder/tutti" -xf -
chroot "$folder" env -u TMPDIR HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin bash -c "
    command -v git >/dev/null || { apt-get update -q && apt-get install -y -q --no-install-recommends git; } >/dev/null
    cd /tutti && scripts/deps.sh --tests && $command"
