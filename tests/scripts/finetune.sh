#!/bin/sh
# finetune.sh - `banyan finetune` and `eval` on every task with a tiny BERT made here: figures, predictions, going on, frozen
# layers, and files that are wrong.
# shellcheck disable=SC2016,SC2317 # check evaluates what it is given
. "$(dirname "$0")/lib/common.sh"
own_folder

field() {
    sed -n "s/.*\"$1\": *\\([-0-9.e+]*\\).*/\\1/p" "$tmp/out" | head -n 1
}

atleast() {
    awk -v a="$1" -v b="$2" 'BEGIN { exit !(a != "" && a >= b) }'
}

# near A B: up to what another order of sums makes of them.
near() {
    awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; if (d < 0) d = -d; exit !(a != "" && b != "" && d <= 1e-5) }'
}

# ---- a tiny BERT ---------------------------------------------------------------------------------------------------------
mkdir "$tmp/words"
{
    printf '[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n'
    printf '%s\n' good bad fine awful film book cat dog sat ran the a who what did anna berlin in lives
} >"$tmp/words/vocab.txt"
printf '{"tokenizer_class": "BertTokenizer", "do_lower_case": true}\n' >"$tmp/words/tokenizer_config.json"
i=0
while [ $i -lt 40 ]; do
    echo "the cat sat . the dog ran . anna lives in berlin . who did what . a good film . a bad book ."
    i=$((i + 1))
done >"$tmp/text.txt"
run train --model bert --objective mlm --data "$tmp/text.txt" --tokenizer "$tmp/words" --layers 2 --heads 2 --width 32 --inner 64 \
    --context 24 --batch-size 4 --max-steps 2 --threads 1 --out "$tmp/bert" --quiet
check a-tiny-bert works model
bert=$tmp/bert
set -- --threads 1 --quiet --json --learning-rate 5e-3 --batch-size 8 --dropout 0

# draws FOLDER TEXT...: its loss.svg has each text, once.
draws() {
    svg=$tmp/$1/loss.svg
    shift
    for text; do
        [ "$(grep -cF ">$text<" "$svg")" -eq 1 ] || return 1
    done
}

# ---- classify ------------------------------------------------------------------------------------------------------------
i=0
while [ $i -lt 24 ]; do
    printf 'a good film\tpos\nthe fine book\tpos\na bad film\tneg\nthe awful book\tneg\n'
    i=$((i + 1))
done >"$tmp/train.tsv"
printf 'sentence\tlabel\nthe good book\tpos\nthe bad book\tneg\na fine film\tpos\na awful film\tneg\n' >"$tmp/dev.tsv"
run finetune "$bert" --data "$tmp/train.tsv" --eval "$tmp/dev.tsv" --out "$tmp/c" --epochs 3 --predictions "$tmp/c.jsonl" "$@"
check classify works '"accuracy":1'
check classify-keeps-labels grep -q '"pos"' "$tmp/c/config.json"
check classify-writes-a-model [ -s "$tmp/c/model.safetensors" ]
check classify-writes-a-tokenizer [ -s "$tmp/c/tokenizer.json" ]
check classify-logs grep -q '"eval_accuracy": 1' "$tmp/c/metrics.jsonl"
check classify-draws draws c 'step' 'loss (nats per example)' 'training loss' 'held-out loss' 'accuracy (0 to 1)' 'held-out accuracy'
check classify-draws-its-title grep -q '<text class="title".*>BERT.*, .* M parameters: text classification</text>' "$tmp/c/loss.svg"
check classify-predicts grep -q '{"line": 3, "label": "neg", "score": .*, "actual": "neg"}' "$tmp/c.jsonl"
check classify-predicts-each [ "$(wc -l <"$tmp/c.jsonl")" -eq 4 ]
run finetune "$bert" --data "$tmp/train.tsv" --eval "$tmp/dev.tsv" --out "$tmp/shown" --max-steps 6 --eval-steps 3 --threads 1 --curve
check curve-on-the-terminal grep -q '^ *accuracy (0 to 1)   ● held-out accuracy' "$tmp/err"
run eval "$tmp/c" --data "$tmp/dev.tsv" --threads 1 --json
check eval-classify works '"accuracy":1.*"matthews":1'
run eval "$tmp/c" --data "$tmp/dev.tsv" --threads 1
check eval-classify-for-people works '^accuracy 1.0000'
run eval "$tmp/c" --data "$tmp/dev.tsv" --task tag --threads 1
check eval-another-task fails 1 'not "tag"'
run finetune "$bert" --data "$tmp/train.tsv" --eval "$tmp/dev.tsv" --out "$tmp/c" --epochs 3 "$@"
check classify-again works '"resumed_from":36'
run finetune "$bert" --data "$tmp/train.tsv" --eval "$tmp/dev.tsv" --out "$tmp/c" --epochs 3 "$@" --seed 5
check classify-otherwise fails 1 'seed'
run finetune "$tmp/c" --data "$tmp/train.tsv" --eval "$tmp/dev.tsv" --out "$tmp/c2" --max-steps 1 --threads 1 --quiet --json --lr 1e-9
check a-head-is-kept works '"accuracy":1'

