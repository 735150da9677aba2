#!/bin/sh
# tokenize.sh - tokenizers side by side with their peers, in one run: MB/s of English, the best of some rounds.
#   BUILD=build DATA=../shared/data PEER_PYTHON=~/venv/bin/python THREADS=1 ROUNDS=3 bench/tokenize.sh
# One thread is measured by its own CPU time on both sides, several by the clock. PEER_PYTHON has transformers, tokenizers and sentencepiece. Both sides must give the same number of tokens.
set -eu
cd "$(dirname "$0")/.."
BUILD=${BUILD:-build} DATA=${DATA:-../shared/data} THREADS=${THREADS:-1} ROUNDS=${ROUNDS:-3} PEER_PYTHON=${PEER_PYTHON:-}
TEXT=${TEXT:-$DATA/corpora/wikitext2-test.txt}
program=$(mktemp)
trap 'rm -f "$program"' EXIT
cc -O2 -Iinclude bench/tokenize.c -o "$program" -L"$BUILD" -lbanyan -Wl,-rpath,"$(cd "$BUILD" && pwd)"
printf '%-32s %12s %12s %8s\n' "MB/s, threads $THREADS" banyan peer ratio
for name in gpt2 roberta openai-gpt bert-base-uncased bert-base-cased t5 albert xlnet t5/spiece.model albert/spiece.model xlnet/spiece.model; do
    path=$DATA/tokenizers/$name
    [ -e "$path" ] || { echo "$path is not there: left out" >&2; continue; }
    set -- $("$program" "$path" "$TEXT" "$THREADS" "$ROUNDS")
    mine=$1 tokens=$2 peer=- ratio=-
    if [ -n "$PEER_PYTHON" ]; then
        set -- $("$PEER_PYTHON" bench/peer_tokenize.py "$path" "$TEXT" "$THREADS" "$ROUNDS")
        peer=$1
        [ "$tokens" = "$2" ] || { echo "$name: $tokens tokens, the peer has $2" >&2; exit 1; }
        ratio=$(awk "BEGIN { printf \"%.1f\", $mine / $peer }")
    fi
    printf '%-32s %12s %12s %8s\n' "$name" "$mine" "$peer" "$ratio"
done
