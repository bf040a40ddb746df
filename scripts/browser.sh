#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Looks at a page with the browser of this machine: writes what it shows as a picture, 1200 x 2400.
#
#   scripts/browser.sh PAGE.html PICTURE.png    or http://... as the page
#   scripts/browser.sh                          only says which browser that is
#
# Exit status: 77 where there is no browser that can (those of a snap see neither /tmp nor a home in another place).
set -euo pipefail

browser=
for name in chromium chromium-browser google-chrome chromium-headless-shell firefox-esr firefox; do
    path=$(command -v "$name" || true)
    if [ -n "$path" ] && ! head -c 4000 "$(readlink -f "$path")" | grep -qa '/snap'; then
        browser=$name
        break
    fi
done
if [ -z "$browser" ]; then
    echo "browser: none of chromium, google-chrome and firefox is here" >&2
    exit 77
fi
if [ $# = 0 ]; then
    echo "$browser"
    exit 0
fi
[ $# = 2 ] || { echo "usage: scripts/browser.sh [PAGE.html PICTURE.png]" >&2; exit 2; }

case $1 in http://*) page=$1 ;; *) page=file://$(realpath "$1") ;; esac
picture=$(realpath "$2")
profile=$(mktemp -d)
trap 'rm -rf "$profile"' EXIT
rm -f "$picture"
case $browser in
firefox*) look=(--headless --no-remote --profile "$profile" --window-size "1200,2400" --screenshot "$picture" "$page") ;;
*) look=(--headless --no-sandbox --disable-gpu --user-data-dir="$profile" --window-size="1200,2400" --screenshot="$picture" "$page") ;;
esac
if ! HOME=$profile timeout 200 "$browser" "${look[@]}" >"$profile/log" 2>&1 || [ ! -s "$picture" ]; then
    tail -5 "$profile/log" >&2
    echo "browser: $browser made no picture of $1" >&2
    exit 1
fi