# ---- eval knows the columns of a run -------------------------------------------------------------------------------------
{
    printf 'id\tstars\treview\n'
    sed 's/\(.*\)\t\(.*\)/7\t\2\t\1/' "$tmp/train.tsv"
} >"$tmp/stars.tsv"
run finetune "$bert" --data "$tmp/stars.tsv" --text review --label stars --out "$tmp/stars" --epochs 3 "$@"
check columns works
run eval "$tmp/stars" --data "$tmp/stars.tsv" --threads 1 --json
check eval-recalls-columns works '"accuracy":1'
run eval "$tmp/stars" --data "$tmp/dev.tsv" --text sentence --label label --threads 1 --json
check eval-columns-given-win works '"accuracy":1'

# ---- stop and go on, bit for bit -----------------------------------------------------------------------------------------
run finetune "$bert" --data "$tmp/train.tsv" --out "$tmp/whole" --epochs 2 "$@" --dropout 0.1
# a run that is killed goes on from its last checkpoint
"$BANYAN" finetune "$bert" --data "$tmp/train.tsv" --out "$tmp/killed" --epochs 2 "$@" --dropout 0.1 --save-steps 3 >/dev/null 2>&1 &
pid=$!
n=0
while [ ! -e "$tmp/killed/last" ] && [ $n -lt 300 ]; do
    sleep 0.1
    n=$((n + 1))
done
kill -9 "$pid" 2>/dev/null
wait "$pid" 2>/dev/null
run finetune "$bert" --data "$tmp/train.tsv" --out "$tmp/killed" --epochs 2 "$@" --dropout 0.1 --save-steps 3
check going-on works '"steps":24'
check going-on-is-exact cmp "$tmp/whole/model.safetensors" "$tmp/killed/model.safetensors"

# ---- of equally accurate models the one with the lowest loss is kept -----------------------------------------------------
tied() {
    run finetune "$bert" --data "$tmp/train.tsv" --eval "$tmp/dev.tsv" --out "$tmp/$1" --max-steps 36 --eval-steps 3 --save-steps 3 \
        --save-total-limit 20 --threads 1 --quiet --json --learning-rate 5e-3 --batch-size 8 --dropout 0
}

# The step with the highest accuracy and, of several, the lowest loss, by a run's log.
best_logged() {
    sed -n 's/.*"step": *\([0-9]*\).*"eval_loss": *\([-0-9.e+]*\).*"eval_accuracy": *\([0-9.]*\).*/\1 \2 \3/p' "$tmp/$1/metrics.jsonl" |
        awk 'NR == 1 || $3 > a || ($3 == a && $2 < l) { s = $1; l = $2; a = $3 } END { print s }'
}

# back FOLDER STEP: as if the run had stopped after this step.
back() {
    for dir in "$tmp/$1"/checkpoint-*; do
        [ "${dir##*-}" -le "$2" ] || rm -r "$dir"
    done
    rm -f "$tmp/$1/last" "$tmp/$1/best"
    ln -s "checkpoint-$2" "$tmp/$1/last"
}

