#!/bin/bash
# objectives.sh - `banyan train` with every objective: what it shows, what it records, what it refuses.
. "$(dirname "$0")/lib/common.sh"
own_folder
cd "$tmp" || exit 2

# A WordPiece tokenizer of single letters, which makes every word a first piece and continuations.
mkdir letters
{
    printf '{"version": "1.0", "truncation": null, "padding": null, "added_tokens": ['
    n=0
    for t in '[PAD]' '[UNK]' '[CLS]' '[SEP]' '[MASK]'; do
        [ $n -gt 0 ] && printf ', '
        printf '{"id": %d, "content": "%s", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}' $n "$t"
        n=$((n + 1))
    done
    printf '], "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null, "lowercase": true}, '
    printf '"pre_tokenizer": {"type": "BertPreTokenizer"}, "post_processor": null, '
    printf '"decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true}, "model": {"type": "WordPiece", "unk_token": "[UNK]", '
    printf '"continuing_subword_prefix": "##", "max_input_chars_per_word": 100, "vocab": {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, ".": 5'
    n=6
    for c in {a..z}; do
        printf ', "%s": %d, "##%s": %d' "$c" $n "$c" $((n + 1))
        n=$((n + 2))
    done
    printf '}}}\n'
} >letters/tokenizer.json
for d in one two three four five six seven eight; do
    for s in north south east west; do echo "The $d goes $s. It is $d."; done
    echo
done >docs.txt
for d in one two three four five six seven eight; do echo "the $d goes"; done >en.txt
for d in eins zwei drei vier acht neun elf zehn; do echo "die $d geht"; done >de.txt
head -n 7 de.txt >short.txt

train() { "$BANYAN" train --threads 1 --tokenizer letters --seq 48 "$@" >out 2>err; }

check "next sentence" shows 3 ', label [01]: \(next\|random\)' --model bert --data docs.txt
check "hidden tokens are marked" grep -q '\[MASK:' out
check "two texts" grep -q '^  B: ' out
check "sentence order" shows 3 'label [01]: \(in order\|swapped\)' --model albert --data docs.txt
check "full sentences" shows 3 ': mlm, ' --model roberta --data docs.txt
check "whole words" shows 3 '\[MASK:##' --model distilbert --data docs.txt --whole-words
check "languages" shows 8 '^  de: ' --model xlm --data en.txt,de.txt --languages en,de
check "translations" shows 3 '^  de: (positions 0 to ' --model xlm --data en.txt,de.txt --languages en,de --parallel
check "next token, languages" shows 2 'the last predicts "\[SEP\]"' --model xlm --objective clm --data en.txt --data de.txt --languages en,de
check "next token" shows 2 'every token predicts the next one' --model gpt2 --data docs.txt --tokenizer char
check "nothing is left behind" test ! -e runs -a -z "$(find . -name '*.bin')"
json() {
    train --show-batch 2 --json --model bert --data docs.txt && [ "$(wc -l <out)" -eq 2 ] &&
        [ "$(grep -c '^{"row":[01],"objective":"nsp","text":.*"segments":\[0,.*"hidden":\[{"at":.*"label_name":"' out)" -eq 2 ]
}
check "as JSON" json
same() { # the same rows whenever they are asked for
    train --show-batch 9 --model bert --data docs.txt --batch 4 && mv out first &&
        train --show-batch 9 --model bert --data docs.txt --batch 2 --accumulate 2 && cmp first out
}
check "the same rows, however a step is cut" same

records() {
    train --model bert --layers 1 --heads 2 --width 16 --data docs.txt --batch 4 --max-steps 6 --eval-steps 3 --out run \
        --eval-fraction 0.3 --whole-words && grep -q '"objective": *"nsp"' run/run.json && grep -q '"whole_words": *1' run/run.json &&
        grep -q '"mask_share": *0.15' run/run.json && grep -q '"unigram_entropy": *[1-9]' run/run.json &&
        [ "$(grep -c '"eval_loss": .*"eval_next_accuracy": ' run/metrics.jsonl)" -eq 2 ] && grep -q 'NSP/SOP accuracy' out &&
        grep -q '"BertForPreTraining"' run/last/config.json && grep -q '"mask_token": *"\[MASK\]"' run/last/tokenizer_config.json
}
check "a run records its objective" records
check "its first line tells the entropy" grep -q 'objective nsp, unigram entropy [1-9]' err
check "another objective is refused" eval '
    ! train --model bert --layers 1 --heads 2 --width 16 --data docs.txt --batch 4 --max-steps 6 --eval-steps 3 --out run \
        --eval-fraction 0.3 --whole-words --objective mlm && grep -q "started with objective nsp" err'

head -n 5 docs.txt >one.txt
echo "x" >>one.txt
check "one document of two sentences" refuses "separate documents by blank lines" --model bert --data one.txt --eval-fraction 0
check "no mask token" refuses "has no .* token, which the objective \"nsp\" requires" --model bert --data docs.txt --tokenizer char
check "lines that do not match" refuses "short.txt has 7" --model xlm --data en.txt,short.txt --languages en,de --parallel
check "a file too few" refuses "2 languages require" --model xlm --data en.txt --languages en,de
check "a head that is not there" refuses "no head for the objective \"nsp\"; its own is \"mlm\"" --model roberta --data docs.txt --objective nsp
check "a decoder has none of it" refuses "no head for the objective \"mlm\"" --model gpt2 --data docs.txt --objective mlm
printf '\n \n\n' >blank.txt
check "no text" refuses "blank.txt: no text" --model bert --data blank.txt
