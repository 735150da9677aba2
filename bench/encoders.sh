#!/bin/sh
# encoders.sh - BERT-base forward and training beside PyTorch and onnxruntime on this machine's CPU, as a Markdown table. Both sides
# have the same weights and tokens. Environment: BUILD (build), PEER_PYTHON (a python with torch, transformers, onnxruntime, onnx),
# THREADS (2), STEPS (5).
set -u
cd "$(dirname "$0")/.." || exit 1
banyan=${BUILD:-build}/banyan
python=${PEER_PYTHON:?set PEER_PYTHON to a python that has torch and transformers}
threads=${THREADS:-2} steps=${STEPS:-5}
work=$(mktemp -d "${TMPDIR:-/tmp}/banyan-bench.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

ms() { sed -n 's/.*"ms_min": *\([0-9.]*\).*/\1/p'; }
"$banyan" bench forward --model bert --batch 1 --seq 8 --steps 1 --warmup 0 --save "$work/body" >/dev/null 2>&1
"$banyan" bench train --model bert --batch 1 --seq 8 --steps 1 --warmup 0 --save "$work/mlm" >/dev/null 2>&1

echo "| work | dtype | Banyan ms | PyTorch ms | onnxruntime ms |"
echo "|---|---|---|---|---|"
for seq in 128 512; do
    for dtype in f32 bf16; do
        ours=$("$banyan" bench forward --model-dir "$work/body" --batch 1 --seq $seq --steps "$steps" --threads "$threads" --dtype $dtype 2>/dev/null | ms)
        torch=$("$python" bench/peer_encoder.py forward --model-dir "$work/body" --batch 1 --seq $seq --steps "$steps" --threads "$threads" --dtype $dtype 2>/dev/null | ms)
        onnx=-
        [ $dtype = f32 ] && onnx=$("$python" bench/peer_encoder.py forward --model-dir "$work/body" --batch 1 --seq $seq --steps "$steps" --threads "$threads" --way onnx 2>/dev/null | ms)
        echo "| forward, 1 x $seq | $dtype | $ours | $torch | ${onnx:-failed} |"
    done
done
for dtype in f32 bf16; do
    ours=$("$banyan" bench train --model-dir "$work/mlm" --batch 8 --seq 128 --steps "$steps" --threads "$threads" --dtype $dtype 2>/dev/null | ms)
    torch=$("$python" bench/peer_encoder.py train --model-dir "$work/mlm" --batch 8 --seq 128 --steps "$steps" --threads "$threads" --dtype $dtype 2>/dev/null | ms)
    echo "| training step, 8 x 128 | $dtype | $ours | $torch | |"
done
