#!/bin/sh
# reformer.sh - a tiny Reformer: training at lengths that fill no chunk, going on bit for bit, rounds of hashing, generation by
# whole passes, saving and opening, fine-tuning with each head.
# shellcheck disable=SC2317 # check evaluates what it is given
. "$(dirname "$0")/lib/common.sh"
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

same() { # A B: the runs ended alike
    for file in model.safetensors optimizer.safetensors trainer_state.json config.json; do
        cmp "$tmp/$1/last/$file" "$tmp/$2/last/$file" || return 1
    done
}

less() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a != "" && b != "" && a < b) }'; }
loss() { sed -n "$2s/.*\"loss\": \\([0-9.]*\\).*/\\1/p" "$tmp/$1/metrics.jsonl"; }
has() { grep -q "$2" "$tmp/$1/last/config.json"; }

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
check "GPT-2 does not hash" fails 1 "does not hash"

value() { sed -n 's/.*"loss": *\([0-9.]*\).*/\1/p' "$tmp/out"; }
run eval "$tmp/alone/last" --data "$tmp/text" --threads 1 --json
one=$(value)
run eval "$tmp/alone/last" --data "$tmp/text" --threads 1 --json --hash-rounds 8
check "eval with more rounds is another number" [ "$one" != "$(value)" ] && [ -n "$one" ]

ids() { sed -n "$1s/.*\"ids\":\\(\\[[^]]*\\]\\).*/\\1/p" "$tmp/out"; }
set -- --greedy --max-new-tokens 40 --threads 1 --json
run generate "$tmp/alone/last" --prompt static "$@"
check "it writes" works '"finish_reason":"length"'
first=$(ids 1)
run generate "$tmp/alone/last" --prompt "return by" "$@"
second=$(ids 1)
printf 'static\nreturn by\n' >"$tmp/prompts"
run generate "$tmp/alone/last" -f "$tmp/prompts" --lines "$@"
check "two texts together are what they are alone" [ "$first $second" = "$(ids 1) $(ids 2)" ]

run convert "$tmp/alone/last" "$tmp/copy" --dtype bf16
run eval "$tmp/copy" --data "$tmp/text" --threads 1
check "a bf16 copy is evaluated" works loss

# ---- heads -------------------------------------------------------------------------------------------------------------------
set -- --batch-size 8 --threads 1 --quiet --learning-rate 3e-3 --json
printf 'text\tlabel\n' >"$tmp/labels.tsv"
i=0
while [ $i -lt 40 ]; do
    printf 'a good film\tgood\na bad book\tbad\n' >>"$tmp/labels.tsv"
    i=$((i + 1))
done
cat >"$tmp/squad.json" <<'END'
{"version": "1.1", "data": [{"title": "t", "paragraphs": [{"context": "Anna ran home.", "qas": [{"id": "1", "question": "Who?",
 "answers": [{"text": "Anna", "answer_start": 0}]}]}]}]}
END
learns() { # CLASS DATA TASK METRIC: fine-tuning with this head learns the data, and what it saves opens
    class=$1 data=$2 task=$3 metric=$4
    shift 4
    run finetune "$tmp/$model/last" --task "$task" --data "$data" --eval "$data" --out "$tmp/$task" --epochs 12 "$@"
    works "$metric" && grep -q "$class" "$tmp/$task/config.json" || return 1
    run eval "$tmp/$task" --data "$data" --threads 1 --json
    works "$metric"
}
train words 6 --context 64 --objective mlm --tokenizer wordpiece:200 # it has the tokens that start and mask texts
model=words
check "an encoder trains" has words ReformerForMaskedLM
check "classification" learns ReformerForSequenceClassification "$tmp/labels.tsv" classify '"accuracy":1' "$@"
check "answers" learns ReformerForQuestionAnswering "$tmp/squad.json" answer f1 "$@"

exit $failed
