#!/bin/sh
# demo_norms.sh - the 2017 Transformer with norms before and after the sub-layers (pre-norm, post-norm), trained without
# warm-up, and post-norm with it. Six layers learn to reverse strings. Prints the losses and draws them. Under two
# minutes on two idle cores.
#   bench/demo_norms.sh [OUT.svg]
# Environment: BANYAN (build/banyan), STEPS (150), THREADS (0: every core).
set -eu
cd "$(dirname "$0")/.."
banyan=${BANYAN:-build/banyan}
out=${1:-norms.svg}
steps=${STEPS:-150}
work=$(mktemp -d "${TMPDIR:-/tmp}/banyan-norms.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

awk -v a="$work/source" -v b="$work/target" 'BEGIN {
    srand(1)
    for (i = 0; i < 4000; i++) {
        x = y = ""
        for (n = 4 + int(rand() * 9); n > 0; n--) {
            c = substr("abcdefghijkl", 1 + int(rand() * 12), 1)
            x = x c
            y = c y
        }
        print x >a
        print y >b
    }
}'

run() { # NAME OPTIONS...
    name=$1
    shift
    "$banyan" train --model transformer --layers 6 --heads 4 --width 64 --inner 256 --dropout 0 \
        --data "$work/source" "$work/target" --tokenizer bpe:280 --out "$work/$name" \
        --max-steps "$steps" --learning-rate 2e-3 --lr-scheduler constant --eval-steps "$steps" --seed 1 \
        --threads "${THREADS:-0}" --quiet "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
    sed -n "s/.*\"step\": \([0-9]*\), \"loss\": \([0-9.e+-]*\).*/$name \1 \2/p" "$work/$name/metrics.jsonl" >>"$work/points"
}
run pre-norm --pre-norm --warmup-steps 0
run post-norm --no-pre-norm --warmup-steps 0
run post-norm-with-warm-up --no-pre-norm --warmup-steps "$((steps * 2 / 3))"

awk -v steps="$steps" '
    { k = $2 == 1 ? "first" : $2 > steps - 20 ? "last" : ""; if (k == "") next; if (!($1 in seen)) { seen[$1] = 1; name[++n] = $1 }
      sum[$1, k] += $3; count[$1, k]++ }
    END { printf "%-24s %10s %22s\n", "norms", "first loss", "mean of the last 20"
          for (i = 1; i <= n; i++) printf "%-24s %10.3f %22.3f\n", name[i], sum[name[i], "first"],
              sum[name[i], "last"] / count[name[i], "last"] }' "$work/points"
awk -v title="Reversing strings: 6 layers, learning rate 2e-3" -v xlabel=step -v ylabel="training loss" \
    -f bench/plot.awk "$work/points" >"$out"
echo "curves: $out"
