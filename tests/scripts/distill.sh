#!/bin/sh
# distill.sh - `banyan distill` with tiny teachers made here: every task, students of every kind, recipes, stored logits, runs that are
# killed, and what is refused.
# shellcheck disable=SC2016,SC2317 # check evaluates what it is given
. "$(dirname "$0")/lib/common.sh"
own_folder

# field NAME: a number of the JSON that the last run printed.
field() {
    sed -n "s/.*\"$1\": *\\([-0-9.e+]*\\).*/\\1/p" "$tmp/out" | head -n 1
}

# atleast A B
atleast() {
    awk -v a="$1" -v b="$2" 'BEGIN { exit !(a != "" && a >= b) }'
}

# near A B: up to what another order of sums makes of them.
near() {
    awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; if (d < 0) d = -d; exit !(a != "" && b != "" && d <= 1e-4) }'
}

# ---- teachers ------------------------------------------------------------------------------------------------------------
mkdir "$tmp/words"
{
    printf '[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n'
    printf '%s\n' good bad fine awful film book cat dog sat ran the a who what did anna berlin in lives .
} >"$tmp/words/vocab.txt"
printf '{"tokenizer_class": "BertTokenizer", "do_lower_case": true}\n' >"$tmp/words/tokenizer_config.json"
i=0
while [ $i -lt 40 ]; do
    echo "the cat sat . the dog ran . anna lives in berlin . who did what . a good film . a bad book ."
    i=$((i + 1))
done >"$tmp/text.txt"
i=0
while [ $i -lt 24 ]; do
    printf 'a good film\tpos\nthe fine book\tpos\na bad film\tneg\nthe awful book\tneg\n'
    i=$((i + 1))
done >"$tmp/train.tsv"
printf 'sentence\tlabel\nthe good book\tpos\nthe bad book\tneg\na fine film\tpos\na awful film\tneg\n' >"$tmp/dev.tsv"
run train --model bert --objective mlm --data "$tmp/text.txt" --tokenizer "$tmp/words" --layers 4 --heads 2 --width 32 --inner 64 \
    --context 24 --batch-size 4 --max-steps 4 --threads 1 --out "$tmp/bert" --quiet
check teacher-of-text works model
set -- --threads 1 --quiet --json --learning-rate 5e-3 --batch-size 8 --dropout 0
run finetune "$tmp/bert" --data "$tmp/train.tsv" --eval "$tmp/dev.tsv" --out "$tmp/c" --epochs 3 "$@"
check teacher-of-labels works '"accuracy":1'

# ---- labelled examples ---------------------------------------------------------------------------------------------------
run distill "$tmp/c" --data "$tmp/train.tsv" --eval "$tmp/dev.tsv" --out "$tmp/half" --epochs 3 "$@"
check half-of-the-layers works '"accuracy":1'
check half-says-so [ "$(field layers) $(field teacher_layers)" = "2 4" ]
check half-is-a-model grep -q '"num_hidden_layers": 2' "$tmp/half/config.json"
check half-keeps-labels grep -q '"pos"' "$tmp/half/config.json"
check half-records-the-teacher grep -q '"teacher_fingerprint"' "$tmp/half/run.json"
run classify "$tmp/half" "the fine film" --threads 1
check half-draws-its-loss grep -q "distillation, text classification" "$tmp/half/loss.svg"
check half-classifies works pos
run distill "$tmp/c" --data "$tmp/train.tsv" --eval "$tmp/dev.tsv" --out "$tmp/half" --epochs 3 "$@"
check finished-run-says-so [ "$(field resumed_from)" = "$(field steps)" ]
run distill "$tmp/c" --data "$tmp/train.tsv" --eval "$tmp/dev.tsv" --out "$tmp/half" --epochs 3 "$@" --dropout 0.2
check labels-refuse-another-dropout fails 1 'own_dropout 0, but this command asks for 0.2'
run distill "$tmp/c" --student-layers 0,3 --recipe distilbert --data "$tmp/train.tsv" --eval "$tmp/dev.tsv" --out "$tmp/db" --epochs 3 "$@"
check recipe-distilbert works '"accuracy":1'
run distill "$tmp/c" --student bert --layers 2 --width 16 --heads 2 --inner 32 --recipe tinybert --data "$tmp/train.tsv" \
    --eval "$tmp/dev.tsv" --out "$tmp/tiny" --epochs 6 "$@"
