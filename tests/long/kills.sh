#!/bin/bash
# Runs killed hundreds of times: KILLS signals (default 400) at random moments of training and fine-tuning with a
# checkpoint every step or two. After each kill the same command goes on; the end has the same bytes as a run left alone.
. "$(dirname "$0")/../scripts/lib/common.sh"
own_folder
cd "$tmp" || exit 1
kills=${KILLS:-400}
RANDOM=${RESUME_SEED:-$(($(date +%s) % 32768))}
cat "$BANYAN_SOURCE"/src/graph/[a-d]*.c >text
head -c 3000 text >held
for i in $(seq 60); do printf '%s\ttext number %d about %s\n' $((i % 2)) "$i" $((i * 7 % 5)); done >table.tsv
train() { # OUT: become a run
    exec "$BANYAN" train --data text --eval-data held --eval-batches 2 --tokenizer byte --out "$1" --layers 1 --heads 2 \
        --width 16 --context 16 -b 4 --warmup-steps 5 --max-steps 100 --eval-steps 7 --save-steps 2 --save-total-limit 2 \
        --dropout 0.1 --threads 1 --quiet >log 2>&1
}
tune() { # OUT: the same of fine-tuning
    exec "$BANYAN" finetune base/last --data table.tsv --eval table.tsv --label 1 --text 2 --out "$1" --max-steps 40 -b 8 \
        --eval-steps 9 --save-steps 1 --threads 1 --quiet >log 2>&1
}
(
    exec "$BANYAN" train --model bert --data text --tokenizer bpe:300 --out base --layers 1 --heads 2 --width 16 --context 32 \
        --seq 32 -b 4 --max-steps 2 --threads 1 --quiet >log 2>&1
)
# batter KIND COUNT: kill it so many times; a run that comes to its end is begun again elsewhere.
batter() {
    local kind=$1 left=$2 round=0 out pid code
    rm -rf alone.*
    ("$kind" "alone.$kind") || return 1
    while [ "$left" -gt 0 ]; do
        out=battered.$kind.$round
        "$kind" "$out" &
        pid=$!
        sleep "$(awk "BEGIN { print 0.05 + $RANDOM / 32768 * 0.4 }")"
        kill -KILL $pid 2>/dev/null
        wait $pid 2>/dev/null
        code=$?
        case $code in
        137) left=$((left - 1)) ;;
        0) ends "$kind" "$out" || return 1 && round=$((round + 1)) ;;
        *) echo "exit $code after a kill" && return 1 ;;
        esac
    done
    ("$kind" "$out") && ends "$kind" "$out"
}
ends() { # KIND OUT: as the one left alone
    local file
    for file in model.safetensors optimizer.safetensors trainer_state.json; do
        cmp "alone.$1/last/$file" "$2/last/$file" || return 1
    done
    cmp "alone.$1/best/model.safetensors" "$2/best/model.safetensors" || return 1
    ! find "$2" -name '*.tmp-*' -o -name 'unfinished*' -o -name '.*-new' | grep . || return 1
    rm -rf "$2.kept" && mv "$2" "$2.kept" && cp -a "$2.kept" "$2"
}
check "training, killed $((kills / 2)) times" batter train $((kills / 2))
check "fine-tuning, killed $((kills / 2)) times" batter tune $((kills / 2))
