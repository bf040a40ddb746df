#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tutti serve, generate --prompts and eval as a person uses them: a small run is served, asked, looked at by a browser where there is
# one, and ended by Ctrl-C; what it must not do is refused before anything is opened.
#   test_serve.sh TUTTI ROOT
# shellcheck source=tests/script.sh
. "${2:?the source root, as CMakeLists.txt gives it}/tests/script.sh" || exit
cd "$dir" || exit 1
server=
at_end() { [ -z "$server" ] || kill -9 "$server" 2>/dev/null; }

for i in $(seq 200); do echo "once upon a time there was a number $i and it was so"; done >text.txt
"$tutti" train "$root/examples/quickstart.yaml" model.layers=1 model.hidden=32 model.heads=2 model.kv_heads=1 model.ffn=48 model.seq_len=64 \
    batch.global=4 batch.micro=4 data.train=text.txt 'data.valid=[]' run.steps=2 run.threads=1 run.tensorboard=false run.dir=run >out 2>&1 ||
    fail "train: $(tail -3 out)"

refused() { # PATTERN COMMAND...
    local pattern=$1
    shift
    "$tutti" "$@" >out 2>&1
    [ $? = 2 ] && grep -q -- "$pattern" out || fail "$*: $(cat out)"
}
refused 'key' serve run --port 0 --address 0.0.0.0
echo short >key
refused '16 characters' serve run --port 0 --key-file key
echo a-key-that-is-long-enough >key
chmod 644 key
refused 'chmod 600' serve run --port 0 --key-file key
chmod 600 key
refused 'no address of numbers' serve run --port 0 --address localhost --key-file key
refused 'chat' serve run --port 0 --chat-template nothing-like-it
refused '--tasks FILE' eval run
refused 'go with --prompts' generate run --prompt a --stop b
refused 'which one' generate run --prompt a --prompts b

printf '%s\n' '{"prompt":"once upon"}' '{"prompt":"a number"}' >prompts.jsonl
"$tutti" generate run --prompts prompts.jsonl --max-tokens 5 --seed 3 >one || fail "generate --prompts"
"$tutti" generate run --prompts prompts.jsonl --max-tokens 5 --seed 3 --batch 1 >two || fail "generate --batch 1"
cmp -s one two && [ "$(wc -l <one)" = 2 ] && grep -q '^{"index":1,"prompt":"a number","text":".*","stopped":"length","prompt_tokens":8,"new_tokens":5}$' one ||
    fail "generate --prompts: $(cat one two)"
"$tutti" generate run --prompts prompts.jsonl --max-tokens 5 --beams 3 --dtype f32 >one || fail "generate --beams: $(cat one)"
grep -q '^{"index":1,"prompt":"a number","text":".*","stopped":"length","prompt_tokens":8,"new_tokens":5}$' one || fail "generate --beams: $(cat one)"
"$tutti" generate run --prompts prompts.jsonl --max-tokens 5 --beams 3 --dtype f32 --pp 1 -n 2 --threads 1 >two && [ "$(wc -l <two)" = 2 ] || fail "generate --beams -n 2: $(cat two)"
"$tutti" generate run --prompt 'a number' --max-tokens 5 --beams 3 --dtype f32 --json >two || fail "generate --beams --json: $(cat two)"
text=$(sed -n 's/.*"index":1.*"text":"\(.*\)","stopped.*/\1/p' one)
grep -qF "\"text\":\"$text\",\"stopped\":\"length\"" two && grep -q '"logprob":-[0-9.e-]*,"score":-[0-9.e-]*}$' two || fail "another text alone: $(cat one two)"
for draft in run ngram; do
    for ranks in '-n 1' '-n 2'; do # shellcheck disable=SC2086
        "$tutti" generate run --prompt 'once upon once upon' --max-tokens 12 --draft $draft --draft-tokens 3 --dtype f32 --temperature 0 --json $ranks >two ||
            fail "generate --draft $draft $ranks: $(cat two)"
        grep -q '"new_tokens":12,.*"guessed_tokens":[0-9]*,"taken_tokens":[0-9]*}$' two || fail "generate --draft $draft: $(cat two)"
    done
done
guessed() { "$tutti" generate run --prompt 'once upon once upon' --max-tokens 16 --draft run --dtype f32 --temperature 0 --json "$@" | grep -o '"guessed_tokens":[0-9]*'; }
said=$("$tutti" generate --help | sed -n 's/.*guesses of a step (default \([0-9]*\)).*/\1/p')
[ -n "$(guessed)" ] && [ "$(guessed)" = "$(guessed --draft-tokens "$said")" ] && [ "$(guessed)" != "$(guessed --draft-tokens $((said + 1)))" ] ||
    fail "generate --draft: the default is not the $said guesses that --help says: $(guessed), $(guessed --draft-tokens "$said")"
