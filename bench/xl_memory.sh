#!/bin/sh
# What a memory is good for: the loss by position in a segment with and without it (context fragmentation), and the loss over the
# length of the memory.
#
#   bench/xl_memory.sh TEXT [MODEL]
#
# MODEL is a Transformer-XL; without one, a tiny model is trained on the first nine tenths of TEXT (about five minutes on two
# cores). The last tenth is read.
set -eu
[ $# -ge 1 ] && [ -r "$1" ] || { echo "usage: bench/xl_memory.sh TEXT [MODEL]" >&2; exit 2; }
text=$1
banyan=${BANYAN:-build/banyan}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bytes=$(wc -c <"$text")
head -c $((bytes * 9 / 10)) "$text" >"$work/train.txt"
tail -c $((bytes / 10)) "$text" >"$work/held.txt"
model=${2:-}
if [ -z "$model" ]; then
    model=$work/run
    "$banyan" train --model transfo-xl --data "$work/train.txt" --tokenizer byte --seq 32 --memory 64 --batch-size 16 \
        --max-steps "${STEPS:-2000}" --eval-every 500 --out "$model" --quiet
fi
measure() {
    "$banyan" eval "$model" --data "$work/held.txt" --max-tokens "${TOKENS:-50k}" --quiet "$@"
}
echo "loss by position in a segment, without a memory"
measure --memory 0 --by-position 8
echo "and with the model's memory"
measure --by-position 8
echo "loss over the length of the memory"
for memory in 0 8 16 32 64 128 256; do
    printf '%6d  %s\n' "$memory" "$(measure --memory "$memory" | head -1)"
done
