#!/bin/sh
# multi30k_gru_gpu.sh - settings of a GRU translator with attention on Multi30k, English to German, compared on the validation set: one
# row for each, with steps, seconds, held-out loss and BLEU (beam 5). The test set is not read.
#   bench/multi30k_gru_gpu.sh [FOLDER]        with train.en, train.de, val.en, val.de (carry/multi30k)
# Environment: BANYAN (build/banyan), DEVICE (cuda), ONLY (names of settings, with spaces between them), DEADLINE (280: seconds after
# which no other setting is begun), QUICK (a number of steps, to see that everything runs), SETTINGS (a file of "name options" lines
# in place of those below).
set -u
cd "$(dirname "$0")/.." || exit 1
data=${1:-carry/multi30k} banyan=${BANYAN:-build/banyan} device=${DEVICE:-cuda} deadline=${DEADLINE:-280}
[ -r "$data/train.en" ] || { echo "multi30k_gru_gpu.sh: there is no $data/train.en" >&2; exit 2; }
work=$(mktemp -d "${TMPDIR:-/tmp}/banyan-multi30k.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# What all have, unless a line below says otherwise; the most interesting ones first.
common="--model rnn-seq2seq --preset small --cell gru --attention additive --tokenizer bpe:6000 --batch-tokens 2048 --dropout 0.3
    --learning-rate 1e-3 --warmup-steps 500 --label-smoothing 0.1 --epochs 12 --bf16"
settings() {
    cat <<LIST
base
none --attention none
drop-0.4 --dropout 0.4
drop-0.2 --dropout 0.2
lr-2e-3 --learning-rate 2e-3
general --attention general
none-0.4 --attention none --dropout 0.4
bpe-4000 --tokenizer bpe:4000
rows-1024 --batch-tokens 1024 --epochs 8
width-384 --width 384 --epochs 16
long-0.4 --dropout 0.4 --epochs 20
sampled --scheduled-sampling 0.25
bpe-10000 --tokenizer bpe:10000
none-0.2 --attention none --dropout 0.2
width-768 --width 768 --dropout 0.4
LIST
}
number() { sed -n "s/.*\"$1\": *\([-0-9.e+]*\).*/\1/p" "$2"; }

echo "| setting | options | parameters | steps | seconds | held-out loss | BLEU on val | of the averaged model |"
echo "|---|---|---|---|---|---|---|---|"
begin=$(date +%s)
if [ -n "${SETTINGS:-}" ]; then cat "$SETTINGS"; else settings; fi | while read -r name options; do
    case " ${ONLY:-$name} " in *" $name "*) ;; *) continue ;; esac
    [ $(($(date +%s) - begin)) -lt "$deadline" ] || { echo "multi30k_gru_gpu.sh: no time left for $name" >&2; continue; }
    # shellcheck disable=SC2086 # several options
    "$banyan" train $common --data "$data/train.en" "$data/train.de" --eval-data "$data/val.en" "$data/val.de" --average 3 \
        --device "$device" --out "$work/$name" --json --quiet $options ${QUICK:+--max-steps $QUICK --warmup-steps 2} >"$work/$name.json" </dev/null || continue
    for kind in best averaged; do
        "$banyan" translate "$work/$name/$kind" -f "$data/val.en" --beams 5 --device "$device" ${QUICK:+-n 4} >"$work/$name.$kind.de" 2>/dev/null </dev/null
        "$banyan" score --metric bleu "$work/$name.$kind.de" "$data/val.de" --json >"$work/$name.$kind.json" </dev/null
    done
    echo "| $name | $options | $(number parameters "$work/$name.json") | $(number steps "$work/$name.json") | $(number seconds "$work/$name.json") |" \
        "$(number best_eval_loss "$work/$name.json") | $(number score "$work/$name.best.json") | $(number score "$work/$name.averaged.json") |"
    rm -rf "${work:?}/$name"
done
