#!/bin/sh
# train_tokenizer.sh [FILE...] - training tokenizers beside the `tokenizers` package, both in one run: a Markdown table on stdout with time,
# processor time, peak memory, and whether the tokens and merges are the same (BPE) or how good they are on held-out text (Unigram).
# Without files a text of 100 MB is made from what the machine has (bench/corpus.sh).
# Environment: BUILD (build), PEER_PYTHON (a python with tokenizers), THREADS (every core), ROUNDS (2), SIZE (32000), UNIGRAM_MB (10).
set -eu
cd "$(dirname "$0")/.."
banyan=${BUILD:-build}/banyan
python=${PEER_PYTHON:-}
export THREADS="${THREADS:-$(nproc)}" ROUNDS="${ROUNDS:-2}" SIZE="${SIZE:-32000}" UNIGRAM_MB="${UNIGRAM_MB:-10}"

[ -x "$banyan" ] || { echo "bench: $banyan is not there: make, or set BUILD" >&2; exit 1; }
work=$(mktemp -d "${TMPDIR:-/tmp}/banyan-bench.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
if [ $# -eq 0 ]; then
    bench/corpus.sh "$work/corpus.txt" 100
    set -- "$work/corpus.txt"
fi
if [ -z "$python" ] || ! "$python" -c 'import tokenizers' 2>/dev/null; then
    echo "bench: no peer: set PEER_PYTHON to a python that has tokenizers" >&2
    exec "$banyan" train-tokenizer --like gpt2 --vocab-size "$SIZE" --threads "$THREADS" --json --quiet --out "$work/made" "$@"
fi
"$python" bench/train_tokenizer.py "$banyan" "$work" "$@"
