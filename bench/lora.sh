#!/bin/sh
# lora.sh TEXT INSTRUCTIONS - instruction tuning of all parameters beside LoRA on all linear layers. TEXT is plain text, on which the base model is
# pretrained; INSTRUCTIONS a JSON list of objects with instruction, input and output, one member a line. A tenth of the examples is for
# testing, another tenth chooses the learning rate and the checkpoint of both sides; equal instructions are on one side. Prints a
# Markdown table: nats per token of the answers, on the choosing part for each rate, on the test part once for the best rate.
# Environment: BASE (a model directory that is tuned instead of a new model; TEXT is not read then), BUILD (build), THREADS (0), DEVICE
# (cpu), WORK (a new folder in TMPDIR, or one that has the base already), STEPS (8000) of pretraining, SHAPE and TOKENIZER of the base,
# RANK (8), BATCH (8) and EPOCHS (6) of tuning, FULL ("2e-4 5e-4 1e-3") and LORA ("1e-3 2e-3 4e-3"): learning rates, in LORA with more of
# the adapter's settings, such as 1e-3,dropout=0.1, OPTIONS: more options of the pretraining, TUNING: of tuning, SPLIT (0): which tenth
# is for testing; the next one chooses. PARALLEL: both sides at the same time.
set -u
export LC_ALL=C
[ $# -eq 2 ] || { echo "usage: bench/lora.sh TEXT INSTRUCTIONS" >&2; exit 2; }
tokenizer=${TOKENIZER:-bpe:4000}
[ ! -d "$tokenizer" ] || tokenizer=$(realpath "$tokenizer")
[ -z "${BASE:-}" ] || BASE=$(realpath "$BASE")
text=$(realpath "$1") instructions=$(realpath "$2")
cd "$(dirname "$0")/.." || exit 1
banyan=$PWD/${BUILD:-build}/banyan
threads=${THREADS:-0} device=${DEVICE:-cpu} rank=${RANK:-8} batch=${BATCH:-8}
work=${WORK:-$(mktemp -d)} && mkdir -p "$work" || exit 1
cd "$work" || exit 1

# The last digit of the checksum of an instruction says which part its examples belong to.
awk '/^    \{/ { line = key = "" } /"instruction":/ { key = $0 } { sub(/^ */, ""); line = line $0 }
     /^\},?/ { sub(/,$/, "", line); printf "%s\t%s\n", key, line }' "$instructions" >rows
rm -f train.jsonl choose.jsonl test.jsonl
awk -F '\t' -v split_at="${SPLIT:-0}" 'BEGIN { for (i = 1; i < 256; i++) code[sprintf("%c", i)] = i }
     { h = 0; for (i = 1; i <= length($1); i++) h = (h * 31 + code[substr($1, i, 1)]) % 1000003
       part = (h % 10 + 10 - split_at) % 10
       print $2 > (part == 0 ? "test.jsonl" : part == 1 ? "choose.jsonl" : "train.jsonl") }' rows
wc -l train.jsonl choose.jsonl test.jsonl >&2

# shellcheck disable=SC2086 # several options
[ -n "${BASE:-}" ] || [ -d base/best ] ||
    "$banyan" train --data "$text" --tokenizer "$tokenizer" --out base --bf16 --max-steps "${STEPS:-8000}" --dropout 0 \
    ${SHAPE:---layers 6 --heads 6 --width 192 --context 128 --batch-size 16 --learning-rate 2e-3} \
    --eval-fraction 0.01 --threads "$threads" --device "$device" --quiet ${OPTIONS:-} >base.log || exit 1
[ -n "${BASE:-}" ] || cat base.log >&2

# tune OUT DATA EVAL MODEL OPTIONS...: a run of supervised tuning; its result is OUT.json
tune() {
    out=$1 data=$2 held=$3 model=$4
    shift 4
    # shellcheck disable=SC2086
    "$banyan" align "$model" --method sft --data "$data" --eval "$held" --out "$out" --overwrite --threads "$threads" --device "$device" \
        --quiet --json ${TUNING:-} "$@" >"$out.json"
}
field() { # OUT KEY
    sed -n "s/.*\"$2\": *\([-0-9.e+]*\).*/\1/p" "$1.json"
}
# all KIND: a run for each rate; the best one is measured on the test part.
all() {
    kind=$1 least=99 best=''
    [ "$kind" = full ] && settings=${FULL:-2e-4 5e-4 1e-3} || settings=${LORA:-1e-3 2e-3 4e-3}
    for setting in $settings; do
        rate=${setting%%,*}
        set -- --learning-rate "$rate" --batch-size "$batch" --epochs "${EPOCHS:-6}" --eval-steps 50
        [ "$kind" = lora ] && set -- "$@" --lora "r=$rank,alpha=$((2 * rank)),targets=all-linear${setting#"$rate"}"
        tune "$kind-$setting" train.jsonl choose.jsonl "${BASE:-base}" "$@" || exit 1
        loss=$(field "$kind-$setting" loss)
        echo "| $kind | $setting | $loss | $(field "$kind-$setting" trained_parameters) |"
        if awk "BEGIN { exit !($loss < $least) }"; then
            least=$loss best=$setting
        fi
    done
    # By a step that changes nothing.
    tune "$kind-test" choose.jsonl test.jsonl "$kind-$best" --learning-rate 0 --max-steps 1 --batch-size "$batch" || exit 1
    echo "| $kind, $best, test part | | $(field "$kind-test" loss) | |"
}

echo "| trained | learning rate | loss | parameters |"
echo "|---|---|---|---|"
if [ -n "${PARALLEL:-}" ]; then
    all full >full.rows &
    all lora >lora.rows
    wait
    cat full.rows lora.rows
else
    all full
    all lora
fi
