#!/bin/sh
# reformer.sh - a tiny Reformer: training at lengths that fill no chunk, going on bit for bit, rounds of hashing, generation by
# whole passes, saving and opening, fine-tuning with each head.
# shellcheck disable=SC2317 # check evaluates what it is given
. "$(dirname "$0")/lib/common.sh"
. "$(dirname "$0")/lib/family.sh"
own_folder
cat "$BANYAN_SOURCE"/src/graph/[a-d]*.c >"$tmp/text"

# train OUT STEPS OPTIONS...
train() {
    out=$1 steps=$2
    shift 2
    run train --model reformer --data "$tmp/text" --out "$tmp/$out" --layers 2 --heads 4 --width 32 --batch-size 4 \
        --max-steps "$steps" --eval-steps 6 --save-steps 6 --warmup-steps 3 --lr-scheduler constant --learning-rate 3e-3 --threads 1 \
        --quiet "$@"
}

train alone 24 --tokenizer byte --context 128 --dropout 0.1
check "a Reformer trains" less "$(loss alone 24)" "$(loss alone 1)"
train again 12 --tokenizer byte --context 128 --dropout 0.1
train again 24 --tokenizer byte --context 128 --dropout 0.1
check "a run that goes on ends with the same bytes: rotations and dropout follow from the step" same alone again
check "its configuration names the layers" has alone '"local"'
train odd 24 --tokenizer byte --context 101
check "a length that fills no chunk trains" less "$(loss odd 24)" "$(loss odd 1)"
train rounds 6 --tokenizer byte --context 128 --hash-rounds 4
check "rounds of hashing" has rounds '"num_hashes": 4'
run train --model gpt2 --tokenizer byte --data "$tmp/text" --out "$tmp/bad" --hash-rounds 2 --quiet
check "GPT-2 has no hashing" fails 1 "does not use LSH attention"

value() { sed -n 's/.*"loss": *\([0-9.]*\).*/\1/p' "$tmp/out"; }
run eval "$tmp/alone/last" --data "$tmp/text" --threads 1 --json
one=$(value)
run eval "$tmp/alone/last" --data "$tmp/text" --threads 1 --json --hash-rounds 8
check "eval with more rounds is another number" [ "$one" != "$(value)" ] && [ -n "$one" ]

check "two texts together are what they are alone" batched alone static "return by" --max-new-tokens 40
check "it writes" works '"finish_reason":"length"'

run convert "$tmp/alone/last" "$tmp/copy" --dtype bf16
run eval "$tmp/copy" --data "$tmp/text" --threads 1
check "a bf16 copy is evaluated" works loss

# ---- heads -------------------------------------------------------------------------------------------------------------------
labelled_data
train words 6 --context 64 --objective mlm --tokenizer wordpiece:200 # it has the tokens that start and mask texts
check "an encoder trains" has words ReformerForMaskedLM
check "classification" learns words ReformerForSequenceClassification labels.tsv classify '"accuracy":1'
check "answers" learns words ReformerForQuestionAnswering squad.json answer f1

exit $failed
