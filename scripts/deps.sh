#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what tutti needs: Debian and Ubuntu packages. When all of them are there it says so and touches nothing: no
# network, no sudo.
#
#   scripts/deps.sh [--tests] [--fuzz] [--quiet]
#
#   --tests    what the tests need besides: a second MPI library, a browser that looks at the page of a run, a formatter
#   --fuzz     clang with libFuzzer, which neither needs
#
# Where MPI, oneDNN, libwebp, libsndfile and FFmpeg (but for the tests) or a browser cannot be had, that is said, and is no error.
set -euo pipefail

here=$(dirname "${BASH_SOURCE[0]}")
quiet=0 for_tests=0
recommended=--no-install-recommends
packages=(build-essential cmake ninja-build pkg-config libyaml-dev libonig-dev libxxhash-dev zlib1g-dev libzstd-dev libhwloc-dev libcurl4-openssl-dev libssl-dev libutf8proc-dev libsnappy-dev libbrotli-dev liblz4-dev libarchive-dev libdivsufsort-dev libmicrohttpd-dev libdw-dev libjpeg-dev libpng-dev)
optional=(libdnnl-dev openmpi-bin libopenmpi-dev) # more matrix kernels; ranks as processes
optional+=(libwebp-dev libsndfile1-dev libavformat-dev libavcodec-dev libavutil-dev libswscale-dev) # WebP, sound, video
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
if [ "$for_tests" = 1 ]; then packages+=("${optional[@]}" "${tests[@]}") optional=(); fi

say() { if [ "$quiet" = 0 ]; then echo "deps: $*" >&2; fi; }

# The same things by what they provide, for systems that do not have them from packages of these names.
have_everything() {
    command -v cmake >/dev/null && command -v ninja >/dev/null && command -v cc >/dev/null &&
        command -v pkg-config >/dev/null &&
        pkg-config --exists yaml-0.1 oniguruma libxxhash zlib libzstd hwloc libcurl libcrypto libutf8proc snappy libbrotlidec liblz4 libarchive libdivsufsort libmicrohttpd libdw libjpeg libpng &&
        { [ "$for_tests" = 0 ] || pkg-config --exists cmocka; }
}

if ! command -v dpkg-query >/dev/null; then
    if have_everything; then
        say "compiler, cmake and libraries found (not a Debian system; oneDNN, MPI, WebP, sound and video are optional)"
        exit 0
    fi
    echo "deps: this is not Debian or Ubuntu, and something is missing. Install a C compiler, cmake, ninja," >&2
    echo "      pkg-config, and the development files of libyaml, Oniguruma, xxhash, zlib, zstd, hwloc, libcurl, OpenSSL, utf8proc, snappy, brotli, lz4, libarchive, libdivsufsort, libmicrohttpd, elfutils (libdw), libjpeg, libpng, oneDNN, MPI, libwebp, libsndfile and FFmpeg; for the" >&2
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

missing() { # PACKAGE...
    local package
    for package in "$@"; do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)" = installed ] || echo "$package"
    done
}
mapfile -t needed < <(missing "${packages[@]}")
mapfile -t wanted < <(missing "${optional[@]}")
if [ "$(id -u)" != 0 ]; then as_root=(sudo); fi
if [ ${#needed[@]} -gt 0 ]; then
    if ! command -v apt-get >/dev/null; then
        echo "deps: missing: ${needed[*]}; there is no apt-get here to install them with" >&2
        exit 1
    fi
    if [ ${#as_root[@]} = 1 ] && ! command -v sudo >/dev/null; then
        echo "deps: missing: ${needed[*]}; run as root: apt-get install ${needed[*]} ${wanted[*]}" >&2
        exit 1
    fi
    say "installing ${needed[*]} ${wanted[*]}"
    if install "${needed[@]}" "${wanted[@]}"; then
        wanted=()
    elif ! install "${needed[@]}"; then
        cat "$log" >&2
        echo "deps: could not install ${needed[*]}; is there a network?" >&2
        exit 1
    fi
    say "installed $((${#packages[@]} + ${#optional[@]} - ${#wanted[@]})) packages"
fi

# From here on nothing is needed, and nobody is asked for a password.
if [ ${#as_root[@]} = 1 ]; then as_root=(sudo -n); fi
may_install() { command -v apt-get >/dev/null && { say "installing $*" && install "$@"; }; }
if [ ${#wanted[@]} -gt 0 ] && ! may_install "${wanted[@]}"; then
    say "could not install ${wanted[*]}: tutti does without (no MPI: ranks are threads of one process; no libwebp, libsndfile, FFmpeg: such media are refused by name)"
elif [ ${#needed[@]} = 0 ]; then
    say "all $((${#packages[@]} + ${#optional[@]})) packages are installed"
fi

# A browser is for one test, which is content without. Firefox ESR is the lightest that Debian 12 and 13 both have (113 MB;
# chromium 193 MB).
if [ "$for_tests" = 1 ] && ! bash "$here/browser.sh" >/dev/null && ! may_install firefox-esr; then
    echo "deps: no browser here, and firefox-esr could not be installed: the tests will not see a run's page in one" >&2
fi

# One version of clang-format, because another one lays out otherwise; Debian 12 has it. CONTRIBUTING.md says how to use it.
if [ "$for_tests" = 1 ] && ! command -v clang-format-14 >/dev/null && ! may_install clang-format-14; then
    say "clang-format-14 could not be installed: the tests will not look at the layout of the sources"
fi
