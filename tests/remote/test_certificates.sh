#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# https:// with a certificate that nobody vouches for, with one of another host, and with one that SSL_CERT_FILE vouches for: only the
# last is spoken to. The server is the openssl program's; without it nothing is tried.
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit
command -v openssl >/dev/null || { echo "not tried: there is no openssl program"; passed; exit 0; }
unset http_proxy https_proxy HTTP_PROXY HTTPS_PROXY all_proxy ALL_PROXY AWS_CA_BUNDLE SSL_CERT_FILE CURL_CA_BUNDLE
cd "$dir" || exit 1
echo "some text" >t.txt
server=
stop() { [ -z "$server" ] || { kill "$server" && wait "$server"; } 2>/dev/null; server=; }
at_end() { stop; }
serve() { # NAME: a server for that name; sets port
    stop
    openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj "/CN=$1" -addext "subjectAltName=DNS:$1" -keyout "$1.key" -out "$1.pem" 2>log ||
        { echo "not tried: $(tail -1 log)"; passed; exit 0; }
    for _ in 1 2 3 4 5; do
        port=$((20000 + RANDOM % 20000))
        rm -f served
        openssl s_server -accept "localhost:$port" -cert "$1.pem" -key "$1.key" -WWW >served 2>&1 </dev/null &
        server=$!
        until_so $server grep -qs ACCEPT served && return
        stop
    done
    fail "no server could be started: $(tail -2 served)"
}
look() { "$tutti" data tokenize --tokenizer byte --out t "https://localhost:$port/t.txt" >said 2>&1; }
says() { # WHAT WORDS
    look && fail "$1: accepted"
    grep -qiE "$2" said || fail "$1: does not say $2: $(cat said)"
}
no_certificate() { says "$1" 'certificate|SSL'; grep -q 'FILE:t.txt' served && fail "$1: something was asked for"; }

serve localhost
no_certificate "a certificate that nobody vouches for"
export SSL_CERT_FILE=$dir/localhost.pem
look && fail "a server that does not say how large its files are"
grep -qi 'certificate' said && fail "a certificate that SSL_CERT_FILE vouches for is refused: $(cat said)"
grep -q 'FILE:t.txt' served || fail "nothing was asked for with a good certificate: $(cat said served)"
serve other.example
SSL_CERT_FILE=$dir/other.example.pem
no_certificate "a certificate of another host"
passed