check recipe-tinybert-of-a-new-narrow-student works '"accuracy":1'
check terms-are-logged grep -q '"attention_loss"' "$tmp/tiny/metrics.jsonl"
check projection-is-saved [ -s "$tmp/tiny/last/projection.bin" ]
check projection-is-not-in-the-model sh -c "! grep -q projection '$tmp/tiny/model.safetensors'"
run distill "$tmp/c" --student distilbert --layers 2 --width 32 --heads 2 --inner 64 --data "$tmp/train.tsv" --eval "$tmp/dev.tsv" \
    --out "$tmp/other" --epochs 4 "$@"
check another-family works '"accuracy":1'
run distill "$tmp/c" --student "$tmp/bert" --recipe minilm --data "$tmp/train.tsv" --eval "$tmp/dev.tsv" --out "$tmp/dir" --epochs 3 "$@"
check a-directory-gets-the-head works '"accuracy":1'

# ---- stored logits -------------------------------------------------------------------------------------------------------
run distill "$tmp/c" --data "$tmp/train.tsv" --out "$tmp/fly" --epochs 2 "$@"
fly=$(field train_loss)
run distill "$tmp/c" --data "$tmp/train.tsv" --out "$tmp/kept" --epochs 2 --store-logits "$@"
check stored-logits-are-the-same near "$fly" "$(field train_loss)"
check stored-logits-lie-in-the-folder [ -s "$tmp/kept/teacher/logits.bin" ]
run train --data "$tmp/text.txt" --tokenizer byte --layers 2 --heads 2 --width 32 --context 32 --batch-size 4 --max-steps 4 --threads 1 \
    --out "$tmp/bytes" --quiet
run finetune "$tmp/bytes" --data "$tmp/train.tsv" --out "$tmp/dc" --max-steps 20 "$@"
run distill "$tmp/dc" --layers 2 --task-loss 0 --data "$tmp/train.tsv" --out "$tmp/dc-kept" --max-steps 2 --store-logits "$@"
check stored-of-a-decoder near 0 "$(field train_loss)"
size=$(wc -c <"$tmp/kept/teacher/logits.bin")
check stored-once [ "$size" -lt 1000 ]
run distill "$tmp/db" --data "$tmp/train.tsv" --out "$tmp/kept" --overwrite --epochs 2 --store-logits "$@"
check another-teacher-is-refused fails 1 'logits of another teacher'
run distill "$tmp/bert" --data "$tmp/text.txt" --out "$tmp/top" --max-steps 4 --store-logits --store-top 4 --seq 16 "$@"
check stored-highest works '"steps":4'
run distill "$tmp/c" --recipe tinybert --data "$tmp/train.tsv" --out "$tmp/bad" --store-logits "$@"
check hidden-states-are-not-stored fails 1 'only logits are stored'

# ---- text ----------------------------------------------------------------------------------------------------------------
run distill "$tmp/bert" --recipe distilbert --data "$tmp/text.txt" --out "$tmp/text" --max-steps 6 --seq 16 "$@"
check text-distilbert works '"steps":6'
run distill "$tmp/bert" --recipe minilm --student bert --layers 2 --width 16 --heads 2 --inner 32 --data "$tmp/text.txt" --out "$tmp/mini" \
    --max-steps 6 --seq 16 "$@"
check text-minilm works '"steps":6'
run distill "$tmp/bert" --recipe distilbert --data "$tmp/text.txt" --out "$tmp/text" --max-steps 6 --seq 16 "$@" --dropout 0.2
check text-refuses-another-dropout fails 1 'started with dropout 0, but this command asks for 0.2'
run train --data "$tmp/text.txt" --layers 2 --heads 2 --width 32 --context 16 --batch-size 4 --max-steps 4 --threads 1 --out "$tmp/gpt" --quiet
run distill "$tmp/gpt" --recipe tinybert --layers 1 --data "$tmp/text.txt" --out "$tmp/small-gpt" --max-steps 6 "$@"
check text-of-a-decoder works '"steps":6'
run generate "$tmp/small-gpt" --prompt "the " --max-new-tokens 4 --threads 1 --greedy
check student-generates works the

