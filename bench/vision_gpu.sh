#!/bin/sh
# vision_gpu.sh - training steps of DeiT-small (224 x 224, batch 256, bf16) beside compiled PyTorch on a GPU, and ViT-base forward; both
# sides in turns in one run.
#   PEER_PYTHON=python3 bench/vision_gpu.sh
# Environment: BANYAN (build/banyan), DEVICE (cuda), BATCH (256), STEPS (20), ROUNDS (2), PEER_PYTHON (none: Banyan alone).
set -u
banyan=${BANYAN:-$(dirname "$0")/../build/banyan} here=$(dirname "$0")
device=${DEVICE:-cuda} batch=${BATCH:-256} steps=${STEPS:-20}
work=$(mktemp -d "${TMPDIR:-/tmp}/banyan-vision.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

field() {
    sed -n "s/.*\"$2\": *\([-0-9.e+]*\).*/\1/p" "$1"
}
# ours WHAT MODEL PRESET; peer WHAT: a row of the table
ours() {
    "$banyan" bench "$1" --model "$2" --preset "$3" --batch "$batch" --steps "$steps" --warmup 5 --dtype bf16 --device "$device" \
        --save "$work/$2" >"$work/line" 2>"$work/errors" || { cat "$work/errors" >&2; return 1; }
    echo "| $1 $2 $3, $batch pictures | Banyan | $(field "$work/line" ms_per_step) | $(field "$work/line" planned_bytes) | $(field "$work/line" loss) |"
}
peer() {
    [ -n "${PEER_PYTHON:-}" ] || return 0
    "$PEER_PYTHON" "$here/peer_vision.py" "$1" --model-dir "$work/$2" --batch "$batch" --steps "$steps" --warmup 5 --dtype bf16 \
        --device "$device" --way "$3" >"$work/line" 2>"$work/errors" || { tail -3 "$work/errors" >&2; return 1; }
    echo "| $1 $2 | PyTorch $3 | $(field "$work/line" ms_per_step) | $(field "$work/line" max_gpu_bytes) | $(field "$work/line" loss) |"
}

echo "| work | program | ms | bytes | loss |"
echo "|---|---|---|---|---|"
round=0
while [ "$round" -lt "${ROUNDS:-2}" ]; do
    ours train deit small
    peer train deit compiled
    ours forward vit base
    peer forward vit compiled
    round=$((round + 1))
done
