#!/bin/bash
# recurrent.sh - recurrent models from the command line: language models of characters, words and pieces with a carried state, going on
# bit for bit, masked tokens in both directions, labels and tags; translation with every attention, scheduled sampling, beams,
# alignments, fine-tuning; and what is refused.
# shellcheck disable=SC2034,SC2086,SC2154,SC2317 # check evaluates what it is given
. "$(dirname "$0")/lib/common.sh"
own_folder
cd "$tmp" || exit 2
cat "$BANYAN_SOURCE"/src/graph/[a-d]*.c >text
head -c 1200 "$BANYAN_SOURCE/src/graph/plan.c" >held

train() { "$BANYAN" train --threads 1 --quiet "$@" >out 2>err; }
less() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a != "" && b != "" && a + 0 < b + 0) }'; }
near() { awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; exit !(a != "" && b != "" && d < 1e-5 && d > -1e-5) }'; }
loss() { sed -n "$2s/.*\"loss\": \\([0-9.]*\\).*/\\1/p" "$1/metrics.jsonl"; }
same() { # A B FILES...: the runs ended alike
    local a=$1 b=$2 file
    shift 2
    for file in model.safetensors optimizer.safetensors trainer_state.json config.json "$@"; do
        cmp "$a/last/$file" "$b/last/$file" || return 1
    done
}

# ---- language models ---------------------------------------------------------------------------------------------------------
lm() { # FAMILY OUT STEPS OPTIONS...
    local family=$1 out=$2 steps=$3
    shift 3
    train --model "$family" --data text --out "$out" --layers 2 --width 32 --context 16 --batch-size 4 --max-steps "$steps" \
        --eval-steps 6 --save-steps 6 --warmup-steps 3 --lr-scheduler constant "$@"
}
evaluate() {
    "$BANYAN" eval "$1" --data held --threads 1 --quiet --json "${@:2}" >out 2>err
    sed -n 's/.*"loss":\([0-9.]*\).*/\1/p' out
}
for family in rnn lstm gru; do
    lm $family $family 24 --dropout 0.1 && lm $family $family-parts 6 --dropout 0.1 && lm $family $family-parts 24 --dropout 0.1
    check "$family trains" less "$(loss $family 24)" "$(loss $family 1)"
    check "$family in parts is the run, with its states" same $family $family-parts streams.safetensors
    check "$family: the length of segments does not change what a text costs" near "$(evaluate $family --seq 1)" "$(evaluate $family --seq 64)"
    check "$family writes" eval '"$BANYAN" generate $family --prompt static --greedy --max-new-tokens 1200 --threads 1 --json >out 2>err &&
        grep -q "\"finish_reason\":\"length\"" out'
done
check "a text that goes on beyond the segments begins as a shorter one" eval '
    ids() { sed -n "s/.*\"ids\":\[\([^]]*\)\].*/\1/p" out | cut -d, -f1-100; }
    "$BANYAN" generate lstm --prompt static --greedy -n 400 --threads 1 --json >out && long=$(ids) &&
    "$BANYAN" generate lstm --prompt static --greedy -n 100 --threads 1 --json >out && [ "$long" = "$(ids)" ]'
lm lstm two 12 --gradient-accumulation-steps 2 --bf16 && lm lstm two-parts 6 --gradient-accumulation-steps 2 --bf16 &&
    lm lstm two-parts 12 --gradient-accumulation-steps 2 --bf16
check "bf16, with states of their own for micro-batches" same two two-parts streams.safetensors
check "which the checkpoint holds" eval '"$BANYAN" inspect two/last/streams.safetensors | grep -q "stream.1.c.1"'
check "the head of the smallest preset is tied" eval 'grep -q "\"tie_word_embeddings\": *true" lstm/last/config.json &&
    ! "$BANYAN" inspect lstm/last/model.safetensors | grep -q decoder.weight'
check "that of the others is not" eval 'lm gru small 1 --preset small && grep -q "\"tie_word_embeddings\": *false" small/last/config.json &&
    "$BANYAN" inspect small/last/model.safetensors | grep -q "decoder.weight .*32"'