tied tied
check accuracy-ties [ "$(grep -c '"eval_accuracy": 1[,}]' "$tmp/tied/metrics.jsonl")" -gt 2 ]
check a-tie-goes-to-the-lower-loss [ "$(best_logged tied)" -eq "$(field best_step)" ]
check the-loss-of-the-best-is-saved grep -q '"best_loss": "0x' "$tmp/tied/last/trainer_state.json"
cp -R "$tmp/tied" "$tmp/tied2"
back tied2 000030
tied tied2
check a-tie-after-going-on works '"resumed_from":30'
check a-tie-after-going-on-is-exact cmp "$tmp/tied/model.safetensors" "$tmp/tied2/model.safetensors"
check a-tie-after-going-on-has-the-state cmp "$tmp/tied/last/trainer_state.json" "$tmp/tied2/last/trainer_state.json"
back tied2 000030
state=$tmp/tied2/checkpoint-000030/trainer_state.json
sed -e '/"best_loss"/d' -e '/"checksum"/d' "$state" | awk '{ t = t $0 } END { sub(/}, *}/, "}}", t); print t }' >"$tmp/state"
cp "$tmp/state" "$state"
tied tied2
check a-state-without-the-loss-loads works '"resumed_from":30'

# ---- frozen layers, decay, weights ---------------------------------------------------------------------------------------
run finetune "$bert" --data "$tmp/train.tsv" --out "$tmp/f" --max-steps 2 --freeze body "$@"
check freeze works '"trained_parameters":'
check freeze-leaves-the-head [ "$(field trained_parameters)" -eq 1122 ]
check freeze-saves-memory [ "$(field state_bytes)" -eq $(($(field parameters) * 4 + 1122 * 12)) ]
check freeze-saves-no-moments [ "$(grep -ao '"moment1[^"]*"' "$tmp/f/last/optimizer.safetensors" | wc -l)" -eq 4 ]
run finetune "$bert" --data "$tmp/train.tsv" --out "$tmp/f" --max-steps 8 --freeze body --save-steps 3 --save-total-limit 9 --overwrite "$@"
cp -R "$tmp/f" "$tmp/f3"
back f3 000003
run finetune "$bert" --data "$tmp/train.tsv" --out "$tmp/f3" --max-steps 8 --freeze body --save-steps 3 --save-total-limit 9 "$@"
check frozen-going-on works '"resumed_from":3'
check frozen-going-on-is-exact cmp "$tmp/f/model.safetensors" "$tmp/f3/model.safetensors"
check frozen-going-on-has-the-moments cmp "$tmp/f/last/optimizer.safetensors" "$tmp/f3/last/optimizer.safetensors"
run finetune "$bert" --data "$tmp/train.tsv" --out "$tmp/f4" --max-steps 2 --freeze body --threads 1
check freeze-prints-the-memory grep -q '0.0 MiB of gradients and optimiser for those that learn' "$tmp/err"
for part in weights but:query.bias,LayerNorm; do
    run finetune "$bert" --data "$tmp/train.tsv" --out "$tmp/bits" --max-steps 6 --freeze $part --save-steps 3 --save-total-limit 9 --overwrite "$@"
    check "freeze-$part" works '"trained_parameters":'
    n=$(field trained_parameters)
    check "freeze-$part-trains-more-than-a-head" [ "$n" -gt 1122 ]
    check "freeze-$part-saves-memory" [ "$(field state_bytes)" -eq $(($(field parameters) * 4 + n * 12)) ]
    rm -rf "$tmp/bits2" && cp -R "$tmp/bits" "$tmp/bits2"
    back bits2 000003
    run finetune "$bert" --data "$tmp/train.tsv" --out "$tmp/bits2" --max-steps 6 --freeze $part --save-steps 3 --save-total-limit 9 "$@"
    check "freeze-$part-goes-on" works '"resumed_from":3'
    check "freeze-$part-goes-on-exactly" cmp "$tmp/bits/model.safetensors" "$tmp/bits2/model.safetensors"
done
run finetune "$bert" --data "$tmp/train.tsv" --out "$tmp/bits2" --max-steps 6 --freeze but:query.bias --save-steps 3 --save-total-limit 9 "$@"
check freeze-must-stay-the-same fails 1 'was started with freeze but:query.bias,LayerNorm'
run finetune "$bert" --data "$tmp/train.tsv" --out "$tmp/f2" --max-steps 2 --freeze but:nothing "$@"
check freeze-but-nothing fails 1 'has "nothing" in its name'
run finetune "$bert" --data "$tmp/train.tsv" --out "$tmp/f2" --max-steps 2 --freeze 3 "$@"
check freeze-too-much fails 1 'up to 2'
run finetune "$bert" --data "$tmp/train.tsv" --eval "$tmp/dev.tsv" --out "$tmp/d" --epochs 3 --layer-decay 0.5 --class-weights balanced "$@"
check layer-decay-and-weights works '"accuracy":1'
run finetune "$bert" --data "$tmp/train.tsv" --out "$tmp/w" --max-steps 2 --class-weights 1,2,3 "$@"
check wrong-weights fails 1 '2 numbers'

# ---- other tasks ---------------------------------------------------------------------------------------------------------
sed 's/pos/nice,short/; s/neg/short/' "$tmp/train.tsv" | tr ',' ';' >"$tmp/many.tsv"
run finetune "$bert" --data "$tmp/many.tsv" --eval "$tmp/many.tsv" --label-separator ';' --out "$tmp/m" --epochs 8 "$@"
check many-labels works '"micro_f1":1'
check many-labels-draws draws m 'loss (nats per label)' 'micro F1 (0 to 1)'
sed 's/pos/1.5/; s/neg/-0.5/' "$tmp/train.tsv" >"$tmp/numbers.tsv"
run finetune "$bert" --task regress --data "$tmp/numbers.tsv" --eval "$tmp/numbers.tsv" --out "$tmp/r" --epochs 4 "$@"
check regress atleast "$(field pearson)" 0.9
check regress-draws draws r 'loss (squared error)' "Pearson's r (-1 to 1)"
run eval "$tmp/r" --data "$tmp/numbers.tsv" --threads 1 --json
check eval-regress works '"task":"regress".*"spearman"'
i=0
while [ $i -lt 24 ]; do
    printf 'anna B-PER\nlives O\nin O\nberlin B-LOC\n\nthe O\ncat O\nsat O\nin O\nberlin B-LOC\n\n'
    i=$((i + 1))
done >"$tmp/ner.conll"
run finetune "$bert" --task tag --data "$tmp/ner.conll" --eval "$tmp/ner.conll" --out "$tmp/t" --epochs 3 --predictions "$tmp/t.jsonl" "$@"
check tag works '"f1":1,"precision":1,"recall":1,"accuracy":1'
check tag-draws draws t 'loss (nats per word)' 'F1 (0 to 1)'
check tag-predicts grep -q '"words": \["anna", "lives", "in", "berlin"\], "labels": \["B-PER", "O", "O", "B-LOC"\]' "$tmp/t.jsonl"
i=0
{
    printf '{"data": [{"paragraphs": ['
    while [ $i -lt 12 ]; do
        [ $i -gt 0 ] && printf ','
        printf '{"context": "the cat sat in berlin", "qas": [{"id": "a%d", "question": "who sat", "answers": [{"text": "cat", "answer_start": 4}]}]},' $i
        printf '{"context": "in berlin lives anna", "qas": [{"id": "b%d", "question": "who lives", "answers": [{"text": "anna", "answer_start": 16}]}]},' $i
        printf '{"context": "the dog ran", "qas": [{"id": "c%d", "question": "who sat", "is_impossible": true, "answers": []}]}' $i
        i=$((i + 1))
    done
    printf ']}]}\n'
} >"$tmp/squad.json"
run finetune "$bert" --task qa --data "$tmp/squad.json" --eval "$tmp/squad.json" --out "$tmp/q" --epochs 20 --predictions "$tmp/q.jsonl" "$@"
check answer atleast "$(field exact_match)" 99
check answer-draws draws q 'loss (nats per start or end)' 'F1 (%)'
cp "$tmp/q.jsonl" "$tmp/q-first.jsonl"
run finetune "$bert" --task qa --data "$tmp/squad.json" --eval "$tmp/squad.json" --out "$tmp/q" --epochs 20 --predictions "$tmp/q.jsonl" "$@"
check answer-again works '"resumed_from":100'
check answer-again-is-the-same cmp "$tmp/q-first.jsonl" "$tmp/q.jsonl"
check answer-predicts grep -q '"id": "b3", "answer": "anna", "answer_start": 16' "$tmp/q.jsonl"
check answer-none grep -q '"id": "c3", "answer": "", "score"' "$tmp/q.jsonl"
run finetune "$bert" --task qa --data "$tmp/squad.json" --out "$tmp/q2" --max-steps 2 --max-length 8 --stride 2 "$@"
check answer-in-windows works '"steps":2'
i=0
while [ $i -lt 24 ]; do
    printf '{"text": "the cat", "choices": ["good", "sat", "book"], "label": 1}\n{"text": "a film", "choices": ["fine", "ran", "lives"], "label": 0}\n'
    i=$((i + 1))
done >"$tmp/choice.jsonl"
run finetune "$bert" --task choice --data "$tmp/choice.jsonl" --eval "$tmp/choice.jsonl" --out "$tmp/ch" --epochs 8 "$@"
check choice atleast "$(field accuracy)" 0.99

# ---- plain text: hidden tokens, next tokens --------------------------------------------------------------------------------
eval_losses() {
    sed -n 's/.*"eval_loss": *\([-0-9.e+]*\).*/\1/p' "$1/metrics.jsonl"
}
# falls DIR SHARE: the last loss is below this share of the first.
falls() {
    eval_losses "$1" | awk -v r="$2" 'NR == 1 { first = $1 } { last = $1 } END { exit !(NR > 1 && last > 0 && last < r * first) }'
}
run finetune "$bert" --task mlm --data "$tmp/text.txt" --eval "$tmp/text.txt" --out "$tmp/mlm" --epochs 12 "$@"
check mlm works '"perplexity":'
check mlm-draws draws mlm 'loss (nats per token)' 'perplexity (per token)'
check mlm-loss-falls falls "$tmp/mlm" 0.7
loss=$(field loss)
cp "$tmp/mlm/model.safetensors" "$tmp/mlm.safetensors"
run eval "$tmp/mlm" --task mlm --data "$tmp/text.txt" --threads 1 --json
check mlm-opens-again near "$(field loss)" "$loss"
run finetune "$bert" --task mlm --data "$tmp/text.txt" --eval "$tmp/text.txt" --out "$tmp/mlm" --epochs 12 "$@"
check mlm-again works '"resumed_from":120'
check mlm-again-is-the-same cmp "$tmp/mlm.safetensors" "$tmp/mlm/model.safetensors"
run fill "$tmp/mlm" --threads 1 --json --top 1 'the cat sat . the ___ ran . anna lives in berlin . who did what .'
check mlm-fills works '"token":"dog"'
run train --model gpt2 --data "$tmp/text.txt" --layers 2 --heads 2 --width 32 --context 96 --batch-size 4 --max-steps 2 --threads 1 \
    --out "$tmp/gpt2" --quiet
check a-tiny-gpt2 works model
run finetune "$tmp/gpt2" --task lm --data "$tmp/text.txt" --eval "$tmp/text.txt" --out "$tmp/lm" --epochs 12 "$@"
check lm works '"perplexity":'
check lm-loss-falls falls "$tmp/lm" 0.7
loss=$(field loss)
cp "$tmp/lm/model.safetensors" "$tmp/lm.safetensors"
run finetune "$tmp/lm" --task lm --data "$tmp/text.txt" --eval "$tmp/text.txt" --out "$tmp/lm2" --max-steps 1 "$@" --learning-rate 1e-12
check lm-opens-again near "$(field loss)" "$loss"
run finetune "$tmp/gpt2" --task lm --data "$tmp/text.txt" --eval "$tmp/text.txt" --out "$tmp/lm" --epochs 12 "$@"
check lm-again works '"resumed_from":60'
check lm-again-is-the-same cmp "$tmp/lm.safetensors" "$tmp/lm/model.safetensors"
run generate "$tmp/lm" --threads 1 --prompt 'the cat' -n 10 --greedy
check lm-generates works '^the cat'
run train --model gpt2 --data "$tmp/text.txt" --tokenizer bpe:280 --layers 1 --heads 2 --width 16 --context 32 --batch-size 4 --max-steps 2 \
    --threads 1 --out "$tmp/bpe" --quiet
check a-gpt2-with-an-end-token works model
run finetune "$tmp/bpe" --task lm --data "$tmp/text.txt" --eval "$tmp/text.txt" --out "$tmp/lm3" --max-steps 2 "$@"
check lm-with-an-end-token works '"perplexity":'
run finetune "$tmp/gpt2" --task mlm --data "$tmp/text.txt" --out "$tmp/b" --max-steps 1 "$@"
check mlm-needs-a-head fails 1 'has no head for "mlm"'

# ---- bad files -----------------------------------------------------------------------------------------------------------
bad() {
    printf "$2" >"$tmp/bad.$3"
    run finetune "$bert" --data "$tmp/bad.$3" --out "$tmp/b" --max-steps 1 --threads 1 $4
    check "$1" fails 1 "$5"
}
bad missing-column 'a film\t1\na book\n' tsv "" 'bad.tsv, line 2: 1 columns'
bad empty-line 'a film\t1\n\na book\t0\n' tsv "" 'bad.tsv, line 2: the line is empty'
bad one-label 'a film\t1\na book\t1\n' tsv "" 'all examples have the label'
bad not-utf8 'a film\t1\na \377\t0\n' tsv "" 'line 2: byte 3 (0xff) is not UTF-8'
bad no-cases '' tsv "" 'no examples'
bad no-number 'a film\tx\na book\t2\n' tsv "--task regress" 'line 1: the label "x" is not a number'
bad answer-outside '{"question": "who", "context": "cat", "answers": [{"text": "dog", "answer_start": 0}]}\n' jsonl "--task qa" 'line 1: the answer "dog" is not in the text'
printf 'a film\tpos\na book\tmeh\n' >"$tmp/bad.tsv"
run finetune "$bert" --data "$tmp/train.tsv" --eval "$tmp/bad.tsv" --out "$tmp/b" --max-steps 1 --threads 1
check unknown-label fails 1 'bad.tsv, line 2: the label "meh"'
run eval "$tmp/c" --data "$tmp/bad.tsv" --threads 1
check unknown-label-eval fails 1 'line 2: the label "meh"'
run finetune "$bert" --out "$tmp/b"
check needs-data fails 2 --data
run finetune "$bert" --data "$tmp/train.tsv" --task dance --out "$tmp/b"
check needs-a-task fails 2 'classify, regress'
run finetune "$tmp/nowhere" --data "$tmp/train.tsv" --out "$tmp/b"
check needs-a-model fails 1 nowhere

# ---- the models that were made, put to use ----
run classify "$tmp/c" --threads 1 --json "$(head -n 1 "$tmp/dev.tsv" | cut -f 1)"
check classify-says works '"label":"[a-z]*","score":0\.'
run classify "$bert" --threads 1 text
check classify-needs-its-head fails 1 'banyan finetune'
run fill "$bert" --threads 1 --json 'a ___ film'
check fill-says works '"holes":\[\[{"token":"'
run fill "$bert" --threads 1 'a film'
check fill-needs-a-hole fails 1 'no gap'
run embed "$bert" --threads 1 --similarity 'a film' 'a film'
check embed-says works '^1.0000'
run embed "$bert" --threads 1 --similarity --json 'a film' 'a film'
check embed-similarity-json works '^{"text":"a film","similarity":\[1.0000,1.0000\]}$'
awk 'BEGIN { for (i = 0; i < 4100; i++) print i % 2 ? "a good film" : "the bad book" }' >"$tmp/many.txt"
# Texts of the first and of the last rows: what a matrix in blocks of 4096 would not compare.
corner() {
    "$BANYAN" embed "$bert" --threads 1 --similarity -f "$tmp/many.txt" 2>"$tmp/err" | head -n 1 >"$tmp/row"
    [ "$(wc -w <"$tmp/row")" -eq 4100 ] && [ "$(cut -f 4099 "$tmp/row")" = 1.0000 ] && [ "$(cut -f 4100 "$tmp/row")" != 1.0000 ]
}
check embed-similarity-of-many corner
run attention "$bert" --threads 1 --out "$tmp/heads.svg" 'a film'
check attention-says works 'heads.svg: 2 layers of 2 heads over 4 tokens'
check attention-draws grep -q '</svg>' "$tmp/heads.svg"
check attention-names-model-and-text grep -q ">bert, .*: layer 1, mean" "$tmp/heads.svg"
run attention "$bert" --threads 1 --out "$tmp/head.png" --layer 1 --head 0 'a film'
check attention-png [ "$(head -c 4 "$tmp/head.png" | tail -c 3)" = PNG ]
run attention "$bert" --threads 1 --out "$tmp/head.jpg" 'a film'
check attention-other-endings fails 1 'must end in .svg or .png'
run tag "$tmp/t" --threads 1 'anna lives in berlin'
check tag-says works 'LOC .*berlin'

run answer "$tmp/q" --threads 1 --json 'who lives' 'in berlin lives anna'
check answer-says works '^{"question":"who lives","answer":"anna","start":16,"end":20,"score":[-0-9.e+]*}$'
run answer "$tmp/q" --threads 1 'who sat' 'the cat sat in berlin'
check answer-says-plainly works '^cat$'
printf 'who lives\tin berlin lives anna\nwho sat\tthe dog ran\nwho sat\tthe cat sat in berlin\n' >"$tmp/questions.tsv"
run answer "$tmp/q" --threads 1 --null-threshold 0 --batch-size 2 -f "$tmp/questions.tsv"
check answer-lines [ "$(tr '\n' ';' <"$tmp/out")" = 'anna;(no answer);cat;' ]
run answer "$tmp/q" --threads 1 --null-threshold 0 --json -f "$tmp/questions.tsv"
check answer-none-json grep -q -x '{"question":"who sat","answer":""}' "$tmp/out"
run answer "$tmp/q" --threads 1 --null-threshold 1000 --json -f "$tmp/questions.tsv"
check answer-threshold [ "$(grep -c '"start"' "$tmp/out")" -eq 3 ]
run answer "$tmp/q" --threads 1 --json 'who lives' ''
check answer-in-nothing works '"answer":""}'
run answer "$tmp/q" --threads 1 'who lives'
check answer-needs-a-text fails 1 'missing TEXT'
printf 'who sat\tthe cat sat\nwho sat\n' >"$tmp/questions.tsv"
run answer "$tmp/q" --threads 1 -f "$tmp/questions.tsv"
check answer-needs-a-tab fails 1 'line 2 has no tab'
printf 'who sat\tthe cat sat\nwho sat\tthe\0cat\n' >"$tmp/questions.tsv"
run answer "$tmp/q" --threads 1 -f "$tmp/questions.tsv"
check answer-nul fails 1 'questions.tsv: line 2 contains a NUL character'
run answer "$tmp/q" --threads 1 -f "$tmp/nowhere.tsv"
check answer-needs-a-file fails 1 'nowhere.tsv'
run answer "$bert" --threads 1 'who sat' 'the cat sat'
check answer-needs-its-head fails 1 'banyan finetune'

# ---- questions of XQuAD, learnt by heart ----------------------------------------------------------------------------------
squad=${BANYAN_SHARED:-$BANYAN_SOURCE/../shared}/data/tasks/xquad/xquad.en.json
if [ -s "$squad" ]; then
    # the first question of four short paragraphs
    awk '/"context":/ { c = $0; short = length(c) < 400 }
         short && /"answer_start":/ { s = $0 }
         short && /"text":/ { a = $0 }
         short && /"question":/ { print "{" c $0 ", \"answers\": [{" s a "}]}"; short = 0; if (++n == 4) exit }' "$squad" >"$tmp/x.jsonl"
    run train-tokenizer --like bert --vocab-size 600 "$tmp/x.jsonl" --out "$tmp/xwords" --quiet
    run train --model bert --objective mlm --data "$tmp/x.jsonl" --tokenizer "$tmp/xwords" --layers 2 --heads 2 --width 32 --inner 64 \
        --context 256 --batch-size 1 --max-steps 1 --threads 1 --out "$tmp/xbert" --quiet
    check xquad-a-tiny-bert works model
    run finetune "$tmp/xbert" --task qa --data "$tmp/x.jsonl" --eval "$tmp/x.jsonl" --out "$tmp/x" --epochs 40 --eval-steps 20 "$@"
    check xquad-learns works '"exact_match":100'
    sed -n 's/.*"context": "\(.*\)",  *"question": "\([^"]*\)".*/\2\t\1/p' "$tmp/x.jsonl" >"$tmp/x.tsv"
    run answer "$tmp/x" --threads 1 -f "$tmp/x.tsv"
    check xquad-answers [ "$(tr '\n' ';' <"$tmp/out")" = '39;Six;Africa;38;' ]
else
    echo "not run xquad: $squad is not here"
fi

exit $failed
