#!/bin/sh
# inputs.sh - data files as people have them: packed with gzip or zstd, on the standard input, JSON lists, tables whose header
# is not known; and files that would unpack to more than any text.
# shellcheck disable=SC2016,SC2317 # check evaluates what it is given
. "$(dirname "$0")/lib/common.sh"
own_folder

small="--model gpt2 --tokenizer char --layers 1 --heads 2 --width 16 --context 16 --batch-size 2 --max-steps 2 --threads 1 --quiet"
i=0
while [ $i -lt 60 ]; do
    echo "the cat sat on the mat and the dog ran after it."
    i=$((i + 1))
done >"$tmp/text.txt"
gzip -k "$tmp/text.txt"
{
    head -n 20 "$tmp/text.txt" | gzip
    tail -n +21 "$tmp/text.txt" | gzip
} >"$tmp/parts.txt.gz"

# same A B: two runs saw the same tokens.
same() {
    cmp "$tmp/$1/data/train.bin" "$tmp/$2/data/train.bin"
}

# shellcheck disable=SC2086 # several options
learn() {
    out=$1
    shift
    "$BANYAN" train $small --out "$tmp/$out" "$@" >"$tmp/out" 2>"$tmp/err"
    rc=$?
}

learn plain --data "$tmp/text.txt"
check plain-text works .
learn stdin --data - <"$tmp/text.txt"
check stdin works .
check stdin-is-the-same same plain stdin
learn packed --data "$tmp/text.txt.gz"
if [ $rc -ne 0 ] && grep -q 'built without zlib' "$tmp/err"; then
    check gzip-is-refused grep -q 'gunzip -k' "$tmp/err"
else
    check gzip works .
    check gzip-is-the-same same plain packed
    learn parts --data "$tmp/parts.txt.gz"
    check gzip-of-two-parts same plain parts
    gzip -c "$tmp/text.txt" | "$BANYAN" train $small --data - --out "$tmp/packed-stdin" >"$tmp/out" 2>"$tmp/err"
    check gzip-on-stdin same plain packed-stdin
    head -c 60 "$tmp/text.txt.gz" >"$tmp/cut.txt.gz"
    learn cut --data "$tmp/cut.txt.gz"
    check gzip-cut-off fails 1 'cut.txt.gz: the compressed data is truncated'
    cp "$tmp/text.txt.gz" "$tmp/bad.txt.gz"
    printf '\377\377\377\377\377\377\377\377' | dd of="$tmp/bad.txt.gz" bs=1 seek=24 conv=notrunc 2>/dev/null
    learn bad --data "$tmp/bad.txt.gz"
    check gzip-damaged fails 1 'bad.txt.gz: the compressed data is damaged'
    head -c 100000000 /dev/zero | gzip -9 >"$tmp/bomb.gz"
    learn bomb --data "$tmp/bomb.gz" --tokenizer byte
    check gzip-bomb fails 1 'bomb.gz decompresses to more than 250 times its size'
fi
if command -v zstd >/dev/null 2>&1; then
    zstd -q -k "$tmp/text.txt"
    learn zst --data "$tmp/text.txt.zst"
    if [ $rc -ne 0 ] && grep -q 'built without libzstd' "$tmp/err"; then
        check zstd-is-refused grep -q 'zstd -d' "$tmp/err"
    else
        check zstd-is-the-same same plain zst
    fi
else
    echo "# zstd packs not tested: the program zstd is not there"
fi
printf 'PAR1....' >"$tmp/x.parquet"
learn parquet --data "$tmp/x.parquet"
check parquet-says-how fails 1 'x.parquet is Parquet.*pandas.read_parquet'
learn twice --data - --eval-data - <"$tmp/text.txt"
check stdin-once fails 1 'only once'

# A run from the standard input goes on without it.
learn again --data - <"$tmp/text.txt"
# shellcheck disable=SC2086 # several options
"$BANYAN" train $small --data - --out "$tmp/again" </dev/null >"$tmp/out" 2>"$tmp/err"
rc=$?
check stdin-goes-on works .