# A text of equal segments, read without learning: the loss of a step tells which state it began with.
for i in {1..200}; do printf sixteen-bytes-16; done >equal
check "states begin again every sixteenth segment" eval 'train --model lstm --data equal --tokenizer byte --out begins --layers 1 --width 32 \
    --context 16 --batch-size 4 --max-steps 18 --eval-steps 18 --learning-rate 1e-30 &&
    [ "$(loss begins 1)" = "$(loss begins 17)" ] && [ "$(loss begins 2)" = "$(loss begins 18)" ] && [ "$(loss begins 1)" != "$(loss begins 16)" ]'
check "words" eval 'lm lstm words 6 --tokenizer word:300 && grep -q "\"type\": \"WordLevel\"" words/last/tokenizer.json &&
    "$BANYAN" tokenize words/last "static int xyzzy" --threads 1 >out && [ "$(wc -w <out)" -eq 3 ]'
check "they write" eval '"$BANYAN" generate words --prompt "static int" -n 5 --threads 1 >out 2>err'
check "pieces" eval 'lm gru pieces 6 --tokenizer bpe:400 && near "$(evaluate pieces --seq 3)" "$(evaluate pieces --seq 20)"'
before=$(evaluate gru/last)
check "its state does not grow" eval '"$BANYAN" inspect gru/last >out 2>err && grep -q "a state of .* per sequence" out'
check "a copy is the same model" eval '"$BANYAN" convert gru/last copy --dtype f32 >out 2>err && [ "$before" = "$(evaluate copy)" ]'
check "a state dictionary alone is a model" eval '"$BANYAN" convert gru/last/model.safetensors bare >out 2>err && grep -q "\"num_layers\": *2" bare/config.json'
check "one that lacks a matrix is refused" eval '! "$BANYAN" convert gru/last/model.safetensors less --rename rnn.weight_hh_l1=other >out 2>err &&
    grep -q "layer 1 are missing" err && [ ! -e less ]'

# ---- both directions, labels, tags -------------------------------------------------------------------------------------------
for i in {1..20}; do printf 'a good film\tgood\na poor film\tpoor\n'; done >labels.tsv
for i in {1..10}; do printf 'EU B-ORG\nrejects O\nGerman B-MISC\ncall O\n\nPeter B-PER\nsaid O\n\n'; done >tags.conll
lm gru masked 6 --objective mlm --tokenizer bpe:400
check "masked tokens, in both directions" grep -q '"bidirectional": *true' masked/last/config.json
check "a masked token is filled in" eval '"$BANYAN" fill masked "static ___ x" --threads 1 >out 2>err'
for from in pieces masked; do
    tune="finetune $from/last --threads 1 --quiet --learning-rate 1e-2 --json"
    check "labels, after $from" eval '"$BANYAN" $tune --data labels.tsv --eval labels.tsv --epochs 8 --out $from-labels >out 2>err && grep -q "\"accuracy\":1" out'
    check "and tags" eval '"$BANYAN" $tune --task tag --data tags.conll --eval tags.conll --epochs 20 --out $from-tags >out 2>err && grep -q "\"f1\":1" out'
done
check "a network in both directions writes no text" eval '! "$BANYAN" generate masked --prompt static -n 3 --threads 1 >out 2>err && test -s err'

# ---- translation -------------------------------------------------------------------------------------------------------------
for a in one two three four five six seven eight nine ten; do
    for b in dog cat horse bird fish; do
        echo "The $b number $a goes home." >>t.en
        echo "Das Tier $b Nummer $a geht nach Hause." >>t.de
    done
