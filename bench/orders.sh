#!/bin/bash
# orders.sh - held-out bits per byte of n-gram models of bytes by their order: interpolated modified Kneser-Ney, the same without n-grams that
# occur once, and add-k. Prints a Markdown table and draws it.
#   bench/orders.sh TEXT [OUT.svg]           the last twentieth of TEXT is held out
# Environment: BANYAN (build/banyan), ORDERS (1 2 3 4 5 6 7 8), K (0.01).
set -eu
cd "$(dirname "$0")/.."
[ $# -ge 1 ] && [ -r "$1" ] || { echo "usage: bench/orders.sh TEXT [OUT.svg]" >&2; exit 2; }
text=$1 out=${2:-orders.svg} banyan=${BANYAN:-build/banyan}
work=$(mktemp -d "${TMPDIR:-/tmp}/banyan-orders.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
held=$(($(wc -c <"$text") / 20))
head -c -"$held" "$text" >"$work/train.txt"
tail -c "$held" "$text" >"$work/held.txt"

bits() { # NAME ORDER OPTIONS...: also a point of the plot
    local name=$1 order=$2 score
    shift 2
    "$banyan" train --model ngram --order "$order" --tokenizer byte --data "$work/train.txt" --out "$work/model" --overwrite --quiet "$@" >"$work/log"
    "$banyan" eval "$work/model" --data "$work/held.txt" --quiet --json >"$work/eval"
    score=$(sed -n 's/.*"bits_per_byte": *\([0-9.]*\).*/\1/p' "$work/eval" | awk '{ printf "%.3f", $1 }')
    echo "$name $order $score" >>"$work/points"
    echo "$score"
}

echo "| order | Kneser-Ney | pruned | add-k |"
echo "|---|---|---|---|"
for order in ${ORDERS:-1 2 3 4 5 6 7 8}; do
    prune=$(awk -v n="$order" 'BEGIN { for (i = 1; i <= n; i++) printf "%d ", (i > 2) }')
    # shellcheck disable=SC2086 # several thresholds
    echo "| $order | $(bits Kneser-Ney "$order" --discount-fallback) | $(bits pruned "$order" --discount-fallback --prune $prune) |" \
        "$(bits add-k "$order" --smoothing add-k --add-k "${K:-0.01}") |"
done
awk -v title="N-gram models of bytes by order" -v xlabel="order" -v ylabel="held-out bits per byte" -f bench/plot.awk "$work/points" >"$out"
echo
echo "plot: $out"
