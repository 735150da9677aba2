#!/bin/sh
# fashion_gpu.sh - Fashion-MNIST from scratch on a GPU, with nothing chosen on the test set: several settings train for a short time on nine tenths
# of the training pictures and are scored on the last tenth; the best one then trains on all of them for TRAIN seconds, and its last, averaged
# model is evaluated on the test set, once.
#   bench/fashion_gpu.sh [DIRECTORY with the four gzipped IDX files]
# Environment: BANYAN (build/banyan), DEVICE (cuda), SEARCH (60: epochs of each setting), TRAIN (155: seconds of the final run, less its start),
# RESULTS (a folder that keeps the runs).
set -u
data=${1:-/usr/share/datasets/fashion-mnist}
[ -r "$data/train-images-idx3-ubyte.gz" ] || { echo "usage: bench/fashion_gpu.sh DIRECTORY" >&2; exit 2; }
banyan=${BANYAN:-$(dirname "$0")/../build/banyan}
results=${RESULTS:-$(mktemp -d "${TMPDIR:-/tmp}/banyan-fashion.XXXXXX")}
mkdir -p "$results" || exit 1
[ -n "${RESULTS:-}" ] || trap 'rm -rf "$results"' EXIT
trap 'exit 130' INT TERM

# train NAME OPTIONS...: one run; its result is NAME.json.
train() {
    name=$1
    shift
    # shellcheck disable=SC2086 # several options
    "$banyan" train --model vit --preset grey28 --data "$data/train-images-idx3-ubyte.gz" --out "$results/$name" --overwrite \
        --classes T-shirt,Trouser,Pullover,Dress,Coat,Sandal,Shirt,Sneaker,Bag,Boot --device "${DEVICE:-cuda}" --bf16 --quiet --json \
        --adam-beta2 0.99 --label-smoothing 0.1 "$@" >"$results/$name.json" || exit 1
}

# field NAME KEY
field() {
    sed -n "s/.*\"$2\":\([-0-9.e+]*\).*/\1/p" "$results/$1.json"
}

# What is tried: patches of 4 pixels; shifts by 1 or 2 pixels or changes of size, with erasing or a little mixing. Pictures are never
# mirrored: shoes all point the same way.
setting() {
    echo "--layers 8 --width 256 --heads 4 --patch 4 --init-std 0.08 --batch-size 256"
    case $1 in
    a) echo "--learning-rate 5e-4 --drop-path 0.1 --crop-padding 1 --erase 0.25" ;;
    b) echo "--learning-rate 5e-4 --drop-path 0.2 --crop-padding 1 --mixup 0.2 --cutmix 0.5" ;;
    c) echo "--learning-rate 5e-4 --drop-path 0.1 --resized-crop 0.7 --erase 0.25" ;;
    d) echo "--learning-rate 4e-4 --drop-path 0.1 --crop-padding 2" ;;
    esac
}

begin=$(date +%s)
best='' highest=0
echo "| setting | held-out accuracy | pictures per second | waited for data |"
echo "|---|---|---|---|"
for name in a b c d; do
    # shellcheck disable=SC2046 # several options
    train "$name" $(setting "$name") --eval-fraction 0.1 --epochs "${SEARCH:-60}" --average-decay 0.9995
    accuracy=$(field "$name" accuracy)
    speed=$(awk "BEGIN { print int($(field "$name" steps) * 256 / $(field "$name" seconds)) }")
    echo "| $name: $(setting "$name" | tail -n 1) | $accuracy | $speed | $(field "$name" data_wait) |"
    if awk "BEGIN { exit !($accuracy > $highest) }"; then
        best=$name highest=$accuracy
    fi
done
echo
steps=$(awk "BEGIN { print int(${TRAIN:-155} * $(field "$best" steps) / $(field "$best" seconds)) }")
echo "best on held-out pictures: $best; $steps steps on all training pictures"
# shellcheck disable=SC2046
train final $(setting "$best") --eval-fraction 0 --max-steps "$steps" --save-steps "$steps" --average-decay 0.9998
echo "training took $(field final seconds) s and waited for data $(field final data_wait) of the time; all of it $(($(date +%s) - begin)) s"
"$banyan" eval "$results/final" --data "$data/t10k-images-idx3-ubyte.gz" --device "${DEVICE:-cuda}" --per-class --confusion \
    "$results/confusion.svg" --quiet