# ---- vectors -------------------------------------------------------------------------------------------------------------
cut -f1 "$tmp/train.tsv" | cat - "$tmp/text.txt" | tr '.' '\n' | sed 's/^ *//; /^$/d' | sort -u >"$tmp/sentences.txt"
run distill "$tmp/bert" --task vectors --layers 2 --data "$tmp/sentences.txt" --eval "$tmp/sentences.txt" --out "$tmp/vectors" --epochs 40 "$@"
check vectors atleast "$(field spearman)" 0.9
mkdir -p "$tmp/st/1_Pooling"
cp "$tmp"/bert/best/*.json "$tmp"/bert/best/*.safetensors "$tmp/st"
printf '[{"idx":0,"name":"0","path":"","type":"sentence_transformers.models.Transformer"},{"idx":1,"name":"1","path":"1_Pooling","type":"sentence_transformers.models.Pooling"}]' >"$tmp/st/modules.json"
printf '{"pooling_mode_cls_token": true}' >"$tmp/st/1_Pooling/config.json"
run distill "$tmp/st" --data "$tmp/sentences.txt" --max-steps 4 --out "$tmp/st2" "$@"
check embedders-are-recognised works '"task":"vectors"'
check embedders-keep-their-modules cmp "$tmp/st/1_Pooling/config.json" "$tmp/st2/1_Pooling/config.json"
run distill "$tmp/st" --data "$tmp/sentences.txt" --max-steps 3 --out "$tmp/st2" --overwrite "$@"
check embedders-again works '"steps":3'
run embed "$tmp/vectors" "a good film" "a bad book" --similarity --threads 1
check vectors-embed works .
run distill "$tmp/st" --data "$tmp/sentences.txt" --max-steps 3 --out "$tmp/st2" "$@" --dropout 0.2
check vectors-refuse-another-dropout fails 1 'own_dropout 0, but this command asks for 0.2'

# ---- translation ---------------------------------------------------------------------------------------------------------
i=0
while [ $i -lt 20 ]; do
    printf 'the cat sat\nthe dog ran\na good film\na bad book\n'
    i=$((i + 1))
done >"$tmp/train.en"
tr 'a-z' 'b-za' <"$tmp/train.en" >"$tmp/train.de"
run train --model transformer --data "$tmp/train.en" "$tmp/train.de" --tokenizer word:100 --layers 2 --heads 2 --width 32 --context 24 \
    --batch-tokens 200 --max-steps 60 --learning-rate 5e-3 --warmup 5 --threads 1 --quiet --out "$tmp/mt"
check teacher-of-translations works .
set -- --threads 1 --quiet --json --learning-rate 5e-3 --dropout 0
run distill "$tmp/mt" --layers 1 --data "$tmp/train.en,$tmp/train.de" --batch-tokens 200 --max-steps 20 --out "$tmp/words-mt" "$@"
check word-by-word works '"steps":20'
run distill "$tmp/mt" --layers 1 --sequence --beams 2 --data "$tmp/train.en,$tmp/train.de" --batch-tokens 200 --max-steps 20 \
    --out "$tmp/seq-mt" "$@"
check by-sequences works '"steps":20'
run distill "$tmp/mt" --layers 1 --data "$tmp/train.en,$tmp/train.de" --batch-tokens 200 --max-steps 20 --out "$tmp/words-mt" "$@" --dropout 0.2
check translation-refuses-another-dropout fails 1 'started with dropout 0, but this command asks for 0.2'
check translations-are-kept [ "$(cat "$tmp"/seq-mt/teacher/translations-*.target | wc -l)" -eq 80 ]
# A process that was killed while its teacher translated leaves a file, which goes with the next run.
stale=$(echo "$tmp"/seq-mt/teacher/translations-*.jsonl).tmp-4194305
touch "$stale"
run distill "$tmp/mt" --layers 1 --sequence --beams 2 --data "$tmp/train.en,$tmp/train.de" --batch-tokens 200 --max-steps 21 \
    --out "$tmp/seq-mt" "$@"
check the-run-goes-on works '"resumed_from":20'
check leftovers-of-a-killed-search-go [ ! -e "$stale" ]
run translate "$tmp/seq-mt" "the cat sat" --threads 1
check student-translates works .

# ---- going on ------------------------------------------------------------------------------------------------------------
# killed FOLDER ARGUMENTS...: the run in the folder dies after its third checkpoint, goes on, and ends as the one in FOLDER-whole.
killed() {
    local out=$tmp/$1 pid n=0
    shift
    "$BANYAN" distill "$@" --save-steps 3 --out "$out-whole" >"$tmp/log" 2>&1 </dev/null || return 1
    "$BANYAN" distill "$@" --save-steps 3 --out "$out" >"$tmp/log" 2>&1 </dev/null &
    pid=$!
    while kill -0 $pid 2>/dev/null && [ ! -e "$out/checkpoint-000009" ] && [ $n -lt 400 ]; do
        sleep 0.02
        n=$((n + 1))
    done
    kill -9 $pid 2>/dev/null
    wait $pid 2>/dev/null
    "$BANYAN" distill "$@" --save-steps 3 --out "$out" >"$tmp/log" 2>&1 </dev/null || return 1
    cmp "$out/model.safetensors" "$out-whole/model.safetensors" && cmp "$out/last/optimizer.safetensors" "$out-whole/last/optimizer.safetensors"
}
set -- --threads 1 --quiet --json --learning-rate 5e-3 --batch-size 8
check killed-examples killed k1 "$tmp/c" --student bert --layers 2 --width 16 --heads 2 --inner 32 --recipe tinybert \
    --data "$tmp/train.tsv" --max-steps 60 "$@"
check killed-stored killed k2 "$tmp/c" --data "$tmp/train.tsv" --store-logits --max-steps 60 "$@"
check killed-text killed k3 "$tmp/bert" --recipe distilbert --data "$tmp/text.txt" --seq 16 --max-steps 60 "$@"
check killed-vectors killed k4 "$tmp/bert" --task vectors --data "$tmp/sentences.txt" --max-steps 60 "$@"
check projections-resume cmp "$tmp/k1/last/projection.bin" "$tmp/k1-whole/last/projection.bin"

# ---- what is refused -----------------------------------------------------------------------------------------------------
run distill "$tmp/c" --student "$tmp/gpt" --data "$tmp/train.tsv" --out "$tmp/bad" "$@"
check other-vocabulary fails 1 'the vocabularies differ'
run distill "$tmp/c" --student bert --layers 1 --width 32 --heads 4 --recipe tinybert --data "$tmp/train.tsv" --out "$tmp/bad" "$@"
check other-heads fails 1 'the student has 4 attention heads and the teacher 2'
run distill "$tmp/c" --student-layers 0,7 --data "$tmp/train.tsv" --out "$tmp/bad" "$@"
check layer-out-of-range fails 1 'layer 7: the model has the layers 0 to 3'
run distill "$tmp/c" --layers 5 --data "$tmp/train.tsv" --out "$tmp/bad" "$@"
check too-many-layers fails 1 'cannot take 5 layers from a teacher with 4'
run distill "$tmp/c" --recipe bigbert --data "$tmp/train.tsv" --out "$tmp/bad" "$@"
check unknown-recipe fails 1 'unknown recipe "bigbert"'
run distill "$tmp/c" --layer-map 1,9 --recipe tinybert --data "$tmp/train.tsv" --out "$tmp/bad" "$@"
check map-out-of-range fails 1 'layer map names layer 9'
run distill "$tmp/c" --sequence --data "$tmp/train.tsv" --out "$tmp/bad" "$@"
check only-translators-have-sequences fails 1 'only translation models'
run distill "$tmp/bert" --task examples --data "$tmp/train.tsv" --out "$tmp/bad" "$@"
check a-head-is-needed fails 1 'no head for labelled examples'
run distill "$tmp/c" --student-layers 0,x --data "$tmp/train.tsv" --out "$tmp/bad"
check bad-list fails 2 'not a list of layers'
check nothing-is-left [ ! -e "$tmp/bad/run.json" ]

exit $failed
