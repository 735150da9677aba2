#!/bin/sh
# vit.sh - classifying pictures of 224 x 224 pixels with a Vision Transformer on the CPU, beside onnxruntime: the same weights, the same
# pixels, turn by turn.
#   PEER_PYTHON=/path/to/python bench/vit.sh [PRESET] [BATCHES] [THREADS]     (base, "1 8", 2)
# Environment: BUILD (build), ROUNDS (3), STEPS (10), RESULTS (a folder that keeps the model and its graph).
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
preset=${1:-base} batches=${2:-1 8} threads=${3:-2}
[ -n "${PEER_PYTHON:-}" ] || { echo "bench/vit.sh: PEER_PYTHON must have torch, transformers, onnx and onnxruntime" >&2; exit 2; }
build=$(cd "${BUILD:-$root/build}" && pwd)
results=${RESULTS:-$(mktemp -d "${TMPDIR:-/tmp}/banyan-vit.XXXXXX")}
mkdir -p "$results"
[ -n "${RESULTS:-}" ] || trap 'rm -rf "$results"' EXIT
trap 'exit 130' INT TERM

cc -O2 -I"$root/include" "$root/bench/vit_forward.c" -o "$results/vit_forward" -L"$build" -lbanyan -Wl,-rpath,"$build" -lm
[ -e "$results/$preset/model.onnx" ] || "$PEER_PYTHON" "$root/bench/peer_vit.py" make "$results/$preset" "$preset"
for batch in $batches; do
    for round in $(seq "${ROUNDS:-3}"); do
        echo "batch $batch, round $round"
        printf '  banyan      %s\n' "$("$results/vit_forward" "$results/$preset" "$batch" "$threads" "${STEPS:-10}")"
        printf '  onnxruntime %s\n' "$("$PEER_PYTHON" "$root/bench/peer_vit.py" run "$results/$preset" "$batch" "$threads" "${STEPS:-10}")"
    done
done
