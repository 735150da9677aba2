#!/bin/sh
# defaults.sh - numbers that are not given are chosen, and a 0 that is given is 0.
# shellcheck disable=SC2016,SC2317 # check evaluates what it is given
. "$(dirname "$0")/lib/common.sh"
own_folder

i=0
while [ $i -lt 60 ]; do
    echo "the cat sat on the mat and the dog ran after it."
    i=$((i + 1))
done >"$tmp/text.txt"
small="--layers 1 --heads 2 --width 16 --context 16 --batch-size 2 --threads 1 --quiet"

# shellcheck disable=SC2086 # several options
learn() {
    out=$1
    shift
    run train $small --data "$tmp/text.txt" --out "$tmp/$out" "$@"
}

# is RUN KEY VALUE: run.json has it.
is() {
    grep -q "\"$2\":[[:space:]]*$3[,[:space:]]*\$" "$tmp/$1/run.json"
}

# ---- zeros ---------------------------------------------------------------------------------------------------------------
learn one --max-steps 1 --learning-rate 0
check rate-0 works model
check rate-0-is-recorded is one learning_rate 0
learn three --max-steps 3 --learning-rate 0
check rate-0-learns-nothing cmp "$tmp/one/last/model.safetensors" "$tmp/three/last/model.safetensors"
learn usual --max-steps 3
check rate-is-chosen is usual learning_rate '0\.00[0-9]*'
check and-learns eval '! cmp -s "$tmp/one/last/model.safetensors" "$tmp/usual/last/model.safetensors"'
learn zeros --max-steps 3 --adam-beta1 0 --adam-beta2 0 --weight-decay 0 --warmup-steps 0 --min-learning-rate 0 --dropout 0 --max-grad-norm 0
check zeros works model
for key in beta1 beta2 weight_decay warmup_steps min_learning_rate dropout max_grad_norm; do
    check "zero-$key" is zeros $key 0
done
check beta-0-changes-the-run eval '! cmp -s "$tmp/zeros/last/model.safetensors" "$tmp/usual/last/model.safetensors"'
learn beta --max-steps 3 --adam-beta1 0
check beta1-0-is-not-the-usual eval '! cmp -s "$tmp/beta/last/model.safetensors" "$tmp/usual/last/model.safetensors"'
learn epochs --epochs 0
check epochs-0 fails 2 'epochs must be at least'

# ---- the length of a run -------------------------------------------------------------------------------------------------
# steps RUN: as run.json has them.
steps() {
    sed -n 's/.*"steps":[[:space:]]*\([0-9]*\).*/\1/p' "$tmp/$1/run.json" | head -n 1
}
head -c 1500 "$tmp/text.txt" >"$tmp/short.txt"
run train $small --data "$tmp/short.txt" --out "$tmp/short"
check a-short-text-is-read-twenty-times eval '[ "$(steps short)" -gt 700 ] && [ "$(steps short)" -lt 900 ]'
awk 'BEGIN { for (i = 0; i < 400; i++) printf "the %d th cat sat on mat %d\n", i, i * 7 }' >"$tmp/p.en"
awk 'BEGIN { for (i = 0; i < 400; i++) printf "die %d te Katze sass auf %d\n", i, i * 7 }' >"$tmp/p.de"
"$BANYAN" train --model transformer --data "$tmp/p.en" "$tmp/p.de" --tokenizer bpe:200 --layers 1 --heads 2 --width 16 --context 32 \
    --threads 1 --max-steps 12 --out "$tmp/pairs" >"$tmp/out" 2>"$tmp/err"
rc=$?
check translation works model
for fact in 'pre_norm 1' 'label_smoothing 0.1[0-9]*' 'dropout 0.2[0-9]*' 'beta2 0.98[0-9]*' 'weight_decay 0.0001[0-9]*' 'warmup_steps 2' 'learning_rate 0.002[0-9]*' 'batch_tokens 2048'; do
    # shellcheck disable=SC2086 # a key and its value
    check "translation-$fact" is pairs $fact
done
check says-how-long-it-takes grep -q '12 steps of .* s: about .* in total' "$tmp/err"
check says-the-epochs grep -q '12 steps (.* epochs)' "$tmp/err"

# ---- evaluations are bounded ---------------------------------------------------------------------------------------------
awk 'BEGIN { for (i = 0; i < 3000; i++) print "the cat sat on the mat and the dog ran after it." }' >"$tmp/long.txt"
"$BANYAN" train $(echo "$small" | sed 's/--quiet//') --data "$tmp/text.txt" --eval-data "$tmp/long.txt" --max-steps 20 --out "$tmp/bounded" >"$tmp/out" 2>"$tmp/err"
check evaluations-are-bounded grep -q 'evaluations take 16 of 4[0-9]* held-out batches (--eval-batches 0: all)' "$tmp/err"
"$BANYAN" train $(echo "$small" | sed 's/--quiet//') --data "$tmp/text.txt" --eval-data "$tmp/long.txt" --max-steps 2 --eval-steps 2 --eval-batches 0 --out "$tmp/whole" >"$tmp/out" 2>"$tmp/err"
check evaluations-take-all-when-asked eval '! grep -q "evaluations take" "$tmp/err"'
"$BANYAN" train $(echo "$small" | sed 's/--quiet//') --data "$tmp/text.txt" --max-steps 5 --warmup-steps 50 --out "$tmp/rising" >"$tmp/out" 2>"$tmp/err"
check a-warm-up-longer-than-the-run grep -q 'the warm-up of 50 steps is longer than the run' "$tmp/err"

