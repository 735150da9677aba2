#!/bin/sh
# train_tokenizer.sh - `banyan train-tokenizer`: every pipeline by name and by kind, the files it writes, what it says, and what it refuses.
# shellcheck disable=SC2002,SC2016,SC2317 # a pipe is wanted; check evaluates what it is given
. "$(dirname "$0")/lib/common.sh"
own_folder

run() {
    "$BANYAN" train-tokenizer "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
    rc=$?
}

# encodes PATH TEXT: the tokenizer there turns the text into ids.
encodes() {
    "$BANYAN" tokenize "$1" "$2" >"$tmp/ids" 2>"$tmp/err" && grep -q '^[0-9]' "$tmp/ids"
}

# returns PATH TEXT: ... and the ids back into the text.
returns() {
    encodes "$1" "$2" && [ "$("$BANYAN" tokenize "$1" --decode --no-special <"$tmp/ids")" = "$2" ]
}

i=0
while [ $i -lt 200 ]; do
    echo "The banyan is a tree that stands on many trunks, and $i birds were singing in it. Grüße aus Köln."
    i=$((i + 1))
done >"$tmp/text"
: >"$tmp/empty"

for like in gpt2 roberta gpt bert bert-cased t5; do
    run --like $like --vocab-size 400 --out "$tmp/$like" "$tmp/text" "$tmp/empty"
    check "like $like" encodes "$tmp/$like" "The birds were singing"
    check "like $like says what it made" grep -q "tokens" "$tmp/out"
    check "like $like, configuration" grep -q '"tokenizer_class"' "$tmp/$like/tokenizer_config.json"
done
check "bytes come back" returns "$tmp/gpt2" "Any text: 中文, \\ and é"
check "pieces come back" returns "$tmp/t5" "The birds were singing in Köln."

run --kind bpe --vocab-size 200 --out "$tmp/bpe.json" "$tmp/text"
check "one file" returns "$tmp/bpe.json" "birds singing in a tree"
check "only that file" [ ! -e "$tmp/bpe.json/tokenizer.json" ]
run --kind bpe --end-of-word-suffix '</w>' --vocab-size 200 --out "$tmp/suffix.json" "$tmp/text"
check "a suffix" grep -q 'singing</w>' "$tmp/suffix.json"
run --kind wordpiece --continuing-prefix '~' --lowercase --vocab-size 200 --out "$tmp/wp.json" "$tmp/text"
check "a prefix" grep -q '"~g"' "$tmp/wp.json"
run --kind unigram --special '<s>,</s>' --special '<unk>' --vocab-size 150 --json --out "$tmp/uni.json" "$tmp/text"
check "special tokens in their order" grep -q '"content":"</s>"' "$tmp/uni.json"
check "a summary for machines" grep -q '^{"out":.*"kind":"Unigram","vocab_size":.*"different_words":.*}$' "$tmp/out"
check "nothing on stderr with --json --quiet" eval '"$BANYAN" train-tokenizer --quiet --json --out "$tmp/q.json" "$tmp/text" 2>&1 >/dev/null | cmp -s - /dev/null'

"$BANYAN" train-tokenizer -q --like gpt2 --threads 1 --vocab-size 500 --out "$tmp/one.json" "$tmp/text" >"$tmp/out" 2>"$tmp/err"
"$BANYAN" train-tokenizer -q --like gpt2 --threads 5 --vocab-size 500 --out "$tmp/five.json" "$tmp/text" >"$tmp/out" 2>"$tmp/err"
check "threads do not matter" cmp "$tmp/one.json" "$tmp/five.json"
run --like bert --vocab-size 300 --out "$tmp/first.json" "$tmp/text" "$tmp/empty"
cat "$tmp/text" | "$BANYAN" train-tokenizer -q --like bert --vocab-size 300 --out "$tmp/pipe.json" /dev/stdin >"$tmp/out" 2>"$tmp/err"
check "a pipe is a file too" cmp "$tmp/first.json" "$tmp/pipe.json"

run --like gpt2 "$tmp/text"
check "nowhere to write" fails 2 "out"
run --like gpt2 --out "$tmp/x"
check "no file" fails 2 "FILE"
run --like gpt2 --out "$tmp/x" "$tmp/text" "$tmp/nothing"
check "a file that is not there" fails 1 "$tmp/nothing"
run --like gpt2 --out "$tmp/x" "$tmp"
check "a directory for a file" fails 1 "directory"
run --like gpt9 --out "$tmp/x" "$tmp/text"
check "an unknown name" fails 2 "gpt9"
run --like gpt2 --vocab-size 100 --out "$tmp/x" "$tmp/text"
check "too small for the bytes" fails 1 "too small"
check "with a hint" grep -q "256" "$tmp/err"
run --kind bpe --vocab-size 20 --out "$tmp/x" "$tmp/text"
check "too small for the characters" fails 1 "limit-alphabet\|too small"
run --kind unigram --byte-level --out "$tmp/x" "$tmp/text"
check "Unigram over bytes" fails 1 "BPE"
check "nothing is left of what failed" [ ! -e "$tmp/x" ]

# A disk that is full, or a limit on the size of files: the old file stays, and no part of a new one.
cp "$tmp/bpe.json" "$tmp/before.json"
(ulimit -f 4 && "$BANYAN" train-tokenizer -q --like gpt2 --vocab-size 2000 --out "$tmp/bpe.json" "$tmp/text" >"$tmp/out" 2>"$tmp/err")
rc=$?
check "a file that may not grow" fails 1 "bpe.json"
check "the old file is whole" cmp "$tmp/before.json" "$tmp/bpe.json"
check "no half file" eval '[ -z "$(find "$tmp" -name "*.tmp-*")" ]'

# Interrupted while reading.
mkfifo "$tmp/fifo"
"$BANYAN" train-tokenizer --like gpt2 --out "$tmp/never" "$tmp/fifo" >"$tmp/out" 2>"$tmp/err" &
pid=$!
{ # two chunks: the progress after the first sees the signal
    yes "a line of text" | head -c 3000000
    kill -INT $pid
    yes "another line" | head -c 3000000
} >"$tmp/fifo" 2>/dev/null
wait $pid
rc=$?
check "interrupted" [ "$rc" -eq 130 ]
check "interrupted, nothing written" [ ! -e "$tmp/never" ]
exit $failed
