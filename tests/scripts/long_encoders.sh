#!/bin/sh
# long_encoders.sh - Linformer, Longformer and BigBird: training, resuming bit for bit, fine-tuning with each head, texts of
# more than 512 tokens.
# shellcheck disable=SC2317 # check evaluates what it is given
. "$(dirname "$0")/lib/common.sh"
. "$(dirname "$0")/lib/family.sh"
own_folder
cat "$BANYAN_SOURCE"/src/graph/[a-d]*.c >"$tmp/text"

# train OUT STEPS OPTIONS...
train() {
    out=$1 steps=$2
    shift 2
    run train --data "$tmp/text" --out "$tmp/$out" --tokenizer wordpiece:200 --layers 2 --heads 2 --width 32 --batch-size 4 \
        --max-steps "$steps" --eval-steps 6 --save-steps 6 --warmup-steps 3 --lr-scheduler constant --learning-rate 3e-3 \
        --threads 1 --quiet "$@"
}

# What decides the label lies behind the first 512 tokens.
long=$(yes 'x = y + 1;' | head -n 120 | tr '\n' ' ')
good=$(yes 'if' | head -n 60 | tr '\n' ' ') bad=$(yes 'return' | head -n 60 | tr '\n' ' ')
printf 'text\tlabel\n' >"$tmp/labels.tsv"
i=0
while [ $i -lt 8 ]; do
    printf '%s\tgood\n%s\tbad\n' "$long$good" "$long$bad" >>"$tmp/labels.tsv"
    i=$((i + 1))
done
i=0
while [ $i -lt 40 ]; do
    printf 'Anna B-PER\nran O\n\nthe O\ndog O\n\n' >>"$tmp/tags.conll"
    printf '{"text": "x", "choices": ["a", "b"], "label": 0}\n{"text": "y", "choices": ["b", "a"], "label": 1}\n' >>"$tmp/choices.jsonl"
    i=$((i + 1))
done
cat >"$tmp/squad.json" <<END
{"version": "1.1", "data": [{"title": "t", "paragraphs": [{"context": "Anna ran home. $long", "qas": [{"id": "1", "question": "Who?",
 "answers": [{"text": "Anna", "answer_start": 0}]}]}]}]}
END

# family NAME CLASS OPTIONS...: what all of them do
family() {
    name=$1 class=$2
    shift 2
    train "$name" 12 --model "$name" --context 1024 --seq 256 "$@"
    check "$name: trains" less "$(loss "$name" 12)" "$(loss "$name" 1)"
    train "$name-again" 6 --model "$name" --context 1024 --seq 256 "$@"
    train "$name-again" 12 --model "$name" --context 1024 --seq 256 "$@"
    check "$name: a resumed run ends with the same bytes" same "$name" "$name-again"
    check "$name: classification of long texts" learns "$name" "${class}ForSequenceClassification" labels.tsv classify \
        '"accuracy":1' --dropout 0 --batch-size 4 --epochs 16 --max-length 1024
    run classify "$tmp/$name-classify" "$long$good" --threads 1
    check "$name: classify" works good
    check "$name: tags" learns "$name" "${class}ForTokenClassification" tags.conll tag '"f1":1' --dropout 0
    check "$name: answers" learns "$name" "${class}ForQuestionAnswering" squad.json answer '"f1":100' --dropout 0 --batch-size 1 --epochs 8 \
        --max-length 1024
    check "$name: choices" learns "$name" "${class}ForMultipleChoice" choices.jsonl choice '"accuracy":1' --dropout 0
    run embed "$tmp/$name/last" "$long$good" --threads 1 --max-length 1024
    check "$name: a vector of a long text" works '[0-9]'
    run convert "$tmp/$name/last" "$tmp/$name-bf16" --dtype bf16
    run eval "$tmp/$name-bf16" --data "$tmp/text" --threads 1 --seq 256
    check "$name: a bf16 copy is evaluated" works loss
}

family linformer Linformer
check "linformer: the configuration names the projection" grep -q '"projected_length": 256' "$tmp/linformer/last/config.json"
check "linformer: and who shares it" grep -q '"projection_sharing": "headwise"' "$tmp/linformer/last/config.json"
train longer 6 --model linformer --context 64 --seq 96
check "linformer: rows longer than n are refused" fails 1 "exceed the model.s context of 64"
run attention "$tmp/linformer/last" "if x" -o "$tmp/heads.svg"
check "linformer: attention over projected keys is not drawn" fails 1 "tokens by tokens"

family longformer Longformer
check "longformer: the configuration has a window for each layer" grep -A2 '"attention_window"' "$tmp/longformer/last/config.json"
check "longformer: the separator is the tokenizer's" grep -q '"sep_token_id": [1-9]' "$tmp/longformer/last/config.json"

family big_bird BigBird
check "big_bird: the configuration has the blocks" grep -q '"block_size": 16' "$tmp/big_bird/last/config.json"

exit $failed
