#!/bin/sh
# Transformer-XL beside GPT-2 on the bytes of a text: equal width and depth, equal training time on one GPU.
#
#   bench/xl_gpu.sh TEXT [SECONDS [DEVICE]]
#
# The last 5 % of TEXT (a few megabytes) are held out. Each model trains for SECONDS (default 100) in bf16; a first run of a
# few steps measures how many steps that is. Prints bits per byte: GPT-2 in windows of its context without and with
# overlap, Transformer-XL segment by segment with memories of several lengths.
set -eu
text=$1
seconds=${2:-100}
device=${3:-cuda}
banyan=${BANYAN:-build/banyan}
layers=${LAYERS:-6} heads=${HEADS:-8} width=${WIDTH:-512} seq=${SEQ:-256} memory=${MEMORY:-256} batch=${BATCH:-64}
trial=${TRIAL:-150} eval_tokens=${EVAL_TOKENS:-200000}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

bytes=$(wc -c <"$text")
held=$((bytes / 20))
head -c $((bytes - held)) "$text" >"$work/train.txt"
tail -c "$held" "$text" >"$work/held.txt"

train() { # family steps out, then options
    family=$1 steps=$2 out=$3
    shift 3
    "$banyan" train --model "$family" --data "$work/train.txt" --tokenizer byte --layers "$layers" --heads "$heads" \
        --width "$width" --seq "$seq" --batch-size "$batch" --max-steps "$steps" --bf16 --dropout 0.1 --eval-every "$steps" \
        --eval-batches 4 --out "$out" --device "$device" --quiet "$@" --json
}

field() { # name: the number of that name in JSON on standard input
    sed -n 's/.*"'"$1"'": *\([-0-9.e+]*\).*/\1/p' | head -1
}

# The rate of steps, from the difference of two runs, so that start-up and evaluation do not count.
steps_for() { # family options
    family=$1
    shift
    a=$(train "$family" "$trial" "$work/a" "$@" | field seconds)
    b=$(train "$family" $((3 * trial)) "$work/b" "$@" | field seconds)
    rm -rf "$work/a" "$work/b"
    awk -v a="$a" -v b="$b" -v n="$trial" -v s="$seconds" \
        'BEGIN { d = (b - a) / (2 * n); if (d <= 0) d = b / (3 * n); printf "%d\n", s / d }'
}

score() { # model, then options
    "$banyan" eval "$@" --data "$work/held.txt" --max-tokens "$eval_tokens" --device "$device" --dtype bf16 --quiet --json |
        field bits_per_byte
}

echo "text: $bytes bytes, $held held out; $layers layers, width $width, segments of $seq, batch $batch, $seconds s each"
steps=$(steps_for gpt2)
run=$(train gpt2 "$steps" "$work/gpt2" --context "$seq")
echo "GPT-2           $steps steps in $(echo "$run" | field seconds) s"
echo "  windows of $seq                    $(score "$work/gpt2" --batch-size 16) bits per byte"
echo "  windows of $seq, stride $((seq / 4))         $(score "$work/gpt2" --stride $((seq / 4)) --batch-size 16) bits per byte"
steps=$(steps_for transfo-xl --memory "$memory")
run=$(train transfo-xl "$steps" "$work/xl" --memory "$memory")
echo "Transformer-XL  $steps steps in $(echo "$run" | field seconds) s, memory $memory"
echo "  windows of $seq, no memory         $(score "$work/xl" --memory 0 --batch-size 16) bits per byte"
for m in $((memory / 2)) "$memory" $((2 * memory)) $((4 * memory)); do
    echo "  segments of $seq, memory $m        $(score "$work/xl" --memory "$m") bits per byte"
done
