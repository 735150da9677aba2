#!/bin/bash
# seq2seq.sh - encoder-decoders from text to model: pairs of texts in all formats, vocabularies learnt on the spot, what is
# shown, a run that goes on bit for bit, averaged checkpoints, a vocabulary for each text, fine-tuning, filling in, and what is refused.
. "$(dirname "$0")/lib/common.sh"
export LC_ALL=C.UTF-8
own_folder
cd "$tmp" || exit 2

for a in one two three four five six seven eight nine ten; do
    for b in dog cat horse bird fish; do
        echo "The $b number $a goes home." >>t.en
        echo "Das Tier $b Nummer $a geht nach Hause." >>t.de
    done
done
paste t.en t.de >t.tsv
sed 's/\(.*\)\t\(.*\)/{"translation": {"en": "\1", "de": "\2"}}/' t.tsv >t.jsonl
head -n 9 t.de >short.de

small="--layers 1 --heads 2 --width 16 --threads 1"
train() { "$BANYAN" train "$@" >out 2>err; }

check "pairs of files" shows 3 '^  target: Das Tier .*</s>$' --model transformer --data t.en t.de --tokenizer bpe:200
check "their source" grep -q '^  source: The .* goes home.</s>$' out
check "a table" shows 3 '^  target: Das Tier .*</s>$' --model marian --data t.tsv --tokenizer unigram:200
check "JSON lines, by language" shows 3 '^  target: The .*</s>$' --model transformer --data t.jsonl --languages de,en --tokenizer bpe:200
check "WordPiece" shows 2 '^  target: Das Tier ' --model transformer --data t.tsv --tokenizer wordpiece:200
check "both directions" shows 40 '^  source: >>en<< *Das Tier' --model transformer --data t.en t.de --both-directions --tokenizer bpe:200
check "the other one" grep -q '^  source: >>de<< *The' out
check "a prefix" shows 2 '^  source: to German: The' --model t5 --objective translate --data t.tsv --prefix 'to German: ' --tokenizer unigram:400
check "spans" shows 2 '^  target: <extra_id_0>.*<extra_id_1>.*</s>$' --model t5 --data t.en --seq 32 --tokenizer unigram:400
check "infilling" shows 2 '^  source: <s>.*<mask>.*</s>$' --model bart --data t.en --seq 32 --tokenizer bpe:300
check "filling in" shows 8 '<|fim_prefix|>.*<|fim_suffix|>.*<|fim_middle|>' --model gpt2 --objective fim --data t.en --seq 32 --tokenizer bpe:400
json() {
    train --show-batch 2 --json --model transformer --data t.tsv --tokenizer bpe:200 &&
        [ "$(grep -c '"source":".*"target":".*"source_ids":\[.*,1\],"ids":\[0,.*"targets":\[.*,1\]}' out)" -eq 2 ]
}
check "as JSON" json

translate() { # OUT STEPS
    train $small --model transformer --data t.en t.de --tokenizer bpe:200 --batch-tokens 128 --accumulate 2 --label-smoothing 0.1 \
        --schedule inverse-sqrt --warmup 3 --eval-steps 4 --average 2 --max-steps "$2" --out "$1"
}
same() {
    translate whole 12 && translate parts 4 && translate parts 9 && translate parts 12 &&
        cmp whole/last/model.safetensors parts/last/model.safetensors &&
        cmp whole/last/optimizer.safetensors parts/last/optimizer.safetensors &&
        cmp <(sed 's/, "ms".*//' whole/metrics.jsonl) <(sed 's/, "ms".*//' parts/metrics.jsonl)
}
check "a run in parts is the run" same
check "a model directory" test -s whole/best/tokenizer.json -a -s whole/best/config.json -a -s whole/averaged/model.safetensors
check "its tokens" grep -q '"decoder_start_token_id": *0' whole/best/config.json
check "its record" grep -q '"label_smoothing": *0.1' whole/run.json
check "another smoothing is refused" eval '! train $small --model transformer --data t.en t.de --tokenizer bpe:200 --batch-tokens 128 \
    --accumulate 2 --label-smoothing 0 --schedule inverse-sqrt --warmup 3 --eval-steps 4 --max-steps 12 --out whole && grep -q label_smoothing err'
check "shapes of the halves" eval 'train $small --decoder-layers 2 --pre-norm --model transformer --data t.tsv --tokenizer bpe:200 \
    --max-steps 1 --out halves && grep -q "\"decoder_layers\": *2" halves/last/config.json && grep -q "\"encoder_layers\": *1" halves/last/config.json &&
    grep -q "\"normalize_before\": *true" halves/last/config.json'

