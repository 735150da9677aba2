#!/bin/sh
# translate.sh - beam search with Marian's base shape beside transformers (PyTorch) and CTranslate2 on this machine's CPU, as a Markdown
# table: all sources of a batch from the first token of the encoder to the last one written. The same weights and sources; every text has
# exactly as many tokens. Environment: BUILD (build), PEER_PYTHON (a python with torch, transformers, ctranslate2), THREADS (2), STEPS (3),
# BATCH (32), BEAMS (4), TOKENS (32: of a source, and of what is written).
set -u
cd "$(dirname "$0")/.." || exit 1
banyan=${BUILD:-build}/banyan
python=${PEER_PYTHON:?set PEER_PYTHON to a python that has torch, transformers and ctranslate2}
work=$(mktemp -d "${TMPDIR:-/tmp}/banyan-bench.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

tokens=${TOKENS:-32}
same="--batch ${BATCH:-32} --seq $tokens --new-tokens $tokens --beams ${BEAMS:-4} --steps ${STEPS:-3} --threads ${THREADS:-2}"
rate() { sed -n 's/.*"tokens_per_s": *\([0-9.]*\).*/\1/p'; }
"$banyan" bench translate --model marian --preset base --batch 1 --seq 8 --new-tokens 2 --steps 1 --warmup 0 --device cpu --save "$work/model" >/dev/null 2>&1

echo "| dtype | Banyan tok/s | transformers | CTranslate2 |"
echo "|---|---|---|---|"
for dtype in f32 bf16; do
    # shellcheck disable=SC2086 # words
    ours=$("$banyan" bench translate --model-dir "$work/model" $same --dtype $dtype --device cpu 2>/dev/null | rate)
    # shellcheck disable=SC2086
    torch=$("$python" bench/peer_seq2seq.py translate --model-dir "$work/model" $same --dtype $dtype 2>/dev/null | rate)
    # shellcheck disable=SC2086
    ct2=$("$python" bench/peer_seq2seq.py translate --model-dir "$work/model" $same --dtype $dtype --way ct2 2>/dev/null | rate)
    echo "| $dtype | $ours | ${torch:-failed} | ${ct2:-refused} |"
done
