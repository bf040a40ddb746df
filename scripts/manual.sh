#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Manual pages, shell completion and the list of config keys, all made from what the program says of itself (--help), so that
# none of them can say something else.
#
#   scripts/manual.sh TUTTI OUT      writes OUT/man1/*.1, OUT/bash/tutti, OUT/zsh/_tutti, OUT/config.md
set -euo pipefail
if [ $# != 2 ]; then
    echo "usage: scripts/manual.sh TUTTI OUT" >&2
    exit 2
fi
tutti=$1 out=$2
mkdir -p "$out/man1" "$out/bash" "$out/zsh"
version=$("$tutti" --version | cut -d' ' -f2 | tr -d ,)
commands=$("$tutti" --help | awk '/^  tutti [a-z]/ && $2 != "COMMAND" {print $2}')

# about COMMAND: the table's last column.
about() { "$tutti" --help | awk -v c="$1" '$1 == "tutti" && $2 == c' | sed 's/.* \{2,\}//; s/.*\] //'; }
# options TEXT: the words that begin with two dashes in a help text, and -n.
options() { grep -oE -- '(^|[ [|(])--[a-z][a-z-]*|(^|[ [])-n( |\])' <<<"$1" | grep -oE -- '--?[a-z-]+' | sort -u; }
# verbatim: text as troff shows it letter by letter.
verbatim() { sed 's/\\/\\e/g; s/-/\\-/g; s/^\([.'"'"']\)/\\\&\1/'; }

# page FILE NAME ABOUT HELP
page() {
    {
        printf '.TH %s 1 "" "tutti %s" "tutti"\n.SH NAME\n%s \\- %s\n.SH DESCRIPTION\n.nf\n' "$(tr a-z A-Z <<<"$2")" "$version" \
            "$(verbatim <<<"$2")" "$(verbatim <<<"$3")"
        verbatim <<<"$4"
        printf '.fi\n.SH "EXIT STATUS"\n0: done. 1: it failed while running. 2: the request was wrong.\n.SH "SEE ALSO"\n%s\n' "$5"
    } >"$1"
}

also=$(for c in $commands; do printf '.BR tutti\\-%s (1),\n' "$c"; done | sed '$s/,$//')
page "$out/man1/tutti.1" tutti "trains large language models" "$("$tutti" --help)" "$also"
for c in $commands; do
    help=$("$tutti" "$c" --help)
    if [ "$c" = bench ] || [ "$c" = checkpoint ]; then # each of their commands has a text of its own
        for what in $(awk '/^  [a-z]+  / {print $1}' <<<"$help"); do help+=$'\n\n'$("$tutti" "$c" "$what" --help); done
    fi
    page "$out/man1/tutti-$c.1" "tutti-$c" "$(about "$c")" "$help" ".BR tutti (1)"
    printf '%s %s\n' "$c" "$(options "$help" | tr '\n' ' ')"
done >"$out/options"

# Lines "  key   type; default X" and, indented, what the key is.
keys=$("$tutti" train --help | sed -n '/^Keys:/,$p' | grep -oE '^  [a-z_.]+(\[\])?[a-z_.]* ' | tr -d ' ' | grep -v '\[\]')

{
    echo "# Completion of tutti for bash, made by scripts/manual.sh from --help."
    echo "_tutti() {"
    echo '    local word=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} options= keys='
    echo '    compopt +o nospace 2>/dev/null'
    echo "    if [ \"\$COMP_CWORD\" = 1 ]; then"
    echo "        COMPREPLY=(\$(compgen -W \"$(tr '\n' ' ' <<<"$commands")--help --version\" -- \"\$word\"))"
    echo "        return"
    echo "    fi"
    echo '    case $command in'
    while read -r c o; do echo "    $c) options=\"$o\" ;;"; done <"$out/options"
    echo "    esac"
    echo '    case $command in'
    echo "    train|plan|verify|explain|bench) keys=\"$(sed 's/$/=/' <<<"$keys" | tr '\n' ' ')\" ;;"
    echo "    esac"
    echo '    case $word in'
    echo '    -*) COMPREPLY=($(compgen -W "$options" -- "$word")) ;;'
    echo '    *.*) COMPREPLY=($(compgen -W "$keys" -- "$word") $(compgen -f -- "$word"))'
    echo '        compopt -o nospace 2>/dev/null ;;'
    echo '    *) COMPREPLY=($(compgen -W "$keys" -- "$word" | sed "s/\\..*/./" | sort -u) $(compgen -f -- "$word"))'
    echo '        compopt -o nospace -o filenames 2>/dev/null ;;'
    echo "    esac"
    echo "}"
    echo "complete -F _tutti tutti"
} >"$out/bash/tutti"

{
    echo "#compdef tutti"
    echo "# Completion of tutti for zsh, made by scripts/manual.sh from --help."
    echo "local -a commands keys"
    echo "commands=("
    for c in $commands; do echo "    '$c:$(about "$c" | sed "s/'/'\\\\''/g; s/:/\\\\:/g")'"; done
    echo ")"
    echo "keys=($(tr '\n' ' ' <<<"$keys"))"
    echo 'if (( CURRENT == 2 )); then _describe command commands; return; fi'
    echo 'case $words[2] in'
    while read -r c o; do echo "    $c) [[ \$PREFIX == -* ]] && compadd -- $o ;;"; done <"$out/options"
    echo "esac"
    echo 'case $words[2] in'
    echo "    train|plan|verify|explain|bench) [[ \$PREFIX != -* ]] && compadd -S = -- \$keys ;;"
    echo "esac"
    echo "_files"
} >"$out/zsh/_tutti"
rm "$out/options"

{
    echo "# Config keys"
    echo
    echo "Every key of a config, as \`tutti train --help\` lists them; made by \`scripts/manual.sh\`. On the command line: \`key=value\`."
    "$tutti" train --help | sed -n '/^Keys:/,$p' | tail -n +2 | awk '
        /^  [a-z]/ {
            key = $1; rest = $0; sub(/^  [^ ]+ +/, "", rest)
            section = key; sub(/\..*/, "", section)
            if (section != last) { printf "\n## %s\n\n| key | value | what |\n|---|---|---|\n", section; last = section }
            type = rest; sub(/; [^;]*$/, "", type); def = rest; sub(/.*; /, "", def)
            gsub(/\|/, "\\|", type)
            next
        }
        { what = $0; sub(/^ +/, "", what); gsub(/\|/, "\\|", what); printf "| `%s` | %s; %s | %s |\n", key, type, def, what }'
} >"$out/config.md"
