#!/bin/sh
# llama.sh - a tiny Llama: training, going on bit for bit, saving and opening, generation with the cache, fine-tuning with each
# head; and GPT-2 with a head of its own.
# shellcheck disable=SC2317 # check evaluates what it is given
. "$(dirname "$0")/lib/common.sh"
. "$(dirname "$0")/lib/family.sh"
own_folder
cat "$BANYAN_SOURCE"/src/graph/[a-d]*.c >"$tmp/text"

# train OUT STEPS OPTIONS...
train() {
    out=$1 steps=$2
    shift 2
    run train --data "$tmp/text" --out "$tmp/$out" --layers 2 --heads 4 --width 32 --context 32 --batch-size 8 \
        --max-steps "$steps" --eval-steps 6 --save-steps 6 --warmup-steps 3 --lr-scheduler constant --threads 1 --quiet "$@"
}

train alone 24 --tokenizer byte --model llama
check "a Llama trains" less "$(loss alone 24)" "$(loss alone 1)"
train again 12 --tokenizer byte --model llama
train again 24 --tokenizer byte --model llama
check "a run that goes on ends with the same bytes" same alone again
check "its configuration names the rotary positions" has alone rope_theta
check "and the key/value heads" has alone '"num_key_value_heads": 2'

train one 6 --tokenizer byte --model llama --kv-heads 1
check "one key/value head" has one '"num_key_value_heads": 1'
train bad 6 --tokenizer byte --model gpt2 --kv-heads 1
check "GPT-2 has none to share" fails 1 "key/value heads"

check "two texts together are what they are alone" batched alone static "return by" --max-new-tokens 20
check "it writes" works '"finish_reason":"length"'

run convert "$tmp/alone/last" "$tmp/copy" --dtype bf16
run eval "$tmp/copy" --data "$tmp/text" --threads 1
check "a bf16 copy is evaluated" works loss

# ---- heads -------------------------------------------------------------------------------------------------------------------
labelled_data
check "classification" learns alone LlamaForSequenceClassification labels.tsv classify '"accuracy":1'
check "tags" learns alone LlamaForTokenClassification tags.conll tag '"f1":1'
train words 2 --model llama --tokenizer wordpiece:200 # a byte tokenizer has no pairs of texts
check "answers" learns words LlamaForQuestionAnswering squad.json answer f1
check "the body for answers has the reference's name" grep -q transformer.layers.0.self_attn.q_proj "$tmp/words-answer/model.safetensors"

# ---- GPT-2 with a head of its own ------------------------------------------------------------------------------------------
train tied 6 --tokenizer byte --model gpt2
cp -r "$tmp/tied/last/." "$tmp/untied"
sed -i 's/"tie_word_embeddings": *true/"tie_word_embeddings": false/' "$tmp/untied/config.json"
run generate "$tmp/untied" "a" --max-new-tokens 2 --threads 1
check "a head that is not tied must be in the file" fails 1 lm_head.weight

exit $failed
