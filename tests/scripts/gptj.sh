#!/bin/sh
# gptj.sh - a tiny GPT-J: training, resuming bit for bit, generation with the cache, fine-tuning with a head.
# shellcheck disable=SC2317 # check evaluates what it is given
. "$(dirname "$0")/lib/common.sh"
own_folder
cat "$BANYAN_SOURCE"/src/graph/[a-d]*.c >"$tmp/text"

# train OUT STEPS
train() {
    run train --model gptj --tokenizer byte --data "$tmp/text" --out "$tmp/$1" --layers 2 --heads 4 --width 32 --context 32 \
        --batch-size 8 --max-steps "$2" --eval-steps 6 --save-steps 6 --warmup-steps 3 --lr-scheduler constant --threads 1 --quiet
}

same() { # A B: the runs ended alike
    for file in model.safetensors optimizer.safetensors trainer_state.json config.json; do
        cmp "$tmp/$1/last/$file" "$tmp/$2/last/$file" || return 1
    done
}

less() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a != "" && b != "" && a < b) }'; }
loss() { sed -n "$2s/.*\"loss\": \\([0-9.]*\\).*/\\1/p" "$tmp/$1/metrics.jsonl"; }

train alone 24
check "a GPT-J trains" less "$(loss alone 24)" "$(loss alone 1)"
train again 12
train again 24
check "a resumed run ends with the same bytes" same alone again
check "a quarter of each head turns" grep -q '"rotary_dim": 2' "$tmp/alone/last/config.json"

# ids N: the tokens of the Nth text
ids() { sed -n "$1s/.*\"ids\":\\(\\[[^]]*\\]\\).*/\\1/p" "$tmp/out"; }
set -- --greedy --max-new-tokens 20 --threads 1 --json
run generate "$tmp/alone/last" --prompt static "$@"
check "it generates" works '"finish_reason":"length"'
first=$(ids 1)
run generate "$tmp/alone/last" --prompt "return by" "$@"
second=$(ids 1)
printf 'static\nreturn by\n' >"$tmp/prompts"
run generate "$tmp/alone/last" -f "$tmp/prompts" --lines "$@"
check "a batch generates what its rows generate alone" [ "$first $second" = "$(ids 1) $(ids 2)" ]

printf 'text\tlabel\n' >"$tmp/labels.tsv"
i=0
while [ $i -lt 40 ]; do
    printf 'a good film\tgood\na bad book\tbad\n' >>"$tmp/labels.tsv"
    i=$((i + 1))
done
run finetune "$tmp/alone/last" --task classify --data "$tmp/labels.tsv" --eval "$tmp/labels.tsv" --out "$tmp/classify" --epochs 12 \
    --batch-size 8 --threads 1 --quiet --learning-rate 3e-3 --json
check "classification" works '"accuracy":1'
check "its class has the reference's name" grep -q GPTJForSequenceClassification "$tmp/classify/config.json"

cp -r "$tmp/alone/last/." "$tmp/bad"
sed -i 's/"rotary_dim": *2/"rotary_dim": 10/' "$tmp/bad/config.json"
run generate "$tmp/bad" "a" --max-new-tokens 2 --threads 1
check "more elements than a head has cannot turn" fails 1 rotary_dim

exit $failed