refused 'draws nothing' generate run --prompt a --beams 2 --temperature 1
refused 'does not go with' generate run --prompt a --beams 2 --draft ngram
refused 'does not go with' generate run --prompts prompts.jsonl --beams 2 --batch 4
refused 'goes with --beams' generate run --prompt a --length-penalty 2
refused 'goes with --draft' generate run --prompt a --draft-tokens 2
refused 'goes with one text' generate run --prompts prompts.jsonl --draft ngram
refused 'draft nowhere' generate run --prompt a --draft nowhere
refused '--tp, which shares out keys' generate run --prompt a --cp 2
refused '--tp cuts experts' serve run --ep 2
refused 'what --tp x --pp leaves' eval run --tasks none --dp 2
refused 'say -n 2' generate run --prompt a -n 3 --tp 2
refused 'too few for 4 stages' generate run --prompt a --pp 4
for ranks in '-n 2' '--pp 2' '-n 4 --pp 2'; do # shellcheck disable=SC2086
    "$tutti" generate run --prompts prompts.jsonl --max-tokens 5 --seed 3 --dtype f32 --threads 1 $ranks >two || fail "generate $ranks"
    "$tutti" generate run --prompts prompts.jsonl --max-tokens 5 --seed 3 --dtype f32 --threads 1 >one && cmp -s one two || fail "generate $ranks: $(cat one two)"
done
printf '%s\n' '{"text":"once upon a time"}' '{"prompt":"a","choices":["b","c"],"answer":0}' >tasks.jsonl
"$tutti" eval run --tasks tasks.jsonl >out 2>&1 && grep -q '^perplexity  *1  perplexity ' out || fail "eval: $(cat out)"
"$tutti" eval run --tasks tasks.jsonl --threads 1 >one && "$tutti" eval run --tasks tasks.jsonl --threads 1 -n 2 >two && cmp -s one two || fail "eval -n 2: $(cat one two)"

"$tutti" serve run --port 0 --name mine --sequences 2 --threads 1 -n 2 >log 2>&1 &
server=$!
until_so $server grep -qE '127\.0\.0\.1:[0-9]+/v1' log
port=$(grep -oE '127\.0\.0\.1:[0-9]+/v1' log | grep -oE ':[0-9]+' | tr -d :)
[ -n "$port" ] || { fail "it does not come up: $(cat log)" && exit; }
ask() { # PATH [BODY]
    exec 5<>"/dev/tcp/127.0.0.1/$port" || { fail "nobody is there" && return; }
    if [ $# = 2 ]; then
        printf 'POST %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s' "$1" ${#2} "$2" >&5
    else
        printf 'GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' "$1" >&5
    fi
    cat <&5
    exec 5<&-
}
ask /health | grep -q '^ok' || fail "health"
ask /v1/models | grep -q '"id":"mine"' || fail "models"
ask /v1/completions '{"model":"mine","prompt":"once","max_tokens":4,"ignore_eos":true}' | grep -q '"completion_tokens":4' || fail "completions"
ask /v1/chat/completions '{"messages":[{"role":"user","content":"a"}]}' | grep -q 'no chat template' || fail "chat without a template"
ask / | grep -q '<title>tutti</title>' || fail "the page"
ask / | grep -qE '(src|href)=' && fail "the page asks for something from elsewhere"
ask /v1/models/mine | grep -q '"id":"mine"' || fail "a model by its name"
ask /v1/models/other | grep -q '^HTTP/1.1 404' || fail "another model"
refused "port $port of 127.0.0.1 cannot be opened: .*another program listens there" serve run --port "$port"
requests() { ask /metrics | sed -n 's/^tutti_requests_total \([0-9]*\).*/\1/p'; }
ask / | grep -qF "if(first)\$('text').value=first" || fail "the page does not show what a link asks"
ask / | grep -qF 'ask(first)' && fail "the page sends what a link asks"
if bash "$root/scripts/browser.sh" >/dev/null 2>&1; then # what a link says is shown, and a person sends it
    before=$(requests)
    bash "$root/scripts/browser.sh" "http://127.0.0.1:$port/?ask=once" page.png >out 2>&1 || fail "in a browser: $(tail -3 out)"
    [ -n "$before" ] && [ "$(requests)" = "$before" ] || fail "the page asked by itself: $before requests, then $(requests)"
fi
kill -INT $server
wait $server || fail "after Ctrl-C: another status than 0: $(cat log)"
server=
passed
