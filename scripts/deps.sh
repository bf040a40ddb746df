#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what building and testing tutti needs: Debian and Ubuntu packages. When all of them are there it says so
# and touches nothing: no network, no sudo.
#
#   scripts/deps.sh [--quiet] [--fuzz]     --fuzz: also clang with libFuzzer, which the tests do not need
set -euo pipefail

quiet=0
recommended=--no-install-recommends
packages=(build-essential cmake ninja-build pkg-config libdnnl-dev libyaml-dev libjansson-dev libonig-dev
    libcmocka-dev libxxhash-dev
    openmpi-bin libopenmpi-dev # ranks as processes; optional
    mpich libmpich-dev)        # only for the tests: the other MPI library
for arg in "$@"; do
    case $arg in
    --quiet) quiet=1 ;;
    --fuzz)
        packages+=(clang)
        recommended=--install-recommends # clang's run-time libraries, libFuzzer among them, are only recommended
        ;;
    *)
        echo "usage: scripts/deps.sh [--quiet] [--fuzz]" >&2
        exit 2
        ;;
    esac
done

say() { if [ "$quiet" = 0 ]; then echo "deps: $*" >&2; fi; }

# The same things by what they provide, for systems that do not have them from packages of these names.
have_everything() {
    command -v cmake >/dev/null && command -v ninja >/dev/null && command -v cc >/dev/null &&
        command -v pkg-config >/dev/null &&
        pkg-config --exists yaml-0.1 jansson oniguruma cmocka libxxhash
}

if ! command -v dpkg-query >/dev/null; then
    if have_everything; then
        say "compiler, cmake and libraries found (not a Debian system; oneDNN and MPI are optional)"
        exit 0
    fi
    echo "deps: this is not Debian or Ubuntu, and something is missing. Install a C compiler, cmake, ninja," >&2
    echo "      pkg-config, and the development files of libyaml, jansson, Oniguruma, cmocka, xxhash, oneDNN and MPI." >&2
    exit 1
fi

missing=()
for package in "${packages[@]}"; do
    status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$status" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} = 0 ]; then
    say "all ${#packages[@]} packages are installed"
    exit 0
fi

if ! command -v apt-get >/dev/null; then
    echo "deps: missing: ${missing[*]}; there is no apt-get here to install them with" >&2
    exit 1
fi
as_root=()
if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "deps: missing: ${missing[*]}; run as root: apt-get install ${missing[*]}" >&2
        exit 1
    fi
    as_root=(sudo)
fi
say "installing ${missing[*]}"
install() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q "$recommended" "${missing[@]}"
}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# The lists of packages may be missing or old: refresh them only when the first try fails.
if ! install >"$log" 2>&1; then
    say "refreshing the lists of packages"
    if ! { "${as_root[@]}" apt-get update -q && install; } >"$log" 2>&1; then
        cat "$log" >&2
        echo "deps: could not install ${missing[*]}; is there a network?" >&2
        exit 1
    fi
fi
say "installed ${#missing[@]} packages"