# Two vocabularies.
two="--model transformer --data t.en t.de --tokenizer bpe:80 --target-tokenizer bpe:60"
check "a vocabulary for each text" shows 3 '^  target: Das Tier .*</s>$' $two
check "the source read with its own" grep -q '^  source: The .* goes home.</s>$' out
halves_of() { # OUT STEPS
    train $small $two --batch-tokens 128 --schedule inverse-sqrt --warmup 3 --eval-steps 4 --max-steps "$2" --average 2 --out "$1"
}
two_same() {
    halves_of two 8 && halves_of two-parts 4 && halves_of two-parts 8 && cmp two/last/model.safetensors two-parts/last/model.safetensors
}
check "a run of two vocabularies, in parts" two_same
two_model() {
    local d
    for d in two/best two/averaged; do
        test -s $d/tokenizer.json -a -s $d/target_tokenizer.json || return 1
        grep -q '"share_encoder_decoder_embeddings": *false' $d/config.json || return 1
        grep -q '"vocab_size": *80' $d/config.json || return 1
        grep -q '"decoder_vocab_size": *60' $d/config.json || return 1
    done
    "$BANYAN" inspect two/best/model.safetensors >out 2>err && grep -q 'encoder.embed_tokens.weight .*(80, 16)' out &&
        grep -q 'decoder.embed_tokens.weight .*(60, 16)' out && ! grep -q 'shared.weight' out &&
        "$BANYAN" inspect two/best/tokenizer_config.json >out 2>err && grep -q '80 tokens for the source and 60 for the target' out
}
check "its directory" two_model
check "learnt from the one text and the other" eval 'grep -q goes two/best/tokenizer.json && ! grep -q goes two/best/target_tokenizer.json &&
    grep -q "\"D\"" two/best/target_tokenizer.json && ! grep -q "\"D\"" two/best/tokenizer.json'
check "it translates" eval '"$BANYAN" translate two "The dog goes home." --max-new-tokens 12 --threads 1 >out 2>err && test -s out'
check "it is judged" "$BANYAN" eval two t.tsv --threads 1
check "its attention" eval '"$BANYAN" attention two "The dog goes home." --target "Das Tier geht" --threads 1 --json >out 2>err &&
    grep -q "\"tokens\":\[\"The\".*\"</s>\"\],\"written\":\[\"Das\".*\"</s>\"\]" out'
check "it generates" eval '"$BANYAN" generate two "The dog goes home." --max-new-tokens 4 --greedy --threads 1 >out 2>err'
check "it goes on with both where one is not given" eval 'train $small --model transformer --data t.en t.de --tokenizer bpe:80 --schedule inverse-sqrt --warmup 3 --batch-tokens 128 \
    --eval-steps 4 --max-steps 8 --out two && grep -q "nothing left" err'
check "going on with another is refused" eval '! train $small --model transformer --data t.en t.de --target-tokenizer bpe:70 --out two &&
    grep -q "target_tokenizer bpe:60" err'
check "directories for both" eval 'mkdir -p src dst && cp two/best/tokenizer*.json src && cp two/best/target_tokenizer.json dst/tokenizer.json &&
    train $small --model marian --data t.tsv --tokenizer src --target-tokenizer dst --max-steps 1 --out from-dirs &&
    cmp dst/tokenizer.json from-dirs/last/target_tokenizer.json'
check "fine-tuning it" eval '"$BANYAN" finetune two/best --task seq2seq --data t.tsv --max-steps 2 --threads 1 --out two-tuned >out 2>err &&
    test -s two-tuned/target_tokenizer.json'
check "two vocabularies and both directions" refuses 'both directions require a shared vocabulary' $two --both-directions
check "the same from a directory" refuses 'both directions require a shared vocabulary' --model transformer --data t.en t.de --tokenizer two/best --both-directions
check "two vocabularies of T5" refuses 'T5.*one vocabulary' $two --model t5 --objective translate
check "of BART" refuses 'BART.*one vocabulary' $two --model bart --objective translate
check "of a decoder" refuses 'for the objective "translate"' --model gpt2 --data t.en --tokenizer bpe:400 --target-tokenizer bpe:400
check "special tokens that differ" eval 'sed "s/<pad>/<swap>/g;s/<unk>/<pad>/g;s/<swap>/<unk>/g" two/best/target_tokenizer.json >dst/tokenizer.json &&
    refuses "padding token has id 0 in the source and 2 in the target" --model transformer --data t.tsv --tokenizer src --target-tokenizer dst'

tune() {
    train $small --model t5 --data t.en --seq 32 --tokenizer unigram:400 --batch-size 4 --max-steps 3 --out t5 &&
        { for i in 1 2 3 4 5; do printf 'a good one\t1\na bad one\t0\n'; done; } >labels.tsv &&
        "$BANYAN" finetune t5/best --task seq2seq --data labels.tsv --eval labels.tsv --prefix 'sst2: ' --label-words negative,positive \
            --max-steps 4 --threads 1 --out tuned >out 2>err && test -s tuned/model.safetensors -a -s tuned/tokenizer.json && grep -q 'loss [0-9]' out &&
        grep -q '^10 texts in .* exact [01]\.' out && grep -q '^BLEU ' out && grep -q '^chrF2 ' out && grep -q '^rouge1 .*rougeL ' out
}
same_figures() { # those of eval, of as many texts
    "$BANYAN" finetune t5/best --task seq2seq --data labels.tsv --eval labels.tsv --prefix 'sst2: ' --label-words negative,positive --lr 1e-2 \
        --max-steps 12 --eval-texts 6 --predictions said.jsonl --threads 1 --quiet --json --out tuned3 >out 2>err && [ "$(wc -l <said.jsonl)" -eq 6 ] &&
        sed 's/.*"texts"/"texts"/; s/}$//' out >figures && head -n 6 labels.tsv >six.tsv &&
        "$BANYAN" eval tuned3 six.tsv --prefix 'sst2: ' --label-words negative,positive --metric bleu,chrf,rouge,exact --threads 1 --json >out 2>err &&
        sed 's/.*"texts"/"texts"/; s/,"seconds".*//' out | cmp - figures
}
check "fine-tuning" tune
check "figures are those of eval" same_figures
check "no texts are written" eval '"$BANYAN" finetune t5/best --task seq2seq --data labels.tsv --eval labels.tsv --prefix "sst2: " --label-words negative,positive \
    --max-steps 2 --eval-texts 0 --threads 1 --out tuned4 >out 2>err && ! grep -q BLEU out'