# One that replaces it takes its input over only when it has started.
cp -a "$tmp/again" "$tmp/before"
tr a-z b-za <"$tmp/text.txt" >"$tmp/other.txt"
# shellcheck disable=SC2086 # several options
replace() { # OPTIONS...: start afresh from another text
    "$BANYAN" train $small --data - --out "$tmp/again" --overwrite "$@" <"$tmp/other.txt" >"$tmp/out" 2>"$tmp/err"
    rc=$?
}
replace --context 100000000
check stdin-of-a-start-that-fails [ $rc -eq 1 ]
check stdin-is-kept cmp "$tmp/text.txt" "$tmp/again/data/input"
check stdin-leaves-nothing [ ! -e "$tmp/again/data/input.new" ]
# shellcheck disable=SC2086 # several options
"$BANYAN" train $small --data - --out "$tmp/again" --max-steps 5 </dev/null >"$tmp/out" 2>"$tmp/err"
rc=$?
check stdin-still-goes-on works '^[1-9].* steps in'
replace
check stdin-of-a-start works .
check stdin-is-replaced cmp "$tmp/other.txt" "$tmp/again/data/input"
check stdin-leaves-one [ ! -e "$tmp/again/data/input.new" ]
made=$(stat -c %y "$tmp/again/data/train.bin")
# shellcheck disable=SC2086 # several options
"$BANYAN" train $small --data - --out "$tmp/again" </dev/null >"$tmp/out" 2>"$tmp/err"
check stdin-is-tokenised-once [ "$made" = "$(stat -c %y "$tmp/again/data/train.bin")" ]

# Pairs of packed files, by their languages.
head -n 40 "$tmp/text.txt" | gzip >"$tmp/p.en.gz"
head -n 40 "$tmp/text.txt" | tr a-m n-z | gzip >"$tmp/p.de.gz"
rows=$small small=$(echo "$small" | sed 's/--batch-size 2//') # a step of translation has tokens, not rows
learn pairs --model transformer --tokenizer bpe:60 --data "$tmp/p.en.gz" "$tmp/p.de.gz" --both-directions --batch-tokens 512 --context 128
check packed-pairs [ $rc -eq 0 ]
check packed-pairs-languages grep -q '>>de<<' "$tmp/pairs/data/tokenizer.json"

printf 'source\ttarget\na cat\teine Katze\na dog\tein Hund\n' >"$tmp/pairs.tsv"
# shellcheck disable=SC2086 # several options
"$BANYAN" train $(echo "$small" | sed 's/--quiet//') --model transformer --tokenizer bpe:60 --data "$tmp/pairs.tsv" --eval-fraction 0 --batch-tokens 64 \
    --out "$tmp/table" >"$tmp/out" 2>"$tmp/err"
rc=$?
check table-of-pairs works .
check table-of-pairs-is-shown grep -q 'pairs.tsv: 2 rows; with a header, source column 1 "source", target column 2 "target"' "$tmp/err"
small=$rows

# ---- tables --------------------------------------------------------------------------------------------------------------
mkdir "$tmp/words"
{
    printf '[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n'
    printf '%s\n' good bad fine awful film book the a
} >"$tmp/words/vocab.txt"
printf '{"tokenizer_class": "BertTokenizer", "do_lower_case": true}\n' >"$tmp/words/tokenizer_config.json"
"$BANYAN" train --model bert --objective mlm --data "$tmp/text.txt" --tokenizer "$tmp/words" --layers 1 --heads 2 --width 16 \
    --inner 32 --context 16 --batch-size 4 --max-steps 1 --threads 1 --out "$tmp/bert" --quiet >"$tmp/out" 2>"$tmp/err"
rc=$?
check a-tiny-bert works model
printf 'review\tsentiment\n' >"$tmp/unknown.tsv"
i=0
while [ $i -lt 6 ]; do
    printf 'a good film\tpos\nthe bad book\tneg\n'
    i=$((i + 1))
done | tee "$tmp/none.tsv" >>"$tmp/unknown.tsv"
tune="finetune $tmp/bert --threads 1 --max-steps 1 --batch-size 4"
# shellcheck disable=SC2086 # several options
tuned() {
    out=$1
    shift
    "$BANYAN" $tune --out "$tmp/$out" "$@" >"$tmp/out" 2>"$tmp/err"
    rc=$?
}
tuned h1 --data "$tmp/unknown.tsv"
check unknown-header fails 1 'unknown.tsv, line 1: .*--text "review" --label "sentiment"'
tuned h2 --data "$tmp/unknown.tsv" --text-column review --label-column sentiment
check named-columns works .
check columns-are-shown grep -q 'unknown.tsv: 12 rows; with a header, text column 1 "review", label column 2 "sentiment"' "$tmp/err"
check labels-are-counted grep -q '2 labels: neg (6), pos (6)' "$tmp/err"
tuned h3 --data "$tmp/none.tsv"
check no-header works .
check no-header-is-shown grep -q 'none.tsv: 12 rows; no header, text column 1, label column 2' "$tmp/err"
tuned h4 --data - <"$tmp/none.tsv"
check table-on-stdin works .
check table-on-stdin-is-named grep -q 'standard input: 12 rows' "$tmp/err"
printf '[{"text": "a good film", "label": "pos"},\n {"text": "the bad book", "label": "neg"}]\n' >"$tmp/list.json"
tuned h5 --data "$tmp/list.json"
check json-list works .
check json-list-is-shown grep -q 'list.json: 2 rows; text "text", label "label"' "$tmp/err"
exit $failed
