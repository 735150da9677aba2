#!/bin/sh
# The programs of examples/, run as a reader would run them.
. "$(dirname "$0")/lib/common.sh"
own_folder
examples="$BANYAN_BUILD/examples"

check "a new architecture learns its sentence" "$examples/architecture"
check "softmax saturates without the scale" "$examples/saturation"
mv "$tmp/why" "$tmp/table"
# shellcheck disable=SC2016 # the fields are awk's
check "its gradient vanishes" awk '$1 == 1024 { found = $5 < 0.01 * $3 && $4 > 0.8 && $2 < 0.3 } END { exit !found }' "$tmp/table"

# An n-gram model of the documentation.
counts() { (cd "$tmp" && "$examples/ngram" "$BANYAN_SOURCE/docs/ENGINE.md" "the memory of") >"$tmp/out" 2>"$tmp/err" && grep -q '^perplexity' "$tmp/out"; }
check "probabilities of an n-gram model from C" counts
check "the sum of its words is printed word by word" [ "$(grep -c ' 0\.' "$tmp/out")" -ge 4 ]

# A small model to work with, trained on the sources of this very project.
cat "$BANYAN_SOURCE"/src/graph/*.c >"$tmp/text"
"$BANYAN" train --data "$tmp/text" --tokenizer byte --out "$tmp/run" --layers 2 --heads 2 --width 32 --context 32 \
    --batch-size 8 --max-steps 30 --warmup-steps 5 --quiet >"$tmp/log" 2>&1 || {
    echo "not ok a model to start from"
    cat "$tmp/log" >&2
    exit 1
}
check "generate from C" "$examples/generate" "$tmp/run/best" "static by" 40
check "fine-tune from C" "$examples/finetune" "$tmp/run/best" "$tmp/text" "$tmp/tuned" 200
# Batches differ, so several of them are compared: the first fifty with the last fifty.
mv "$tmp/why" "$tmp/steps"
check "fine-tuning lowers the loss" awk '/^step / { if ($2 <= 50) first += $4; if ($2 > 150) last += $4 } END { exit !(last > 0 && last < first) }' "$tmp/steps"
check "the tuned model opens again" "$BANYAN" inspect "$tmp/tuned"

# Instruction tuning, then preferences.
i=0
while [ $i -lt 20 ]; do
    printf '{"prompt": "say %d ", "completion": "it is %d"}\n' $i $i >>"$tmp/answers.jsonl"
    printf '{"prompt": "say %d ", "chosen": "it is %d", "rejected": "no"}\n' $i $i >>"$tmp/pairs.jsonl"
    i=$((i + 1))
done
check "align from C" "$examples/align" "$tmp/run/best" "$tmp/answers.jsonl" "$tmp/pairs.jsonl" "$tmp/aligned"
mv "$tmp/why" "$tmp/steps"
check "preferences are measured" grep -q '^dpo step 6 of 6  loss .*  rewards/accuracies 1' "$tmp/steps"
check "the aligned adapter opens" "$BANYAN" generate "$tmp/aligned/dpo" --prompt "say 3 " -n 4 --threads 1

# Rewards from a C function: the first ten steps are compared with the last ten.
printf 'static\nreturn\nby_status\nconst\n' >"$tmp/prompts"
check "learn from rewards from C" "$examples/grpo" "$tmp/run/best" "$tmp/prompts" "$tmp/rewarded" 40
mv "$tmp/why" "$tmp/steps"
check "rewards rise" awk '/^step / { if ($2 <= 10) first += $4; if ($2 > 30) last += $4 } END { exit !(last > 1.5 * first) }' "$tmp/steps"

# A model with a memory reads line after line; each is rated by what came before.
"$BANYAN" train --model transfo-xl --data "$tmp/text" --tokenizer byte --out "$tmp/xl" --layers 2 --heads 2 --width 32 \
    --context 32 --memory 32 --batch-size 8 --max-steps 30 --warmup-steps 5 --quiet >"$tmp/log" 2>&1 || cat "$tmp/log" >&2
head -n 20 "$tmp/text" >"$tmp/lines"
rates() {
    "$examples/stream" "$tmp/xl/best" <"$tmp/lines" >"$tmp/out" 2>"$tmp/err" && [ "$(wc -l <"$tmp/out")" -eq 20 ]
}
check "lines read with a memory from C" rates
refuses_other() {
    ! "$examples/stream" "$tmp/run/best" <"$tmp/lines" >"$tmp/out" 2>"$tmp/err" && grep -q "carries no state" "$tmp/err"
}
check "a model without a memory is refused" refuses_other

# Predictions from C, for each kind of head.
mkdir "$tmp/words"
printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' '[MASK]' a good bad film book anna lives in berlin who >"$tmp/words/vocab.txt"
printf '{"tokenizer_class": "BertTokenizer", "do_lower_case": true}\n' >"$tmp/words/tokenizer_config.json"
i=0
while [ $i -lt 40 ]; do
    echo "a good film anna lives in berlin a bad book who lives in berlin"
    i=$((i + 1))
done >"$tmp/words.txt"
printf 'a good film\tpos\na bad book\tneg\n' >"$tmp/labels.tsv"
printf 'anna B-PER\nlives O\nin O\nberlin B-LOC\n\n' >"$tmp/names.conll"
printf '{"question": "who lives in berlin", "context": "anna lives in berlin", "answers": {"text": ["anna"], "answer_start": [0]}}\n' \
    >"$tmp/questions.jsonl"
set -- --threads 1 --quiet
{
    "$BANYAN" train --model bert --objective mlm --data "$tmp/words.txt" --tokenizer "$tmp/words" --out "$tmp/bert" --layers 2 \
        --heads 2 --width 32 --inner 64 --context 24 --batch-size 4 --max-steps 2 "$@" &&
        set -- "$@" --learning-rate 5e-3 --dropout 0 --max-steps 30 &&
        "$BANYAN" finetune "$tmp/bert" --data "$tmp/labels.tsv" --out "$tmp/classify" "$@" &&
        "$BANYAN" finetune "$tmp/bert" --task tag --data "$tmp/names.conll" --out "$tmp/tag" "$@" &&
        "$BANYAN" finetune "$tmp/bert" --task qa --data "$tmp/questions.jsonl" --out "$tmp/answer" "$@"
} >"$tmp/log" 2>&1 || {
    echo "not ok models to predict with"
    cat "$tmp/log" >&2
    exit 1
}
check "distill from C" "$examples/distill" "$tmp/classify" "$tmp/labels.tsv" "$tmp/labels.tsv" "$tmp/student"
# predicts NAME MODEL PATTERN TEXT...: the example prints a line that matches.
predicts() {
    local name=$1 model=$2 pattern=$3
    shift 3
    "$examples/predict" "$model" "$@" >"$tmp/out" 2>"$tmp/err"
    check "$name" grep -q "$pattern" "$tmp/out"
}
predicts "masked words from C" "$tmp/bert/best" '^  [^ ]* 0\.' 'anna ___ in berlin'
predicts "labels from C" "$tmp/classify" '^  pos 0\.[6-9]' 'a good film'
predicts "names from C" "$tmp/tag" '^  LOC 0\.[0-9]* berlin$' 'anna lives in berlin'
predicts "answers from C" "$tmp/answer" '^anna$' 'who lives in berlin' 'anna lives in berlin'
"$examples/predict" "$tmp/run/best" 'a text' >"$tmp/out" 2>"$tmp/err"
check "a model that predicts nothing of the kind" grep -q 'has a head for "lm"' "$tmp/err"
