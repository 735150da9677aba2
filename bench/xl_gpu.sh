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
layers=${LAYERS:-6} heads=${HEADS:-8} width=${WIDTH:-512} seq=${SEQ:-256} batch=${BATCH:-64}
segment=${SEGMENT:-128} memory=${MEMORY:-128} # of Transformer-XL: a query sees as many keys at most as GPT-2's last
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
        --width "$width" --max-steps "$steps" --bf16 --dropout 0.1 --eval-every "$steps" \
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

echo "text: $bytes bytes, $held held out; $layers layers, width $width, $((batch * seq)) tokens a step, $seconds s each"
steps=$(steps_for gpt2 --context "$seq" --seq "$seq" --batch-size "$batch")
run=$(train gpt2 "$steps" "$work/gpt2" --context "$seq" --seq "$seq" --batch-size "$batch")
echo "GPT-2           $steps steps in $(echo "$run" | field seconds) s"
echo "  windows of $seq                    $(score "$work/gpt2" --batch-size 16) bits per byte"
echo "  windows of $seq, stride $((seq / 4))         $(score "$work/gpt2" --stride $((seq / 4)) --batch-size 16) bits per byte"
rows=$((batch * seq / segment)) # as many tokens a step
set -- --context "$segment" --seq "$segment" --memory "$memory" --batch-size "$rows"
steps=$(steps_for transfo-xl "$@")
run=$(train transfo-xl "$steps" "$work/xl" "$@")
echo "Transformer-XL  $steps steps in $(echo "$run" | field seconds) s, segments of $segment, memory $memory"
echo "  windows of $segment, no memory         $(score "$work/xl" --memory 0 --batch-size 16) bits per byte"
for m in "$memory" $((2 * memory)) $((4 * memory)) $((8 * memory)); do
    echo "  segments of $segment, memory $m        $(score "$work/xl" --memory "$m") bits per byte"
done