done
translator() { # OUT STEPS OPTIONS...
    local out=$1 steps=$2
    shift 2
    train --model rnn-seq2seq --width 32 --data t.en t.de --tokenizer bpe:200 --batch-tokens 128 --eval-steps 4 --warmup 3 \
        --schedule constant --max-steps "$steps" --out "$out" "$@"
}
for attention in none additive dot general concat; do
    cell=gru
    [ $attention = general ] && cell=lstm
    [ $attention = none ] && cell=rnn
    translator $attention 12 --attention $attention --cell $cell && translator $attention-parts 4 --attention $attention --cell $cell &&
        translator $attention-parts 12 --attention $attention --cell $cell
    check "attention $attention: in parts" same $attention $attention-parts
    check "attention $attention: it learns" less "$(loss $attention 12)" "$(loss $attention 1)"
    check "attention $attention: beams" eval '"$BANYAN" translate $attention "The dog goes home." --beams 5 --return 2 -n 8 --threads 1 >out 2>err && test -s out'
done
check "its cell and attention are recorded" eval 'grep -q "\"attention\": *\"general\"" general/run.json && grep -q "\"cell\": *\"lstm\"" general/last/config.json'
check "another attention does not go on" eval '! translator general 12 --attention dot --cell lstm && grep -q attention err'
sampling() { translator "$1" "$2" --scheduled-sampling 0.5 --accumulate 2 --schedule "$3"; }
check "scheduled sampling" sampling sampled 8 cosine
# Killed somewhere after step 4.
"$BANYAN" train --model rnn-seq2seq --width 32 --data t.en t.de --tokenizer bpe:200 --batch-tokens 128 --eval-steps 4 --warmup 3 --max-steps 8 \
    --out sampled-killed --scheduled-sampling 0.5 --accumulate 2 --schedule cosine --threads 1 --quiet >out 2>err &
pid=$!
for i in {1..200}; do [ -e sampled-killed/last/model.safetensors ] && break; sleep 0.02; done
kill -9 $pid 2>/dev/null
wait $pid 2>/dev/null
sampling sampled-killed 8 cosine
check "it goes on as it would have after a kill" same sampled sampled-killed
check "and it changes the run" eval 'translator forced 8 --accumulate 2 --schedule cosine && ! cmp -s forced/last/model.safetensors sampled/last/model.safetensors'
check "with another share it does not go on" eval '! translator sampled 8 --accumulate 2 --schedule cosine --scheduled-sampling 0.2 && grep -q scheduled_sampling err'
check "scheduled sampling needs an encoder-decoder" eval '! train --model lstm --data text --scheduled-sampling 0.5 --out bad && grep -q "needs an encoder-decoder" err'
check "two vocabularies" eval 'translator apart 2 --target-tokenizer bpe:150 && "$BANYAN" inspect apart/last/model.safetensors >out &&
    grep -q "encoder.embedding.weight .*, 16)" out && grep -q "decoder.embedding.weight .*, 16)" out && ! grep -q " embedding.weight" out && "$BANYAN" translate apart "The dog" -n 4 --threads 1 >out 2>err'
check "words of a translation have no spaces before stops" eval 'translator words-pair 2 --tokenizer word:100 &&
    "$BANYAN" tokenize words-pair/last "The dog goes home." >ids && "$BANYAN" tokenize words-pair/last --decode --no-special <ids >out && grep -q "^The dog goes home\.$" out'
check "the alignment" eval '"$BANYAN" attention additive "The dog goes home." --target "Das Tier geht" -o map.svg --threads 1 >out 2>err && grep -q "<svg" map.svg &&
    "$BANYAN" attention additive "The dog goes home." --target "Das Tier geht" --threads 1 --json >out 2>err && grep -q "\"written\":\[\"Das\"" out'
check "without attention there is none" eval '! "$BANYAN" attention none "The dog" --target Das --threads 1 >out 2>err && test -s err'
check "it is judged" eval '"$BANYAN" eval additive t.en t.de --threads 1 >out 2>err && grep -q "BLEU" out'
paste t.en t.de >t.tsv
check "it is tuned" eval '"$BANYAN" finetune additive/best --task seq2seq --data t.tsv --eval t.tsv --max-steps 2 --threads 1 --out tuned >out 2>err && grep -q "^BLEU" out'

exit $failed
