#!/bin/sh
# gptj.sh - a tiny GPT-J: training, resuming bit for bit, generation with the cache, fine-tuning with a head.
# shellcheck disable=SC2317 # check evaluates what it is given
. "$(dirname "$0")/lib/common.sh"
. "$(dirname "$0")/lib/family.sh"
own_folder
cat "$BANYAN_SOURCE"/src/graph/[a-d]*.c >"$tmp/text"

# train OUT STEPS
train() {
    run train --model gptj --tokenizer byte --data "$tmp/text" --out "$tmp/$1" --layers 2 --heads 4 --width 32 --context 32 \
        --batch-size 8 --max-steps "$2" --eval-steps 6 --save-steps 6 --warmup-steps 3 --lr-scheduler constant --threads 1 --quiet
}

train alone 24
check "a GPT-J trains" less "$(loss alone 24)" "$(loss alone 1)"
train again 12
train again 24
check "a resumed run ends with the same bytes" same alone again
check "a quarter of each head turns" grep -q '"rotary_dim": 2' "$tmp/alone/last/config.json"

check "a batch generates what its rows generate alone" batched alone static "return by" --max-new-tokens 20
check "it generates" works '"finish_reason":"length"'

labelled_data
check "classification" learns alone GPTJForSequenceClassification labels.tsv classify '"accuracy":1'
check "its class has the reference's name" grep -q GPTJForSequenceClassification "$tmp/alone-classify/config.json"

cp -r "$tmp/alone/last/." "$tmp/bad"
sed -i 's/"rotary_dim": *2/"rotary_dim": 10/' "$tmp/bad/config.json"
run generate "$tmp/bad" "a" --max-new-tokens 2 --threads 1
check "more elements than a head has cannot turn" fails 1 rotary_dim

exit $failed
