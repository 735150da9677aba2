#!/bin/sh
# long_train.sh - a training step of one long sequence, for the families whose attention has a term by distance: time, planned
# activations and, on a CPU, the memory of the process. Bytes, 12 layers.
#   bench/long_train.sh [DEVICE [LENGTH [WIDTH [HEADS [STEPS]]]]]      cuda, 65536 tokens, 512 wide, 8 heads, 2 steps
# Environment: BANYAN (build/banyan), FAMILIES (transfo-xl:enwik8 xlnet:base), DTYPE (bf16; f32 on a CPU).
set -u
banyan=${BANYAN:-build/banyan}
device=${1:-cuda} length=${2:-65536} width=${3:-512} heads=${4:-8} steps=${5:-2}
dtype=${DTYPE:-$([ "$device" = cpu ] && echo f32 || echo bf16)}

field() { # LINE KEY
    printf '%s\n' "$1" | sed -n "s/.*\"$2\":\([^,}]*\).*/\1/p"
}

echo "| | s a step | activations, MiB | resident, MiB | loss |"
echo "|---|---|---|---|---|"
for model in ${FAMILIES:-transfo-xl:enwik8 xlnet:base}; do
    if line=$("$banyan" bench train --device "$device" --dtype "$dtype" --model "${model%:*}" --preset "${model#*:}" --layers 12 \
        --width "$width" --heads "$heads" --context "$length" --seq "$length" --vocab 256 --batch-size 1 --steps "$steps" \
        --warmup 1 2>/dev/null); then
        awk -v m="${model%:*}" -v ms="$(field "$line" ms_per_step)" -v a="$(field "$line" planned_bytes)" \
            -v r="$(field "$line" max_rss_bytes)" -v l="$(field "$line" loss)" \
            'BEGIN { printf "| %s | %.2f | %.0f | %.0f | %.4f |\n", m, ms / 1e3, a / 1048576, r / 1048576, l }'
    else
        echo "| ${model%:*} | failed | | | |"
    fi
done
