#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what tutti needs: Debian and Ubuntu packages. When all of them are there it says so and touches nothing: no
# network, no sudo.
#
#   scripts/deps.sh [--tests] [--fuzz] [--quiet]
#
#   --tests    what the tests need besides: a second MPI library, and a browser that looks at the page of a run. Where no
#              browser can be had, that is said, and is no error
#   --fuzz     clang with libFuzzer, which neither needs
set -euo pipefail

here=$(dirname "${BASH_SOURCE[0]}")
quiet=0 for_tests=0
recommended=--no-install-recommends
packages=(build-essential cmake ninja-build pkg-config libdnnl-dev libyaml-dev libjansson-dev libonig-dev libxxhash-dev
    openmpi-bin libopenmpi-dev) # ranks as processes; optional
tests=(libcmocka-dev)
tests+=(mpich libmpich-dev) # the other MPI library
for arg in "$@"; do
    case $arg in
    --quiet) quiet=1 ;;
    --tests) for_tests=1 ;;
    --fuzz)
        packages+=(clang)
        recommended=--install-recommends # clang's run-time libraries, libFuzzer among them, are only recommended
        ;;
    *)
        echo "usage: scripts/deps.sh [--tests] [--fuzz] [--quiet]" >&2
        exit 2
        ;;
    esac
done
if [ "$for_tests" = 1 ]; then packages+=("${tests[@]}"); fi

say() { if [ "$quiet" = 0 ]; then echo "deps: $*" >&2; fi; }

# The same things by what they provide, for systems that do not have them from packages of these names.
have_everything() {
    command -v cmake >/dev/null && command -v ninja >/dev/null && command -v cc >/dev/null &&
        command -v pkg-config >/dev/null &&
        pkg-config --exists yaml-0.1 jansson oniguruma libxxhash &&
        { [ "$for_tests" = 0 ] || pkg-config --exists cmocka; }
}

if ! command -v dpkg-query >/dev/null; then
    if have_everything; then
        say "compiler, cmake and libraries found (not a Debian system; oneDNN and MPI are optional)"
        exit 0
    fi
    echo "deps: this is not Debian or Ubuntu, and something is missing. Install a C compiler, cmake, ninja," >&2
    echo "      pkg-config, and the development files of libyaml, jansson, Oniguruma, xxhash, oneDNN and MPI; for the" >&2
    echo "      tests also those of cmocka." >&2
    exit 1
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
as_root=()

# install PACKAGE...: the lists of packages may be missing or old, and are refreshed only when the first try fails.
install() {
    local command=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q "$recommended" "$@")
    "${command[@]}" >"$log" 2>&1 && return
    say "refreshing the lists of packages"
    { "${as_root[@]}" apt-get update -q && "${command[@]}"; } >"$log" 2>&1
}

missing=()
for package in "${packages[@]}"; do
    status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$status" = installed ] || missing+=("$package")
done
if [ "$(id -u)" != 0 ]; then as_root=(sudo); fi
if [ ${#missing[@]} = 0 ]; then
    say "all ${#packages[@]} packages are installed"
else
    if ! command -v apt-get >/dev/null; then
        echo "deps: missing: ${missing[*]}; there is no apt-get here to install them with" >&2
        exit 1
    fi
    if [ ${#as_root[@]} = 1 ] && ! command -v sudo >/dev/null; then
        echo "deps: missing: ${missing[*]}; run as root: apt-get install ${missing[*]}" >&2
        exit 1
    fi
    say "installing ${missing[*]}"
    if ! install "${missing[@]}"; then
        cat "$log" >&2
        echo "deps: could not install ${missing[*]}; is there a network?" >&2
        exit 1
    fi
    say "installed ${#missing[@]} packages"
fi

# A browser is for one test, which is content without: nobody is asked for a password because of it. Firefox ESR is the
# lightest that Debian 12 and 13 both have (113 MB; chromium 193 MB).
if [ "$for_tests" = 1 ] && ! bash "$here/browser.sh" >/dev/null; then
    if [ ${#as_root[@]} = 1 ]; then as_root=(sudo -n); fi
    say "installing a browser: firefox-esr"
    if ! command -v apt-get >/dev/null || ! install firefox-esr; then
        echo "deps: no browser here, and firefox-esr could not be installed: the tests will not see a run's page in one" >&2
    fi
fi
