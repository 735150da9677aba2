#!/bin/sh
# captions.sh - a vision encoder-decoder learns to describe composed pictures (bench/captions.c) and is tested, once, on combinations of colours,
# garments and places that it has never seen. A twentieth of the training pictures decides which checkpoint is kept.
#   bench/captions.sh [DIRECTORY with the gzipped IDX files of Fashion-MNIST] [more options of banyan train]
# Environment: BUILD (build), DEVICE (auto), PICTURES (60000), TESTS (2000), EPOCHS (8), RESULTS (a folder that keeps pictures and runs).
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
data=${1:-/usr/share/datasets/fashion-mnist}
[ $# -gt 0 ] && shift
[ -r "$data/train-images-idx3-ubyte.gz" ] || { echo "usage: bench/captions.sh DIRECTORY [options of banyan train]" >&2; exit 2; }
build=$(cd "${BUILD:-$root/build}" && pwd) || exit 1
results=${RESULTS:-$(mktemp -d "${TMPDIR:-/tmp}/banyan-captions.XXXXXX")}
mkdir -p "$results" || exit 1
[ -n "${RESULTS:-}" ] || trap 'rm -rf "$results"' EXIT
trap 'exit 130' INT TERM

cc -O2 -I"$root/include" "$root/bench/captions.c" -o "$results/captions" -L"$build" -lbanyan -Wl,-rpath,"$build" -lm || exit 1
[ -e "$results/pictures/test.tsv" ] ||
    "$results/captions" "$data" "$results/pictures" "${PICTURES:-60000}" "${TESTS:-2000}" || exit 1
echo "$(($(wc -l <"$results/pictures/train.tsv") - 1)) pictures to learn from, $(cut -f 2 "$results/pictures/train.tsv" | sort -u | wc -l) different captions"
"$build/banyan" train --model vision-encoder-decoder --layers 4 --decoder-layers 2 --width 128 --heads 4 --image-size 64 --patch 8 --bf16 \
    --data "$results/pictures/train.tsv" --eval-fraction 0.05 --epochs "${EPOCHS:-8}" --batch-size 64 --learning-rate 1e-3 --adam-beta2 0.99 \
    --average-decay 0.999 --crop-padding 1 --device "${DEVICE:-auto}" --out "$results/run" "$@" || exit 1
echo "held-out combinations:"
"$build/banyan" eval "$results/run" --data "$results/pictures/test.tsv" --device "${DEVICE:-auto}" --quiet