gr_stochastic() { # OUT OPTIONS...
    local to=$1
    shift
    "$BANYAN" finetune t5/best --task seq2seq --data labels.tsv --prefix "sst2: " --label-words negative,positive --max-steps 2 --threads 1 \
        --stochastic-rounding "$@" --out "$to" >out 2>err
}
check "fine-tuning with stochastic rounding" eval 'gr_stochastic tuned5 --bf16 && grep -q "\"dtype\": *\"bf16, stochastic rounding\"" tuned5/run.json'
check "which f32 has no use for" eval '! gr_stochastic tuned6 && grep -q "for parameters of bf16, not of f32" err'
check "a source of a megabyte" eval 'for i in {1..100000}; do printf "the dog go "; done >large && "$BANYAN" translate t5/best -f large -n 4 --beams 1 --threads 1 >out 2>err &&
    grep -q "1 text was cut to the first 1024 tokens" err'

check "a label without a word" eval '! "$BANYAN" finetune t5/best --task seq2seq --data labels.tsv --label-words negative \
    --max-steps 1 --threads 1 --out tuned2 >out 2>err && grep -q "labels.tsv, line 1.*no word" err'
fill() {
    train $small --model gpt2 --objective fim --data t.en --seq 32 --tokenizer bpe:400 --batch-size 4 --max-steps 3 --out hole &&
        "$BANYAN" generate hole --prefix 'The dog' --suffix 'home.' --max-new-tokens 4 --greedy --threads 1 >out 2>err
}
check "generating into a hole" fill
check "a model that cannot" eval '! "$BANYAN" generate whole --prefix a --suffix b >out 2>err && grep -q "fim_prefix" err'

check "files of different length" refuses 't.en has 50 lines but short.de has 9' --model transformer --data t.en short.de --tokenizer bpe:200
check "one file of lines" refuses 't.en: a file of lines needs a second file' --model transformer --data t.en --tokenizer bpe:200
check "a size that is none" refuses 'needs a size' --model transformer --data t.tsv --tokenizer bpe:many
check "no padding token" refuses 'no padding' --model transformer --data t.tsv --tokenizer byte
check "no sentinels" refuses 'no sentinel tokens' --model t5 --data t.en --tokenizer whole/best
check "no place for parts" refuses 'lacks <|fim_prefix|>' --model gpt2 --objective fim --data t.en --tokenizer byte --seq 32
check "a decoder does not translate" refuses 'no head for the objective "translate"' --model gpt2 --objective translate --data t.tsv --tokenizer bpe:200
check "all pairs too long" refuses 'which leaves none' --model transformer --data t.tsv --tokenizer bpe:200 --seq 8

# ---- texts that are no UTF-8 ----
# A tokenizer of single bytes, which the model writes in any order: broken characters are written as U+FFFD, and scored so.
cp -r "$BANYAN_SOURCE/tests/data/verify/t5" broken
{
    printf '{"version": "1.0", "added_tokens": [{"id": 0, "content": "<pad>", "special": true}, {"id": 1, "content": "</s>", "special": true}, '
    printf '{"id": 2, "content": "<unk>", "special": true}], "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, '
    printf '"decoder": {"type": "ByteLevel"}, "model": {"type": "BPE", "unk_token": "<unk>", "merges": [], "vocab": {"<pad>": 0, "</s>": 1, "<unk>": 2'
    id=3
    for token in a ¡ ¢ £ ¤ ¥ ¦ § ¨ © ª « ¬ ® ¯ ° ± ² ³ ´ µ ¶ · ¸ ¹ º » ¼ ½ ¾ ¿ À Á Â Ã Ä Å; do
        printf ', "%s": %d' "$token" $id
        id=$((id + 1))
    done
    printf '}}}\n'
} >broken/tokenizer.json
printf 'aaa\taa\naa\ta\n' >broken.tsv
scored() { "$BANYAN" eval broken --data broken.tsv --predictions broken.jsonl --threads 1 >out 2>err && grep -q '^BLEU 0.00' out; }
check "texts that are no UTF-8 are scored" scored
check "and written" grep -q '"text":"�' broken.jsonl
