#!/bin/sh
# llama.sh - a tiny Llama: training, going on bit for bit, saving and opening, generation with the cache, fine-tuning with each
# head; and GPT-2 with a head of its own.
# shellcheck disable=SC2317 # check evaluates what it is given
. "$(dirname "$0")/lib/common.sh"
own_folder
cat "$BANYAN_SOURCE"/src/graph/[a-d]*.c >"$tmp/text"

# train OUT STEPS OPTIONS...
train() {
    out=$1 steps=$2
    shift 2
    run train --data "$tmp/text" --out "$tmp/$out" --layers 2 --heads 4 --width 32 --context 32 --batch-size 8 \
        --max-steps "$steps" --eval-steps 6 --save-steps 6 --warmup-steps 3 --lr-scheduler constant --threads 1 --quiet "$@"
}

same() { # A B: the runs ended alike
    for file in model.safetensors optimizer.safetensors trainer_state.json config.json; do
        cmp "$tmp/$1/last/$file" "$tmp/$2/last/$file" || return 1
    done
}

less() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a != "" && b != "" && a < b) }'; }
loss() { sed -n "$2s/.*\"loss\": \\([0-9.]*\\).*/\\1/p" "$tmp/$1/metrics.jsonl"; }

train alone 24 --tokenizer byte --model llama
check "a Llama trains" less "$(loss alone 24)" "$(loss alone 1)"
train again 12 --tokenizer byte --model llama
train again 24 --tokenizer byte --model llama
check "a run that goes on ends with the same bytes" same alone again
has() { grep -q "$2" "$tmp/$1/last/config.json"; }
check "its configuration names the rotary positions" has alone rope_theta
check "and the key/value heads" has alone '"num_key_value_heads": 2'

train one 6 --tokenizer byte --model llama --kv-heads 1
check "one key/value head" has one '"num_key_value_heads": 1'
train bad 6 --tokenizer byte --model gpt2 --kv-heads 1
check "GPT-2 has none to share" fails 1 "key/value heads"

# ids N OPTIONS...: the tokens of the Nth text.
ids() { sed -n "$1s/.*\"ids\":\\(\\[[^]]*\\]\\).*/\\1/p" "$tmp/out"; }
set -- --greedy --max-new-tokens 20 --threads 1 --json
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
    printf 'Anna B-PER\nran O\n\nthe O\ndog O\n\n' >>"$tmp/tags.conll"
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
model=alone
check "classification" learns LlamaForSequenceClassification "$tmp/labels.tsv" classify '"accuracy":1' "$@"
check "tags" learns LlamaForTokenClassification "$tmp/tags.conll" tag '"f1":1' "$@"
train words 2 --model llama --tokenizer wordpiece:200 # a byte tokenizer has no pairs of texts
model=words
check "answers" learns LlamaForQuestionAnswering "$tmp/squad.json" answer f1 "$@"
check "the body for answers has the reference's name" grep -q transformer.layers.0.self_attn.q_proj "$tmp/answer/model.safetensors"

# ---- GPT-2 with a head of its own ------------------------------------------------------------------------------------------
train tied 6 --tokenizer byte --model gpt2
cp -r "$tmp/tied/last/." "$tmp/untied"
sed -i 's/"tie_word_embeddings": *true/"tie_word_embeddings": false/' "$tmp/untied/config.json"
run generate "$tmp/untied" "a" --max-new-tokens 2 --threads 1
check "a head that is not tied must be in the file" fails 1 lm_head.weight

exit $failed
