#!/bin/sh
# sparse_transformer.sh - a tiny Sparse Transformer in each pattern and mode: training, resuming bit for bit, generation with
# the cache, pixels, fine-tuning with a head, shapes that do not fit.
# shellcheck disable=SC2317 # check evaluates what it is given
. "$(dirname "$0")/lib/common.sh"
. "$(dirname "$0")/lib/family.sh"
own_folder
cat "$BANYAN_SOURCE"/src/graph/[a-d]*.c >"$tmp/text"

# train OUT STEPS OPTIONS...
train() {
    out=$1 steps=$2
    shift 2
    run train --model sparse-transformer --tokenizer byte --data "$tmp/text" --out "$tmp/$out" --layers 2 --heads 4 --width 32 \
        --context 40 --batch-size 8 --max-steps "$steps" --eval-steps 6 --save-steps 6 --warmup-steps 3 --lr-scheduler constant \
        --threads 1 --quiet "$@"
}

train alone 24
check "a Sparse Transformer trains" less "$(loss alone 24)" "$(loss alone 1)"
check "its pattern is strided" has alone '"attention_pattern": "strided"'
check "the stride is near the square root of the context" has alone '"attention_stride": 8'
train again 12
train again 24
check "a resumed run ends with the same bytes" same alone again
train again 30 --attention fixed
check "another pattern does not continue it" fails 1 attention

set -- --attention fixed --attention-mode heads --stride 10 --summary 3 --dropout 0.1
train fixed 24 "$@"
check "a fixed pattern shared among heads trains" less "$(loss fixed 24)" "$(loss fixed 1)"
check "its configuration names the pattern" has fixed '"attention_pattern": "fixed"'
check "its mode" has fixed '"attention_mode": "heads"'
check "its stride" has fixed '"attention_stride": 10'
check "and its summaries" has fixed '"attention_summary": 3'
train fixed2 12 "$@"
train fixed2 24 "$@"
check "with dropout, a resumed run ends with the same bytes" same fixed fixed2
train turns 6 --attention-mode alternating --preset tiny-fixed
check "alternating layers" has turns '"attention_mode": "alternating"'
train long 6 --stride 1000
check "a stride beyond the context is a window over all of it" works ""

for model in alone fixed turns; do
    check "$model: a batch generates what its rows generate alone" batched "$model" static "return by" --max-new-tokens 20
    check "$model generates" works '"finish_reason":"length"'
done

# ---- pixels: 60 images of 8 x 4 pixels with 3 channels, as 16-bit tokens, row after row -------------------------------------
awk 'BEGIN { for (i = 0; i < 60; i++) for (y = 0; y < 4; y++) for (x = 0; x < 8; x++) for (c = 0; c < 3; c++)
    printf "%c%c", 65 + (i + 2 * x + c) % 26, 0 }' >"$tmp/pixels.bin"
run train --model sparse-transformer --tokenizer byte --data "$tmp/pixels.bin" --out "$tmp/pixels" --layers 2 --heads 2 --width 32 \
    --context 96 --stride 24 --batch-size 4 --max-steps 60 --learning-rate 3e-3 --warmup-steps 3 --threads 1 --quiet
check "pixels train" less "$(loss pixels 60)" "$(loss pixels 1)"

# ---- heads ------------------------------------------------------------------------------------------------------------------
labelled_data
check "classification" learns alone SparseTransformerForSequenceClassification labels.tsv classify '"accuracy":1'
check "its class" grep -q SparseTransformerForSequenceClassification "$tmp/alone-classify/config.json"
check "tags" learns fixed SparseTransformerForTokenClassification tags.conll tag '"f1":1'

# ---- what does not fit ------------------------------------------------------------------------------------------------------
train bad 6 --attention fixed --stride 4 --summary 5
check "more summaries than a block has" fails 1 attention_summary
train bad 6 --attention-mode heads --heads 1
check "one head cannot be shared out" fails 1 "two heads"
cp -r "$tmp/alone/last/." "$tmp/bad"
sed -i 's/"attention_pattern": *"strided"/"attention_pattern": "dotted"/' "$tmp/bad/config.json"
run generate "$tmp/bad" "a" --max-new-tokens 2 --threads 1
check "an unknown pattern" fails 1 "strided, fixed"
run train --model gpt2 --stride 4 --tokenizer byte --data "$tmp/text" --out "$tmp/gpt2" --max-steps 2 --quiet
check "GPT-2 has no patterns" fails 1 "no attention patterns"

exit $failed
