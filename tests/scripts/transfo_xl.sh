#!/bin/sh
# transfo_xl.sh - a tiny Transformer-XL: training with its memories, going on bit for bit after a stop and after a kill,
# evaluation by segments and by sliding windows, generation without end, saving, opening and fine-tuning.
# shellcheck disable=SC2317 # check evaluates what it is given
. "$(dirname "$0")/lib/common.sh"
. "$(dirname "$0")/lib/family.sh"
own_folder
cat "$BANYAN_SOURCE"/src/graph/[a-d]*.c >"$tmp/text"
head -c 1200 "$BANYAN_SOURCE/src/graph/plan.c" >"$tmp/held"

# train OUT STEPS OPTIONS...
train() {
    out=$1 steps=$2
    shift 2
    run train --model transfo-xl --data "$tmp/text" --out "$tmp/$out" --layers 2 --heads 4 --width 32 --context 16 --memory 24 \
        --batch-size 4 --max-steps "$steps" --eval-steps 6 --save-steps 6 --warmup-steps 3 --lr-scheduler constant --threads 1 \
        --tokenizer byte --quiet "$@"
}

train alone 24 --dropout 0.1
check "a Transformer-XL trains" less "$(loss alone 24)" "$(loss alone 1)"
train again 12 --dropout 0.1
train again 24 --dropout 0.1
check "a run that goes on ends with the same bytes, memories too" same alone again streams.safetensors
train two 18 --gradient-accumulation-steps 2 --bf16 --recompute
train stopped 6 --gradient-accumulation-steps 2 --bf16 --recompute
train stopped 18 --gradient-accumulation-steps 2 --bf16 --recompute
check "micro-batches have memories of their own, which go on" same two stopped streams.safetensors
streams() { "$BANYAN" inspect "$tmp/two/last/streams.safetensors" | grep -q 'stream.1.mems.1'; }
check "they are in the checkpoint" streams

# Killed somewhere between steps 6 and 48.
train whole 48 --gradient-accumulation-steps 2
"$BANYAN" train --model transfo-xl --data "$tmp/text" --out "$tmp/killed" --layers 2 --heads 4 --width 32 --context 16 --memory 24 \
    --batch-size 4 --max-steps 48 --eval-steps 6 --save-steps 6 --warmup-steps 3 --lr-scheduler constant --threads 1 \
    --tokenizer byte --quiet --gradient-accumulation-steps 2 >/dev/null 2>&1 &
pid=$!
i=0
while [ $i -lt 200 ] && [ ! -e "$tmp/killed/last/model.safetensors" ]; do
    sleep 0.05
    i=$((i + 1))
done
kill -9 $pid 2>/dev/null
wait $pid 2>/dev/null
train killed 48 --gradient-accumulation-steps 2
check "a run that was killed ends with the same bytes" same whole killed streams.safetensors

train words 12 --preset tiny-adaptive
train further 6 --preset tiny-adaptive
train further 12 --preset tiny-adaptive
check "an adaptive softmax goes on alike" same words further streams.safetensors
check "and its configuration has the cutoffs" grep -q '"cutoffs"' "$tmp/words/last/config.json"
run generate "$tmp/words/last" --prompt static --max-new-tokens 40 --threads 1 --seed 3
check "it writes" works static

# ---- evaluation --------------------------------------------------------------------------------------------------------------
near() { awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; exit !(a != "" && b != "" && d < 1e-5 && d > -1e-5) }'; }
cp -r "$tmp/alone/last/." "$tmp/even"
sed -i 's/"same_length": *false/"same_length": true/' "$tmp/even/config.json"
evaluate() {
    model=$1
    shift
    run eval "$tmp/$model" --data "$tmp/held" --threads 1 --quiet --json "$@"
    sed -n 's/.*"loss":\([0-9.]*\).*/\1/p' "$tmp/out"
}
one=$(evaluate even --seq 1) some=$(evaluate even --seq 16) many=$(evaluate even --seq 64)
check "with same_length the segments do not matter: 1 and 16" near "$one" "$some"
check "and 64" near "$one" "$many"
check "a memory that is longer than the text is read as one segment" near "$(evaluate alone/last --memory 1200 --seq 16)" \
    "$(evaluate alone/last --memory 1200 --seq 1200)"
run eval "$tmp/alone/last" --data "$tmp/held" --max-tokens 60 --evaluate both --threads 1 --quiet
check "segments and sliding windows, with the ratio of speeds" works 'times as fast as sliding'
run eval "$tmp/alone/last" --data "$tmp/held" --by-position 4 --memory 0 --threads 1 --quiet
check "the loss by position" works 'part 4 of 4'
run eval "$tmp/alone/last" --data "$tmp/held" --stride 4 --threads 1 --quiet
check "windows that overlap" works 'in windows of 16'
carried=$(evaluate words/last --memory 1200 --seq 16)
check "an adaptive softmax is evaluated, whatever the shares of its tails" near "$carried" "$(evaluate words/last --memory 1200 --seq 1200)"
run eval "$tmp/words/last" --data "$tmp/held" --max-tokens 60 --evaluate both --threads 1 --quiet
check "by segments and by sliding windows too" works 'times as fast as sliding'
train apart 24 --memory 0
check "a model without a memory trains" less "$(loss apart 24)" "$(loss apart 1)"
check "and has no streams" [ ! -e "$tmp/apart/last/streams.safetensors" ]
train apart-again 12 --memory 0
run train --out "$tmp/apart-again" --max-steps 24 --quiet
check "it goes on without its options" cmp "$tmp/apart/last/model.safetensors" "$tmp/apart-again/last/model.safetensors"
check "its segments are apart" less "$(evaluate apart/last --seq 16 --max-tokens 200)" "$(evaluate apart/last --seq 1 --max-tokens 200)"
run train --model transfo-xl --data "$tmp/text" --tokenizer byte --memory 20000000 --out "$tmp/never"
check "a memory that is too long is refused with the longest one" fails 1 'expected 0 to 16777216'

# ---- generation --------------------------------------------------------------------------------------------------------------
run generate "$tmp/alone/last" --prompt static --greedy --max-new-tokens 1500 --threads 1 --json
check "it writes on past every length" works '"finish_reason":"length"'
ids() { sed -n "s/.*\"ids\":\\(\\[[^]]*\\]\\).*/\\1/p" "$tmp/out" | tr -d '[]' | cut -d, -f1-"$1"; }
long=$(ids 300)
run generate "$tmp/alone/last" --prompt static --greedy --max-new-tokens 300 --threads 1 --json
check "a longer text begins as a shorter one" [ "$long" = "$(ids 300)" ]

# ---- files and heads ---------------------------------------------------------------------------------------------------------
before=$(evaluate alone/last)
run convert "$tmp/alone/last" "$tmp/copy" --dtype f32
check "a copy is the same model" [ "$before" = "$(evaluate copy)" ]
labelled_data
run finetune "$tmp/alone/last" --task classify --data "$tmp/labels.tsv" --eval "$tmp/labels.tsv" --out "$tmp/tuned" --epochs 12 \
    --batch-size 8 --threads 1 --quiet --learning-rate 3e-3 --json
check "classification" works '"accuracy":1'
run finetune "$tmp/words/last" --task classify --data "$tmp/labels.tsv" --out "$tmp/words-tuned" --max-steps 2 --threads 1 --quiet
check "a body is taken from a model whose softmax has projections of its own" [ "$rc" -eq 0 ]
check "has its class" grep -q TransfoXLForSequenceClassification "$tmp/tuned/config.json"

exit $failed
