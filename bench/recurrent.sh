#!/bin/sh
# recurrent.sh - recurrent language models of 650 units, two layers, beside PyTorch, as a Markdown table: milliseconds of a training
# step (forward, backward, clipping, AdamW). Environment: BUILD (build), PEER_PYTHON (a python with torch), THREADS (2), STEPS (10),
# DEVICE (cpu), WIDTH (650), BATCH (20), SEQ (35), VOCAB (10000).
set -u
cd "$(dirname "$0")/.." || exit 1
banyan=${BUILD:-build}/banyan
python=${PEER_PYTHON:?set PEER_PYTHON to a python that has torch}
threads=${THREADS:-2} steps=${STEPS:-10} device=${DEVICE:-cpu} width=${WIDTH:-650} batch=${BATCH:-20} seq=${SEQ:-35} vocab=${VOCAB:-10000}

ms() { sed -n 's/.*"ms_per_step": *\([0-9.]*\).*/\1/p'; }
echo "| model | batch x positions | dtype | Banyan ms | PyTorch ms | PyTorch / Banyan |"
echo "|---|---|---|---|---|---|"
for cell in ${CELLS:-lstm gru rnn}; do
    for dtype in f32 bf16; do
        ours=$("$banyan" bench train --model "$cell" --preset medium --width "$width" --vocab "$vocab" --batch "$batch" --seq "$seq" --steps "$steps" \
            --threads "$threads" --dtype $dtype --device "$device" 2>/dev/null | ms)
        torch=$("$python" bench/peer_recurrent.py train --cell "$cell" --width "$width" --vocab "$vocab" --batch "$batch" --seq "$seq" --steps "$steps" \
            --threads "$threads" --dtype $dtype --device "$device" 2>/dev/null | ms)
        awk -v c="$cell, $width units" -v s="$batch x $seq" -v d=$dtype -v o="${ours:-0}" -v t="${torch:-0}" \
            'BEGIN { printf "| %s | %s | %s | %.1f | %.1f | %.2f |\n", c, s, d, o, t, (o > 0 ? t / o : 0) }'
    done
done