# ---- recipes -------------------------------------------------------------------------------------------------------------
learn recipe --recipe shakespeare-char-cpu --max-steps 2 --layers 1
check recipe works model
check recipe-is-recorded is recipe recipe '"shakespeare-char-cpu"'
check recipe-sets-the-rate is recipe learning_rate 0.001
check recipe-sets-the-warm-up is recipe warmup_steps 100
check options-win-over-the-recipe is recipe layers 1
check options-win-over-the-recipe-too is recipe width 16
learn nowhere --recipe shakespear
check unknown-recipe fails 1 'unknown recipe "shakespear"; available: multi30k, '
for name in $("$BANYAN" train --help | tr -s "\n " "  " | sed "s/.*override it: \([^.]*t5-base\).*/\1/; s/,//g"); do
    check "recipe-$name-is-in-the-docs" grep -q "\`$name\`" "$BANYAN_SOURCE/docs/RECIPES.md"
    run train --recipe "$name" --data "$tmp/p.en" "$tmp/p.de" --tokenizer bpe:200 --layers 1 --heads 2 --width 16 --context 32 --seq 32 --inner 32 \
        --batch-size 2 --gradient-accumulation-steps 1 --max-steps 1 --batch-tokens 64 --show-batch 1 --threads 1 --out "$tmp/$name"
    check "recipe-$name-parses" eval '! grep -q "in the recipe" "$tmp/err"'
done

# ---- fine-tuning of small sets -------------------------------------------------------------------------------------------
mkdir "$tmp/words"
{
    printf '[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n'
    printf '%s\n' good bad fine awful film book the a
} >"$tmp/words/vocab.txt"
printf '{"tokenizer_class": "BertTokenizer", "do_lower_case": true}\n' >"$tmp/words/tokenizer_config.json"
run train --model bert --objective mlm --data "$tmp/text.txt" --tokenizer "$tmp/words" --layers 1 --heads 2 --width 16 --inner 32 \
    --context 16 --batch-size 4 --max-steps 1 --threads 1 --out "$tmp/bert" --quiet
i=0
while [ $i -lt 12 ]; do
    printf 'a good film\tpos\nthe bad book\tneg\n'
    i=$((i + 1))
done >"$tmp/few.tsv"
run finetune "$tmp/bert" --data "$tmp/few.tsv" --out "$tmp/few" --threads 1 --quiet
check few-cases works model
awk 'BEGIN { for (i = 0; i < 400; i++) printf "a %s film\t%s\n", i % 2 ? "good" : "bad", i % 2 ? "pos" : "neg" }' >"$tmp/large.tsv"
"$BANYAN" finetune "$tmp/bert" --data "$tmp/few.tsv" --eval "$tmp/large.tsv" --out "$tmp/seldom" --max-steps 40 --threads 1 >"$tmp/out" 2>"$tmp/err"
check large-evaluations-are-seldom grep -q '40 steps of 4 rows, evaluated every 34' "$tmp/err"
check few-cases-make-many-steps [ "$(steps few)" -ge 100 ]
check few-cases-warm-up-is-a-tenth is few warmup_steps 12
# The first step already learns, and each step of the warm-up more than the one before.
check few-cases-no-dead-step eval 'sed -n "s/.*\"learning_rate\": *\([-0-9.e]*\).*/\1/p" "$tmp/few/metrics.jsonl" | head -n 12 | awk "{ if (!(\$1 > last)) bad = 1; last = \$1 } END { exit bad || NR != 12 }"'

# ---- memory of fine-tuning -----------------------------------------------------------------------------------------------
# peak NAME FILE: kilobytes at most, of six steps of 64 rows.
peak() {
    /usr/bin/time -f %M -o "$tmp/$1.peak" "$BANYAN" finetune "$tmp/wide" --data "$2" --out "$tmp/$1" --batch-size 64 --epochs 1 --threads 1 --quiet --json >"$tmp/out" 2>"$tmp/err"
    tail -n 1 "$tmp/$1.peak"
}
run train --model bert --objective mlm --data "$tmp/text.txt" --tokenizer "$tmp/words" --layers 2 --heads 2 --width 32 --inner 64 \
    --context 260 --seq 16 --batch-size 4 --max-steps 1 --threads 1 --out "$tmp/wide" --quiet
awk 'BEGIN { for (i = 0; i < 640; i++) { n = 20 + int(i / 64) * 24; for (k = 0; k < n; k++) printf "%s ", (k + i) % 3 ? "good" : "film"; printf "\t%d\n", i % 2 } }' >"$tmp/lengths.tsv"
tail -n 64 "$tmp/lengths.tsv" >"$tmp/longest.tsv"
if [ -x /usr/bin/time ]; then
    one=$(peak mem1 "$tmp/longest.tsv")
    check one-length [ -s "$tmp/mem1/model.safetensors" ]
    all=$(peak mem2 "$tmp/lengths.tsv")
    check memory-is-announced grep -q '"activation_bytes":[1-9]' "$tmp/out"
    check rows-of-many-lengths-share-memory awk -v one="$one" -v all="$all" 'BEGIN { exit !(one > 0 && all < 1.2 * one) }'
else
    echo "# the memory of fine-tuning was not tested: /usr/bin/time is not there"
fi
exit $failed
