#!/bin/bash
# Runs that are killed, interrupted or found torn end with the same bytes as a run left alone.
. "$(dirname "$0")/lib/common.sh"
own_folder
cd "$tmp" || exit 1
cat "$BANYAN_SOURCE"/src/graph/[a-d]*.c >text
head -c 3000 text >held
seed=${RESUME_SEED:-$(($(date +%s) % 32768))} # of the moments of death; the outcome must not depend on them
RANDOM=$seed
echo "moments of death: RESUME_SEED=$seed"
steps=24

# run OUT OPTIONS...: become a tiny training run. train: the same in a process of its own. What it says goes to ./log.
run() {
    local out=$1
    shift
    exec "$BANYAN" train --data text --eval-data held --eval-batches 2 --tokenizer byte --out "$out" --layers 1 \
        --heads 2 --width 16 --context 16 --batch-size 4 --warmup-steps 5 --max-steps "$steps" --eval-steps 6 \
        --threads 1 --quiet "$@" >log 2>&1
}
train() { (run "$@"); }

# The metrics without what the clock decides.
course() { sed 's/, "ms": [^,}]*//; s/, "tokens_per_s": [^,}]*//' "$1/metrics.jsonl"; }

# same A B: the runs ended alike; the metrics of B have every step once and in order.
same() {
    local file
    for file in last/model.safetensors last/optimizer.safetensors last/trainer_state.json last/config.json \
        best/model.safetensors; do
        cmp "$1/$file" "$2/$file" || return 1
    done
    sed 's/^{"step": \([0-9]*\),.*}$/\1/' "$2/metrics.jsonl" | cmp - <(seq "$steps") || return 1
    cmp <(course "$1") <(course "$2")
}

# tidy OUT KEEP: the links lead to whole checkpoints, there are not too many of those, nothing temporary is left.
tidy() {
    local link file n
    for link in last best; do
        [ -L "$1/$link" ] || return 1
        for file in config model.safetensors optimizer.safetensors tokenizer trainer_state; do
            [ -s "$1/$link/$file" ] || [ -s "$1/$link/$file.json" ] || { echo "no $link/$file" && return 1; }
        done
        "$BANYAN" generate "$1/$link" "a" --max-new-tokens 2 --threads 1 || return 1
    done
    n=$(find "$1" -maxdepth 1 -name 'checkpoint-*' | wc -l)
    [ "$n" -le $(($2 + 1)) ] || { echo "$n checkpoints are left" && return 1; }
    ! find "$1" -name '*.tmp-*' -o -name 'unfinished*' -o -name '.*-new' | grep .
}

seconds() { # COMMAND...
    local start
    start=$(date +%s%N)
    "$@"
    awk "BEGIN { print ($(date +%s%N) - $start) / 1e9 }"
}

# batter OUT SIGNAL OPTIONS...: start the run again and again, each time with a signal at a random moment between its
# set-up and the middle of what the whole takes, until five have struck; then let it end. A run that gets through
# unharmed was no test and is repeated. codes: how the struck ones ended.
batter() {
    local out=$1 signal=$2 pid code
    shift 2
    codes=""
    for _ in $(seq 30); do
        run "$out" "$@" &
        pid=$!
        sleep "$(awk "BEGIN { print $idle / 2 + $RANDOM / 32768 * ($idle / 2 + ($whole - $idle) / 2) }")"
        kill "-$signal" $pid 2>/dev/null
        wait $pid 2>/dev/null
        code=$?
        if [ $code -eq 0 ]; then
            [ -n "$codes" ] && return 0
            rm -rf "$out"
            whole=$(awk "BEGIN { print ($whole + $idle) / 2 }") # the clock was read at a busy moment
            idle=$(awk "BEGIN { print $idle * 0.7 }")
            continue
        fi
        codes="$codes $code"
        cp log "log.$signal"
        [ "$(wc -w <<<"$codes")" -ge 5 ] && break
    done
    train "$out" "$@"
}

only() { # CODE: some runs were struck, and all of them ended with this code
    echo "exit codes:$codes"
    [ -n "$codes" ] && [ -z "${codes// $1/}" ]
}

# compare NAME SIGNAL CODE KEEP OPTIONS...: a run left alone, and one that is battered.
compare() {
    local name=$1 signal=$2 code=$3 keep=$4
    shift 4
    rm -rf alone battered
    whole=$(seconds train alone --save-total-limit "$keep" "$@")
    idle=$(seconds train alone --save-total-limit "$keep" "$@") # nothing is left to do
    batter battered "$signal" --save-total-limit "$keep" "$@"
    check "$name: signals strike" only "$code"
    check "$name: the same bytes" same alone battered
    check "$name: a tidy folder" tidy battered "$keep"
}

compare "kill -9, f32" KILL 137 1 --save-steps 2
compare "kill -9 while saving, bf16, dropout, accumulation" KILL 137 2 --save-steps 1 --bf16 --dropout 0.2 \
    --accumulate 3
compare "Ctrl-C, f32, dropout, accumulation" INT 130 1 --save-steps 7 --dropout 0.1 --accumulate 2
check "Ctrl-C says how to go on" grep -q "stopped at step [0-9]*; repeat the command" log.INT
compare "Ctrl-C, SGD with momentum, bf16" INT 130 3 --save-steps 5 --optimizer sgd --momentum 0.9 --bf16
compare "kill -9, stochastic rounding" KILL 137 1 --save-steps 3 --bf16 --stochastic-rounding --dropout 0.1
compare "kill -9, Adafactor, f64" KILL 137 1 --save-steps 4 --optimizer adafactor --dtype f64

