#!/bin/bash
# Runs begun under other defaults: the same command in the same folder goes on with the values in run.json.
# shellcheck disable=SC2016,SC2317 # check evaluates what it is given
. "$(dirname "$0")/lib/common.sh"
own_folder
cd "$tmp" || exit 1
head -c 20000 "$BANYAN_SOURCE"/src/graph/ops.c >text
for i in $(seq 60); do printf 'text %d of %d\tder Text %d von %d\n' "$i" $((i % 7)) "$i" $((i % 7)); done >pairs.tsv
for i in $(seq 40); do printf '%s\ttext number %d about %s\n' $((i % 2)) "$i" $((i * 7 % 5)); done >table.tsv
banyan() { "$BANYAN" "$@" --threads 1 --quiet >log 2>&1; }
says() { grep -q -e "$1" log; }
same() { # A B: the runs ended alike
    cmp "$1/last/model.safetensors" "$2/last/model.safetensors" &&
        cmp "$1/last/trainer_state.json" "$2/last/trainer_state.json"
}
# older OUT [KEY...]: cut a run back to checkpoint 4 and its run.json to that of a version which recorded no options, no
# checksum and none of the keys.
older() {
    local out=$1 key
    shift
    tr -d '\n' <"$out/run.json" | sed 's/"options":[[:space:]]*{[^{}]*},*//' >record
    for key in checksum directory recipe eval_batches "$@"; do
        sed -E -i "s/\"$key\":[[:space:]]*(\"[^\"]*\"|[-+.0-9e]+),?//" record
    done
    sed -E 's/,[[:space:]]*\}/}/' record >"$out/run.json"
    rm -rf "$out"/last "$out"/best
    mv "$out/checkpoint-000004" kept && rm -r "$out"/checkpoint-* && mv kept "$out/checkpoint-000004"
}
keep="--save-steps 4 --save-total-limit 9"

# ---- translation: norms, smoothing, dropout, rate, warm-up, decay, batches, length --------------------------------------
then="--no-pre-norm --label-smoothing 0 --dropout 0.1 --learning-rate 1e-3 --warmup-steps 3 --weight-decay 0.1
    --adam-beta2 0.99 --batch-tokens 300 --max-steps 8 --eval-batches 0 --layers 1 --heads 2 --width 16 --inner 32 --context 24"
translate() { banyan train --model transformer --data pairs.tsv --tokenizer bpe:280 "$@"; }
# shellcheck disable=SC2086 # several options
translate $then $keep --out pairs
cp -a pairs pairs.whole
older pairs pre_norm label_smoothing
check "no option is recorded" eval '! grep -q "options\|pre_norm\|label_smoothing\|checksum" pairs/run.json'
check "translation goes on" eval 'translate --out pairs && same pairs pairs.whole'
check "an option that is given is compared" eval '! translate --out pairs --pre-norm && says "started with pre_norm 0"'
check "a rate that is given too" eval '! translate --out pairs --lr 2e-3 && says "started with learning_rate 0.001"'
check "a preset too" eval '! translate --out pairs --preset base && says "started with layers 1"'
check "a recipe too" eval '! translate --out pairs --recipe multi30k && says "started with layers 1"'
check "a run is made longer" eval 'translate --out pairs --max-steps 10 && [ "$(readlink pairs/last)" = checkpoint-000010 ]'
check "values that nobody gave are no options" eval '! tr -d "\n" <pairs/run.json | sed "s/.*\"options\"//" | grep -q "\"pre-norm\"\|\"layers\""'
check "by its folder alone, now" eval 'banyan train --resume pairs && says "nothing left"'

# ---- a language model: shape, batch, optimiser, schedule -----------------------------------------------------------------
lm() { banyan train --data text --tokenizer byte --layers 1 --heads 2 "$@"; }
# shellcheck disable=SC2086 # several options
lm --width 24 --context 12 -b 3 --optimizer sgd --momentum 0.5 --lr-scheduler linear --lr 0.1 --max-steps 8 --eval-batches 0 $keep --out lm
cp -a lm lm.whole
older lm
check "a language model goes on" eval 'lm --out lm && same lm lm.whole'
check "epochs that are given count" eval '! lm --out lm --epochs 0.001 && says "has 8 steps"'
rm -r lm/checkpoint-* lm/last
check "without a checkpoint it starts afresh" eval 'lm --width 8 --max-steps 2 --out lm && grep -q "\"width\": *8" lm/run.json'

# ---- fine-tuning: batch and epochs ---------------------------------------------------------------------------------------
banyan train --model bert --data text --tokenizer bpe:300 --layers 1 --heads 2 --width 16 --context 32 -b 2 --max-steps 1 --out base
tune() { banyan finetune base/last --data table.tsv --label 1 --text 2 "$@"; }
# shellcheck disable=SC2086 # several options
tune --batch-size 16 --epochs 3 --lr 1e-3 --warmup-ratio 0.5 --lr-scheduler constant $keep --out tuned
cp -a tuned tuned.whole
older tuned first_steps
check "fine-tuning goes on" eval 'tune --out tuned && same tuned tuned.whole'
check "its options are compared" eval '! tune --out tuned -b 8 && says "started with batch 16"'
