#!/bin/sh
# recurrent.sh - recurrent language models beside PyTorch, as a Markdown table: milliseconds of a training step (forward, backward,
# clipping, AdamW). By default the medium model of Zaremba et al. 2014: 650 units, two layers, batch 20, 35 positions, 10,000 words. Both
# sides take turns, ROUNDS times; the table has the fastest step of each, and the least processor time of a step (all threads together),
# which other work on the machine does not stretch as much.
#   PEER_PYTHON=python3 bench/recurrent.sh                 two threads
#   DEVICE=cuda PEER_PYTHON=python3 bench/recurrent.sh     f32 (TF32 off), f32 with TF32, bf16; PyTorch uses cuDNN
# Environment: BUILD (build), PEER_PYTHON (a python with torch), THREADS (2), STEPS (10; on a GPU 50), ROUNDS (3), DEVICE (cpu), CELLS (lstm gru rnn),
# TYPES (f32 bf16; on a GPU f32 tf32 bf16), WIDTH (650), BATCH (20), SEQ (35), VOCAB (10000).
set -u
cd "$(dirname "$0")/.." || exit 1
banyan=${BUILD:-build}/banyan
python=${PEER_PYTHON:?set PEER_PYTHON to a python that has torch}
threads=${THREADS:-2} device=${DEVICE:-cpu} width=${WIDTH:-650} batch=${BATCH:-20} seq=${SEQ:-35} vocab=${VOCAB:-10000}
case $device in
cpu) types=${TYPES:-f32 bf16} steps=${STEPS:-10} ;;
*) types=${TYPES:-f32 tf32 bf16} steps=${STEPS:-50} ;;
esac

ms() { sed -n 's/.*"ms_min": *\([0-9.]*\).*"cpu_ms_min": *\([0-9.]*\).*/\1 \2/p'; }
# ours CELL TYPE, theirs CELL TYPE: milliseconds of the fastest step, and of processor time
ours() {
    on=$device type=$2
    [ "$2" = tf32 ] && on=$device+tf32 type=f32
    "$banyan" bench train --model "$1" --preset medium --width "$width" --vocab "$vocab" --batch "$batch" --seq "$seq" --steps "$steps" \
        --threads "$threads" --dtype "$type" --device "$on" 2>/dev/null | ms
}
theirs() {
    extra='' type=$2
    [ "$2" = tf32 ] && extra=--tf32 type=f32
    # shellcheck disable=SC2086 # none or one
    "$python" bench/peer_recurrent.py train --cell "$1" --width "$width" --vocab "$vocab" --batch "$batch" --seq "$seq" --steps "$steps" \
        --threads "$threads" --dtype "$type" --device "$device" $extra 2>/dev/null | ms
}
# Pairs of numbers: the least of each.
least() { printf '%s %s\n' "$@" | awk 'NF == 2 { if (a == "" || $1 < a) a = $1; if (b == "" || $2 < b) b = $2 } END { print a + 0, b + 0 }'; }

"$python" -c 'import torch; print("PyTorch", torch.__version__, "cuDNN", torch.backends.cudnn.version())'
echo "| model | batch x positions | type | Banyan ms | PyTorch ms | PyTorch / Banyan | Banyan CPU ms | PyTorch CPU ms | PyTorch / Banyan |"
echo "|---|---|---|---|---|---|---|---|---|"
for cell in ${CELLS:-lstm gru rnn}; do
    for type in $types; do
        a='' b='' round=0
        while [ $round -lt "${ROUNDS:-3}" ]; do
            a="$a $(ours "$cell" "$type")" b="$b $(theirs "$cell" "$type")" round=$((round + 1))
        done
        # shellcheck disable=SC2086 # several numbers
        echo "$(least $a) $(least $b)" | awk -v c="$cell, $width units" -v s="$batch x $seq" -v d="$type" '
            function ratio(o, t) { return o > 0 ? t / o : 0 }
            { printf "| %s | %s | %s | %.1f | %.1f | %.2f | %.1f | %.1f | %.2f |\n", c, s, d, $1, $3, ratio($1, $3), $2, $4, ratio($2, $4) }'
    done
done
