#!/bin/bash
# lengths.sh - what attention adds to a recurrent translator as sentences grow longer: the recipe multi30k-gru with and without attention,
# BLEU (beam 5) of the test sentences by the number of words of their source. Prints a Markdown table; draws it, and the alignment of a sentence.
#   bench/lengths.sh FOLDER [OUT.svg [ALIGNMENT.svg]]      FOLDER has train, val and test_2016_flickr, .en and .de
# Environment: BANYAN (build/banyan), OPTIONS (of training, after those of the recipe), RUNS (a folder that is kept, where a run that was
# stopped goes on), BUCKETS (8 11 14 17: the most words of all buckets but the last), THREADS (0: every core), SENTENCE (for the alignment).
set -eu
cd "$(dirname "$0")/.."
[ $# -ge 1 ] && [ -r "$1/train.en" ] || { echo "usage: bench/lengths.sh FOLDER [OUT.svg [ALIGNMENT.svg]]" >&2; exit 2; }
data=$1 out=${2:-lengths.svg} picture=${3:-alignment.svg} banyan=${BANYAN:-build/banyan}
sentence=${SENTENCE:-A man in a blue shirt is standing on a ladder cleaning a window.}
work=$(mktemp -d "${TMPDIR:-/tmp}/banyan-lengths.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
runs=${RUNS:-$work}
test=$data/test_2016_flickr

# bucket NAME FILE: the lines of FILE by the words of their source, in NAME.1, NAME.2, ...
bucket() {
    paste -d '\n' "$test.en" "$2" | awk -v limits="${BUCKETS:-8 11 14 17}" -v name="$work/$1" '
        BEGIN { n = split(limits, limit, " ") }
        NR % 2 { for (k = 1; k <= n && NF > limit[k]; k++); next }
        { print >(name "." k) }'
}
score() { "$banyan" score --metric bleu "$1" "$2" --json | sed -n 's/.*"score": *\([0-9.]*\).*/\1/p' | awk '{ printf "%.2f", $1 }'; }

for attention in additive none; do
    # shellcheck disable=SC2086 # several options
    "$banyan" train --recipe multi30k-gru --attention $attention ${OPTIONS:-} --data "$data/train.en" "$data/train.de" \
        --eval-data "$data/val.en" "$data/val.de" --threads "${THREADS:-0}" --out "$runs/$attention" --quiet >"$work/log" ||
        { echo "lengths.sh: training with attention $attention failed" >&2; exit 1; }
    "$banyan" translate "$runs/$attention/averaged" -f "$test.en" --beams 5 --threads "${THREADS:-0}" >"$work/$attention.de"
    bucket $attention "$work/$attention.de"
done
bucket source "$test.en"
bucket target "$test.de"

echo "| words of the source | sentences | attention | none | difference |"
echo "|---|---|---|---|---|"
last=0 k=1
for limit in ${BUCKETS:-8 11 14 17} more; do
    words="$((last + 1)) to $limit"
    [ "$limit" = more ] && words="more than $last"
    a=$(score "$work/additive.$k" "$work/target.$k") b=$(score "$work/none.$k" "$work/target.$k")
    echo "| $words | $(wc -l <"$work/target.$k") | $a | $b | $(awk -v a="$a" -v b="$b" 'BEGIN { printf "%.2f", a - b }') |"
    mean=$(awk '{ n += NF } END { print n / NR }' "$work/source.$k")
    printf 'attention %s %s\n' "$mean" "$a" >>"$work/points"
    printf 'none %s %s\n' "$mean" "$b" >>"$work/points"
    last=$limit k=$((k + 1))
done
echo "| all | $(wc -l <"$test.de") | $(score "$work/additive.de" "$test.de") | $(score "$work/none.de" "$test.de") | |"
awk -v title="A GRU translator with and without attention" -v xlabel="words of the source (mean of the bucket)" -v ylabel="BLEU" \
    -f bench/plot.awk "$work/points" >"$out"
"$banyan" attention "$runs/additive/averaged" "$sentence" -o "$picture" >/dev/null
echo
echo "plot: $out; alignment: $picture"
