#!/bin/bash
# roots.sh - the same text modelled by the family tree from its roots: bigram, trigram and 5-gram (interpolated modified Kneser-Ney), RNN,
# LSTM, GRU and GPT-2. Neural models train for equal time on one thread, as processor time, so that other work on the machine does not
# count; n-grams take what they take. All read bytes, so bits per byte compare. Prints a Markdown table, draws held-out bits per byte over time.
#   bench/roots.sh TEXT [OUT.svg]            the last twentieth of TEXT is held out
# Environment: BANYAN (build/banyan), TIME (120: seconds of processor time for each neural model), ORDERS (2 3 5), FAMILIES (rnn lstm gru gpt2),
# WIDTH (192, of recurrent models; one layer), GPT_WIDTH (128; three layers), TRIAL (20: steps of the shorter of two runs
# that measure a step; the other takes an eighth of TIME).
set -eu
cd "$(dirname "$0")/.."
[ $# -ge 1 ] && [ -r "$1" ] || { echo "usage: bench/roots.sh TEXT [OUT.svg]" >&2; exit 2; }
text=$1 out=${2:-roots.svg} banyan=${BANYAN:-build/banyan} time=${TIME:-120} trial=${TRIAL:-20}
work=$(mktemp -d "${TMPDIR:-/tmp}/banyan-roots.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

bytes=$(wc -c <"$text")
held=$((bytes / 20))
head -c $((bytes - held)) "$text" >"$work/train.txt"
tail -c "$held" "$text" >"$work/held.txt"

field() { sed -n 's/.*"'"$1"'": *\([-0-9.e+]*\).*/\1/p' "$2" | head -1; }
# timed COMMAND...: its processor time in $used, its output in $work/out
timed() {
    local TIMEFORMAT='%U %S' status=0
    { time "$@" >"$work/out" 2>"$work/err"; } 2>"$work/time" || status=$?
    [ $status -eq 0 ] || { cat "$work/err" >&2; exit 1; }
    used=$(awk '{ printf "%.2f", $1 + $2 }' "$work/time")
}
bits() { # MODEL OPTIONS...: bits per byte of the held-out text
    "$banyan" eval "$@" --data "$work/held.txt" --threads 1 --quiet --json >"$work/eval"
    field bits_per_byte "$work/eval" | awk '{ printf "%.3f", $1 }'
}
rows_of() { case $1 in gpt2) echo 8 ;; *) echo 16 ;; esac; } # of 64 bytes, in a step
train() { # FAMILY STEPS OUT
    local shape="--width ${WIDTH:-192} --layers 1"
    [ "$1" = gpt2 ] && shape="--width ${GPT_WIDTH:-128} --layers 3 --heads 4"
    # shellcheck disable=SC2086 # several options
    timed "$banyan" train --model "$1" $shape --context 64 --batch-size "$(rows_of "$1")" --tokenizer byte --data "$work/train.txt" --eval-data "$work/held.txt" --max-steps "$2" \
        --eval-steps $((($2 + 11) / 12)) --eval-batches 8 --save-steps "$2" --threads 1 --device cpu --out "$3" --json --quiet
}
name_of() { case $1 in 2) echo bigram ;; 3) echo trigram ;; [0-9]*) echo "$1-gram" ;; gpt2) echo GPT-2 ;; *) echo "$1" | tr a-z A-Z ;; esac; }

echo "$((bytes - held)) bytes of training text, $held held out; $time seconds of processor time for each neural model"
echo
echo "| model | parameters or n-grams | steps | bytes read | seconds | bits per byte |"
echo "|---|---|---|---|---|---|"
for order in ${ORDERS:-2 3 5}; do
    timed "$banyan" train --model ngram --order "$order" --tokenizer byte --discount-fallback --data "$work/train.txt" --threads 1 --out "$work/$order" --json
    count=$(tr ',' '\n' <"$work/out" | awk -F : '/"ngrams":/ { n += $NF } END { print n }')
    score=$(bits "$work/$order")
    echo "| $(name_of "$order") | $count | | $((bytes - held)) | $used | $score |"
    printf '%s 0 %s\n%s %s %s\n' "$(name_of "$order")" "$score" "$(name_of "$order")" "$time" "$score" >>"$work/points"
done
for family in ${FAMILIES:-rnn lstm gru gpt2}; do
    train "$family" "$trial" "$work/a"
    short=$used
    longer=$(awk -v n="$trial" -v s="$time" -v a="$short" 'BEGIN { k = s / 8 / a; printf "%d", n * (k > 3 ? k : 3) }')
    train "$family" "$longer" "$work/b"
    steps=$(awk -v a="$short" -v b="$used" -v n="$((longer - trial))" -v all="$longer" -v s="$time" '
        BEGIN { d = (b - a) / n; if (d <= 0) d = b / all; printf "%d", s / d + 1 }')
    train "$family" "$steps" "$work/$family"
    echo "| $(name_of "$family") | $(field parameters "$work/out") | $steps | $((steps * 64 * $(rows_of "$family"))) | $used | $(
        if [ "$family" = gpt2 ]; then bits "$work/$family/last" --stride 32; else bits "$work/$family/last"; fi) |"
    awk -v name="$(name_of "$family")" -v steps="$steps" -v used="$used" -F '[:,}]' '/"eval_loss"/ {
        for (i = 1; i < NF; i++) { if ($i ~ /"step"/) step = $(i + 1); if ($i ~ /"eval_loss"/) loss = $(i + 1) }
        print name, step / steps * used, loss / log(2) }' "$work/$family/metrics.jsonl" >>"$work/points"
    rm -rf "$work/a" "$work/b"
done
awk -v title="The same text from bigram to GPT-2" -v xlabel="seconds of training, one thread" -v ylabel="held-out bits per byte" -f bench/plot.awk "$work/points" >"$out"
echo
echo "plot: $out"
