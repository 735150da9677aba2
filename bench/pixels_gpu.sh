#!/bin/sh
# Models of pixels on Fashion-MNIST beside plain PyTorch models of the same shape, steps, optimiser and schedule.
#
#   bench/pixels_gpu.sh [DIR]       DIR (carry/fashion-mnist) has train-images-idx3-ubyte.gz and t10k-images-idx3-ubyte.gz
#
# ImageGPT (32 greys), and Image Transformer with a categorical distribution and with a mixture of 10 logistics; one-dimensional
# local attention. Each trains STEPS steps (1500) of BATCH pictures (64) in bf16, then the test pictures are measured once in f32:
# nats per colour, bits per dimension. Curves of held-out training pictures, grids of samples and completed test pictures go to
# $OUT (pixels-out). ONLY='imagegpt dmol' takes some of them; without PEER_PYTHON there are no peers.
#   DEVICE=cpu STEPS=4 BATCH=2 LAYERS=2 WIDTH=32 TEST=64 bench/pixels_gpu.sh DIR   checks that everything runs
set -eu
data=${1:-carry/fashion-mnist} out=${OUT:-pixels-out} banyan=${BANYAN:-build/banyan} device=${DEVICE:-cuda}
steps=${STEPS:-1500} batch=${BATCH:-64} layers=${LAYERS:-6} width=${WIDTH:-256} heads=${HEADS:-4} rate=${RATE:-1e-3}
block=${BLOCK:-196} memory=${MEMORY:-196} test=${TEST:-0} warmup=${WARMUP:-200}
[ "$warmup" -lt "$steps" ] || warmup=1
every=$((steps / 6 > 0 ? steps / 6 : 1))
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"

field() { sed -n 's/.*"'"$1"'": *\([-0-9.e+]*\).*/\1/p' | head -1; } # NAME: the number of that name in JSON

# The test pictures, or the first TEST of them.
held=$data/t10k-images-idx3-ubyte.gz
if [ "$test" -gt 0 ]; then
    held=$work/some-images-idx3-ubyte
    # shellcheck disable=SC2059 # a number as two bytes
    { printf '\000\000\010\003\000\000'; printf "\\$(printf %03o $((test >> 8 & 255)))\\$(printf %03o $((test & 255)))"
      printf '\000\000\000\034\000\000\000\034'
      gzip -dc "$data/t10k-images-idx3-ubyte.gz" | tail -c +17 | head -c $((test * 784)); } >"$held"
fi

# train KIND OPTIONS...: Banyan's run
train() {
    kind=$1
    shift
    "$banyan" train --data "$data/train-images-idx3-ubyte.gz" --out "$work/$kind" --layers "$layers" --width "$width" \
        --heads "$heads" --batch-size "$batch" --max-steps "$steps" --learning-rate "$rate" --warmup-steps "$warmup" \
        --init-std 0.02 --beta2 0.95 --weight-decay 0.01 --dropout 0 --eval-fraction 0.02 --eval-steps "$every" --eval-batches 0 \
        --save-steps "$steps" --seed 1 --bf16 --device "$device" --quiet --json "$@"
}

# peer KIND: PyTorch's; KIND as peer_pixels.py names it
peer() {
    "$PEER_PYTHON" "$(dirname "$0")/peer_pixels.py" "$1" --data "$data" --palette "$work/imagegpt/last" --layers "$layers" \
        --width "$width" --heads "$heads" --block "$block" --memory "$memory" --batch "$batch" --steps "$steps" \
        --rate "$rate" --warmup "$warmup" --eval-steps "$every" --test "$test" --device "$device" --curve "$work/$1.peer"
}

one() { # KIND UNIT TITLE OPTIONS...
    kind=$1 unit=$2 title=$3
    shift 3
    case " ${ONLY:-imagegpt categorical dmol} " in *" $kind "*) ;; *) return 0 ;; esac
    run=$(train "$kind" "$@")
    result=$("$banyan" eval "$work/$kind/last" --data "$held" --batch-size 100 --device "$device" --quiet --json)
    nats=$(echo "$result" | field loss)
    bits=$(echo "$result" | field "$([ "$kind" = imagegpt ] && echo bits_per_colour || echo bits_per_dim)")
    echo "$title"
    printf '  %-10s %8.4f nats %8.4f bits per %s   %6.1f s of training, %s parameters\n' Banyan "$nats" "$bits" "$unit" \
        "$(echo "$run" | field seconds)" "$(echo "$run" | field parameters)"
    sed -n 's/.*"step": *\([0-9]*\).*"eval_loss": *\([0-9.]*\).*/Banyan \1 \2/p' "$work/$kind/metrics.jsonl" >"$work/$kind.points"
    if [ -n "${PEER_PYTHON:-}" ]; then
        other=$(peer "$kind")
        printf '  %-10s %8.4f nats %8.4f bits per %s   %6.1f s of training, %s parameters\n' PyTorch \
            "$(echo "$other" | field test_nats)" "$(echo "$other" | field test_bits)" "$unit" \
            "$(echo "$other" | field seconds)" "$(echo "$other" | field parameters)"
        sed 's/^/PyTorch /' "$work/$kind.peer" >>"$work/$kind.points"
    fi
    awk -v title="$title" -v xlabel=steps -v ylabel="held-out nats per $unit" -f "$(dirname "$0")/plot.awk" \
        "$work/$kind.points" >"$out/$kind.svg"
    "$banyan" generate "$work/$kind/last" --samples 16 --seed 1 --device "$device" -o "$out/$kind-samples.png"
    "$banyan" generate "$work/$kind/last" --complete "$data/t10k-images-idx3-ubyte.gz" --keep 0.5 --samples 5 --seed 1 --device "$device" \
        -o "$out/$kind-completed.png"
}

one imagegpt colour "ImageGPT, Fashion-MNIST in 32 greys" --model imagegpt --colours 32
one categorical dimension "Image Transformer, categorical" --model image-transformer --attention 1d --query-block "$block" \
    --local-memory "$memory"
one dmol dimension "Image Transformer, mixture of 10 logistics" --model image-transformer --attention 1d --distribution dmol \
    --query-block "$block" --local-memory "$memory"
