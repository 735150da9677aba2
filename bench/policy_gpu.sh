#!/bin/sh
# policy_gpu.sh - a step of GRPO beside TRL's with the same model, prompts, number and length of answers, reward and constant learning rate. Prints both
# and the ratio of their times per step as a Markdown table. The model is a GPT-2 of 124 million random weights and answers have a fixed number of
# tokens, unless MODEL and PROMPTS name a model directory and prompts; then answers end with END, if it is given.
# Environment: BUILD (build), PYTHON (python3, with torch, transformers, trl and datasets), DEVICE (cuda), STEPS (20), BATCH (8 prompts), GENERATIONS (8),
# PROMPT (64 tokens), TOKENS (128), LAYERS (12), HEADS (12), WIDTH (768), VOCAB (50257), CONTEXT (1024), REWARD (length:1000), RATE (1e-4),
# DTYPE (bf16 on cuda, otherwise f32), PEER_WEIGHTS (float32), THREADS (1), ROUNDS (1: both sides in turn), WORK (a new folder in TMPDIR).
set -u
export LC_ALL=C
cd "$(dirname "$0")/.." || exit 1
root=$PWD
banyan=$root/${BUILD:-build}/banyan
python=${PYTHON:-python3}
device=${DEVICE:-cuda} steps=${STEPS:-20} batch=${BATCH:-8} generations=${GENERATIONS:-8} tokens=${TOKENS:-128} rate=${RATE:-1e-4}
threads=${THREADS:-1} reward=${REWARD:-length:1000} end=${END:-}
case $device in cuda) dtype=${DTYPE:-bf16} ;; *) dtype=${DTYPE:-f32} ;; esac
work=${WORK:-$(mktemp -d)} && mkdir -p "$work" || exit 1
model=${MODEL:-$work/model}
prompts=${PROMPTS:-$model/prompts.jsonl}

[ -e "$model/config.json" ] || "$python" bench/policy_peer.py make "$model" --layers "${LAYERS:-12}" --heads "${HEADS:-12}" --width "${WIDTH:-768}" \
    --vocab "${VOCAB:-50257}" --context "${CONTEXT:-1024}" --prompt "${PROMPT:-64}" >"$work/log" 2>&1 || exit 1

# value KEY FILE: from a JSON object.
value() { sed -n "s/.*\"$1\": *\([-0-9.e]*\).*/\1/p" "$2"; }

# ours STEPS OUT: prints the processor time of the whole run.
ours() {
    rm -rf "$2"
    set -- "$1" "$2" "$model" --method grpo --data "$prompts" --reward "$reward" --max-new-tokens "$tokens" --batch-size "$batch" \
        --num-generations "$generations" --learning-rate "$rate" --lr-scheduler constant --warmup-steps 0 --max-steps "$1" --dtype "$dtype" --device "$device" --threads "$threads" \
        --sample-steps -1 --out "$2" --quiet
    count=$1 out=$2
    shift 2
    [ -z "$end" ] || set -- "$@" --stop "$end"
    ("$banyan" align "$@" >>"$work/log" 2>&1 || exit 1; times) | awk -F '[ms ]+' 'END { if (NR < 2) exit 1; print 60 * $1 + $2 + 60 * $3 + $4 }'
}

echo "| | s per step | processor time, s | tokens per answer | reward at first | in the end |"
echo "|---|---|---|---|---|---|"
for round in $(seq "${ROUNDS:-1}"); do
    # The first two steps, and what surrounds the steps, are left out.
    short=$(ours 2 "$work/short") && long=$(ours "$steps" "$work/ours") || exit 1
    awk -v steps="$steps" -v cpu="$(echo "$short $long" | awk '{ print $2 - $1 }')" '
        function number(key) { match($0, "\"" key "\": [-0-9.e]*"); return substr($0, RSTART + length(key) + 4, RLENGTH - length(key) - 4) + 0 }
        { part = int(steps / 10) < 1 ? 1 : int(steps / 10); length_sum += number("completions/mean_length"); r = number("reward") }
        NR > 2 { ms += number("ms") }
        NR <= part { first += r }
        NR > steps - part { last += r }
        END { printf "{\"wall_s\": %.4g, \"cpu_s\": %.4g, \"tokens\": %.4g, \"first_reward\": %.3f, \"last_reward\": %.3f}\n", ms / 1000 / (steps - 2),
            cpu / (steps - 2), length_sum / steps, first / part, last / part }' "$work/ours/metrics.jsonl" >"$work/ours.json"
    set -- "$model" "$prompts" --steps "$steps" --batch "$batch" --generations "$generations" --max-new-tokens "$tokens" --reward "$reward" \
        --learning-rate "$rate" --device "$device" --weights "${PEER_WEIGHTS:-float32}" --threads "$threads"
    [ "$dtype" != bf16 ] || set -- "$@" --bf16
    [ -z "$end" ] || set -- "$@" --end "$end"
    "$python" bench/policy_peer.py run "$@" >"$work/peer.json" 2>>"$work/log" || exit 1
    for side in ours peer; do
        [ $side = ours ] && name=Banyan || name=TRL
        echo "| $name | $(value wall_s "$work/$side.json") | $(value cpu_s "$work/$side.json") | $(value tokens "$work/$side.json") | $(value first_reward "$work/$side.json") | $(value last_reward "$work/$side.json") |"
    done
    echo "| ratio | $(awk "BEGIN { printf \"%.2f\", $(value wall_s "$work/peer.json") / $(value wall_s "$work/ours.json") }") | $(awk "BEGIN { printf \"%.2f\", $(value cpu_s "$work/peer.json") / $(value cpu_s "$work/ours.json") }") | | | |"
done
