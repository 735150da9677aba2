#!/bin/sh
# Input and circumstances that are meant to harm: pipes in place of files, empty separators, weights that are not
# numbers, files that shrink, signals in the middle of long work on text.
. "$(dirname "$0")/lib/common.sh"
own_folder
cd "$tmp" || exit 2
LIMIT=60

# soon ARGUMENTS...: like run, but a program that waits for ever is ended.
soon() {
    timeout "$LIMIT" "$BANYAN" "$@" >out 2>err </dev/null
    rc=$?
}

printf 'text\tlabel\n' >labels.tsv
for i in 1 2 3 4 5 6 7 8; do
    printf 'good thing %d\tup\nbad thing %d\tdown\n' $i $i
done >>labels.tsv
seq 1 400 | sed 's/$/ a line of text/' >text
"$BANYAN" train --model distilbert --data text --tokenizer bpe:300 --layers 1 --heads 2 --width 16 --context 32 --batch-size 4 \
    --max-steps 2 --out bert --threads 1 --quiet >log 2>&1 || echo "not ok a model to attack"
"$BANYAN" finetune bert/last --task classify --data labels.tsv --out classifier --epochs 1 --threads 1 --quiet >>log 2>&1 ||
    echo "not ok a classifier to attack"

# ---- what is no file
for name in config.json model.safetensors tokenizer.json; do
    rm -rf piped && cp -rL bert/last piped && rm piped/$name && mkfifo piped/$name
    soon fill piped "a ___" --threads 1
    check "a pipe as $name is refused" fails 1 "not a regular file"
done
rm -rf piped && cp -rL bert/last piped && rm piped/config.json && mkdir piped/config.json
soon fill piped "a ___" --threads 1
check "a folder as config.json is refused" fails 1 config.json

soon finetune bert/last --task classify --data labels.tsv --label-separator "" --out empty --threads 1
check "an empty separator of labels is refused" fails 1 "label separator is empty"

# ---- weights that are not numbers
# spoil FROM TO VALUE: every parameter of the copy is VALUE (four bytes in octal).
spoil() {
    local size header
    rm -rf "$2" && cp -rL "$1" "$2" || return 1
    header=$(od -A n -t u8 -N 8 "$2/model.safetensors" | tr -d ' ')
    size=$(($(wc -c <"$2/model.safetensors") - header - 8))
    head -c $((header + 8)) "$1/model.safetensors" >spoiled
    head -c "$size" /dev/zero | tr '\0' '\377' >>spoiled # all bits: NaN
    cp spoiled "$2/model.safetensors"
}
spoil classifier/last nan-classifier
spoil bert/last nan-bert
for verb in classify embed attention; do
    soon $verb nan-classifier "good thing" --threads 1
    check "$verb: weights of NaN" fails 1 "not finite"
done
soon embed nan-classifier --pooling max "good thing" --threads 1
check "embed, the largest: weights of NaN" fails 1 "not finite"
soon fill nan-bert "a ___" --threads 1
check "fill: weights of NaN" fails 1 "not finite"
soon eval nan-classifier labels.tsv --threads 1
check "eval of a task: weights of NaN" fails 1 "not finite"

# ---- a file that shrinks under a run
seq 1 60000 | sed 's/$/ more lines of text/' >long
"$BANYAN" train --data long --tokenizer byte --layers 1 --heads 2 --width 16 --context 256 --batch-size 64 \
    --max-steps 100000 --eval-steps 100000 --out shrinks --threads 1 >out 2>err &
pid=$!
i=0
while [ ! -s shrinks/metrics.jsonl ] && [ $i -lt 300 ]; do
    sleep 0.1
    i=$((i + 1))
done
: >shrinks/data/train.bin
wait $pid
rc=$?
shrunk() { [ "$rc" -eq 1 ] && grep -q "train.bin.*shorter" err; }
check "a mapped file that shrinks is named" shrunk

# ---- signals during work on text
seq 1 1000000 | sed 's/$/ is a line of a long text, of which there are very many/' >corpus
interrupted() { # SIGNAL
    local began ended
    rm -rf stopped
    "$BANYAN" train --data corpus --tokenizer bert/last --layers 1 --heads 2 --width 16 --context 16 --max-steps 1 --out stopped \
        --threads 1 --quiet >out 2>err &
    pid=$!
    while ! ls stopped/data/train.bin.tmp-* >/dev/null 2>&1 && kill -0 $pid 2>/dev/null; do
        sleep 0.05
    done
    kill "-$1" $pid || return 1
    began=$(date +%s)
    wait $pid
    rc=$?
    ended=$(date +%s)
    [ $rc -eq 130 ] && [ $((ended - began)) -le 5 ] && [ ! -e stopped/data/train.bin ]
}
check "SIGINT while a corpus is tokenised" interrupted INT
check "SIGTERM while a corpus is tokenised" interrupted TERM

# A pipe that nobody writes to: a signal ends the waiting.
mkfifo "$tmp/silent"
timeout -s TERM -k 5 2 "$BANYAN" train --data "$tmp/silent" --out "$tmp/silent-run" --max-steps 1 >"$tmp/out" 2>"$tmp/err" &
pid=$!
wait $pid
rc=$?
check "SIGTERM while a pipe has no writer" [ $rc -eq 124 ]

exit $failed
