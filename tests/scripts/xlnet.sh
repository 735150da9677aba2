#!/bin/sh
# xlnet.sh - a tiny XLNet: rows of permuted text, training with a memory, going on bit for bit, saving and opening, fine-tuning
# with each head.
# shellcheck disable=SC2317 # check evaluates what it is given
. "$(dirname "$0")/lib/common.sh"
. "$(dirname "$0")/lib/family.sh"
own_folder
cat "$BANYAN_SOURCE"/docs/*.md >"$tmp/text"

# train OUT STEPS OPTIONS...
train() {
    out=$1 steps=$2
    shift 2
    run train --model xlnet --data "$tmp/text" --tokenizer unigram:300 --out "$tmp/$out" --layers 2 --heads 4 --width 32 \
        --context 32 --batch-size 4 --max-steps "$steps" --eval-steps 6 --save-steps 6 --warmup-steps 3 --lr-scheduler constant \
        --learning-rate 3e-3 --threads 1 --quiet "$@"
}

train shown 1 --show-batch 4
check "a row ends with two separators and <cls>" works '<cls>'
check "targets have their place in the order" works '\[1:'
check "half of the rows are read from the end" works 'read from the end'

train alone 24
check "an XLNet trains" less "$(loss alone 24)" "$(loss alone 1)"
check "its configuration has a memory" has alone '"mem_len": 24'
check "of which the first half of a row is new" has alone '"reuse_len": 16'
train again 12
train again 24
check "a run that goes on ends with the same bytes" same alone again
train twice 12 --accumulate 2
train thrice 6 --accumulate 2
train thrice 12 --accumulate 2
check "also with micro-batches" same twice thrice
train saving 24 --recompute
check "blocks that are computed again learn the same" [ "$(loss saving 24 | cut -c1-6)" = "$(loss alone 24 | cut -c1-6)" ]
train plain 6 --one-way --permuted-block 8 --mask-share 0.25
check "other settings" works
train shares 12 --reuse 10 --permuted-block 5
check "the part of a row that is reused" has shares '"reuse_len": 10'
train shares-parts 6 --reuse 10 --permuted-block 5
train shares-parts 12 --reuse 10 --permuted-block 5
check "goes on alike" same shares shares-parts
train shares 24
check "and is part of the run" [ "$rc" -eq 0 ]
train shares 24 --reuse 12
check "which does not go on with another" fails 1 'reuse'
train full 6 --reuse 29
check "it leaves room for the rest of the row" fails 1 '29 reused tokens leave no room'
run train --model bert --data "$tmp/text" --tokenizer wordpiece:300 --reuse 4 --out "$tmp/none" --quiet
check "other objectives reuse nothing" fails 1 'for the objective "plm"'
run train --model xlnet --data "$tmp/text" --out "$tmp/bytes" --tokenizer byte --max-steps 1 --quiet
check "a tokenizer without <cls> is refused" fails 1 "requires"

check "two texts together are what they are alone" batched alone "The model" "a row of the" --max-new-tokens 12
check "it writes" works '"finish_reason":"length"'
run generate "$tmp/alone/last" --prompt "The model" --beams 3 --max-new-tokens 6 --threads 1
check "beams" works
run eval "$tmp/alone/last" --data "$tmp/text" --threads 1
check "a text has no probability from left to right" fails 1 "any order"

run convert "$tmp/alone/last" "$tmp/copy" --dtype bf16
run inspect "$tmp/copy"
check "a copy opens" works XLNetLMHeadModel

# ---- heads -------------------------------------------------------------------------------------------------------------------
printf 'text\tlabel\n' >"$tmp/labels.tsv"
i=0
while [ $i -lt 40 ]; do
    printf 'a good film\tgood\na bad book\tbad\n' >>"$tmp/labels.tsv"
    printf 'Anna B-PER\nran O\n\nthe O\ndog O\nwas O\n\n' >>"$tmp/tags.conll"
    printf '{"text": "I am", "choices": ["hot", "a dog of"], "label": 1}\n{"text": "You are", "choices": ["a dog", "hot"], "label": 0}\n' >>"$tmp/choices.jsonl"
    i=$((i + 1))
done
cat >"$tmp/squad.json" <<'END'
{"version": "1.1", "data": [{"title": "t", "paragraphs": [{"context": "Anna ran home.", "qas": [{"id": "1", "question": "Who?",
 "answers": [{"text": "Anna", "answer_start": 0}]}, {"id": "2", "question": "Where did she go then?",
 "answers": [{"text": "home", "answer_start": 9}]}]}]}]}
END
check "classification" learns alone XLNetForSequenceClassification labels.tsv classify '"accuracy":1'
check "tags" learns alone XLNetForTokenClassification tags.conll tag '"f1":1'
check "choices" learns alone XLNetForMultipleChoice choices.jsonl choice '"accuracy":1'
check "answers" learns alone XLNetForQuestionAnswering squad.json answer '"f1":100' --epochs 60
run classify "$tmp/alone-classify" "a good film" --threads 1
check "a text is classified" works good
run tag "$tmp/alone-tag" "Anna ran" --threads 1
check "a text is tagged" works PER
run answer "$tmp/alone-answer" "Who?" "Anna ran home." --threads 1
check "a question is answered" works Anna
run finetune "$tmp/alone/last" --task lm --data "$tmp/labels.tsv" --out "$tmp/lm" --epochs 1
check "texts are not learned from left to right" fails 1 "left-to-right"

exit $failed