# ---- what a crash can leave behind, made by hand ---------------------------------------------------------------

rm -rf alone
train alone --lr-scheduler constant --save-total-limit 3 --save-steps 6
half() { # OUT: the same run, half way
    local steps=12
    rm -rf "$1"
    train "$1" --lr-scheduler constant --save-total-limit 3 --save-steps 6
}
go_on() { train "$1" --lr-scheduler constant --save-total-limit 3 --save-steps 6 && same alone "$1" && tidy "$1" 3; }

half torn
printf '{"step": 13, "loss": 3.1}\n{"step": 14, "lo' >>torn/metrics.jsonl
check "metrics written after the checkpoint, the last line torn" go_on torn

half torn
cp torn/metrics.jsonl metrics.12
(steps=18 && train torn --lr-scheduler constant --save-total-limit 3 --save-steps 6)
ln -sfn checkpoint-000012 torn/last # died between the checkpoint and the link
cp metrics.12 torn/metrics.jsonl
mkdir torn/unfinished-checkpoint
head -c 100 torn/last/model.safetensors >torn/unfinished-checkpoint/model.safetensors.tmp-1
touch torn/loss.svg.tmp-1 torn/run.json.tmp-1 torn/data/train.bin.tmp-1
ln -s nowhere torn/.last-new
check "a checkpoint that was not yet the last, half of one, temporary files" go_on torn

half torn
ln -sfn checkpoint-000006 torn/best # died between last and best
best_is_last() {
    local steps=12
    train torn --lr-scheduler constant --save-total-limit 3 --save-steps 6 &&
        cmp torn/best/model.safetensors torn/last/model.safetensors
}
check "best is put right" best_is_last

# ---- what goes on, and what does not ------------------------------------------------------------------------------

refuse() { # WORD OPTIONS...: going on with other options fails, names the culprit and changes nothing
    local word=$1 code
    shift
    cp -a torn before
    train torn --lr-scheduler constant --save-total-limit 3 --save-steps 6 "$@"
    code=$?
    diff -r --no-dereference -x data torn before # the tokens of other data may be there, and are made again
    local changed=$?
    rm -rf torn && mv before torn
    [ $code -eq 1 ] && [ $changed -eq 0 ] && grep -q "started with $word" log
}
half torn
check "another learning rate is refused" refuse "learning_rate 0.003" --learning-rate 2e-3
check "another batch size is refused" refuse "batch 4" --batch-size 5
check "another seed is refused" refuse "seed 1337" --seed 1
check "other layers are refused" refuse "layers 1" --layers 2
check "another width is refused" refuse "width 16" --width 32
check "another dropout is refused" refuse "dropout 0" --dropout 0.1
check "another family is refused" refuse "family gpt2" --model openai-gpt
check "another precision is refused" refuse "dtype f32" --bf16
check "stochastic rounding without bf16 is refused" eval '
    ! train f32 --stochastic-rounding && grep -q "stochastic rounding is for parameters of bf16, not of f32" log'
check "stochastic rounding where there was none is refused" refuse "dtype f32" --bf16 --stochastic-rounding
check "another optimiser is refused" refuse "optimizer adamw" --optimizer sgd
check "another schedule is refused" refuse "schedule constant" --lr-scheduler cosine
check "another tokenizer is refused" refuse "tokenizer byte" --tokenizer char
check "other data are refused" refuse "other data" --data held
check "after all that it goes on" go_on torn
check "fewer steps of a cosine are refused" eval '
    train cosine --save-steps 6 && ! (steps=12 && train cosine --save-steps 6) && grep -q "has 24 steps" log'
check "a cosine can be made longer" eval '
    (steps=40 && train cosine --save-steps 6) && grep -q "\"steps\": 40" cosine/run.json &&
    [ "$(readlink cosine/last)" = checkpoint-000040 ] && tail -n 1 cosine/metrics.jsonl | grep -q "\"step\": 40,"'
check "made longer and interrupted, it goes on" eval '
    (steps=40 && train cosine --save-steps 6) && ! train cosine --save-steps 6 && grep -q "has 40 steps" log'

# A model that exists has the dropout of its checkpoint, not the one that is asked for.
further() { # OPTIONS...
    "$BANYAN" train --init-from alone --data text --out more --batch-size 4 --max-steps 3 --threads 1 --quiet "$@" >log 2>&1
}
check "another dropout of an existing model is refused" eval '
    further --dropout 0.1 && further && further --dropout 0.1 &&
    ! further --dropout 0.2 && grep -q "started with dropout 0.1, but this command asks for 0.2" log'

one_of_two() {
    rm -rf both
    (steps=1000000 && run both --lr-scheduler constant) &
    local pid=$! code
    for _ in $(seq 100); do
        [ -s both/metrics.jsonl ] && break
        sleep 0.05
    done
    touch both/owned.json.tmp-1 # as if the first were just writing it
    train both --lr-scheduler constant
    code=$?
    cp log log.second # which the first will write to as well
    [ -e both/owned.json.tmp-1 ] || code=2
    kill -TERM $pid
    wait $pid
    [ $? -eq 130 ] && [ $code -eq 1 ] && grep -q "another process is training" log.second
}
check "of two processes in one folder the second is refused" one_of_two

afresh() {
    train torn --lr-scheduler constant --save-total-limit 3 --save-steps 6 --overwrite &&
        same alone torn && tidy torn 3 && [ "$(find torn -name 'events.out*' | wc -l)" -eq 1 ]
}
check "--overwrite starts afresh" afresh
check "--overwrite takes other options too" train torn --learning-rate 2e-3 --overwrite
