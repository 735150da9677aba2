#!/bin/bash
# resume_gpu.sh - training on a GPU is repeatable: the same command twice, a run that was stopped half way, and one that was
# interrupted end with the same bytes; and a run that changes between CPU and GPU goes on as if it had not.
#   bench/resume_gpu.sh [TEXT]     some source files of Banyan are the text if none is given. About a minute.
# Environment: BANYAN (build/banyan), DEVICE (cuda), STEPS (60), SHAPE (of the model), DTYPES ("f32 bf16 bf16-sr"; the last is
# stochastic rounding), LIMIT (60: seconds for one run). The exit code is 1 when anything failed.
# shellcheck disable=SC2317 # check calls what it is given
set -u
export LC_ALL=C
cd "$(dirname "$0")/.." || exit 1
banyan=$(realpath "${BANYAN:-build/banyan}")
device=${DEVICE:-cuda}
steps=${STEPS:-60}
half=$((steps / 2))
shape=${SHAPE:---layers 2 --heads 2 --width 128 --context 128 --batch-size 8}
[ -x "$banyan" ] || { echo "resume_gpu.sh: $banyan is not there: make, or set BANYAN" >&2; exit 1; }
work=$(mktemp -d "${TMPDIR:-/tmp}/banyan-resume.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
if [ $# -ge 1 ]; then head -c 500000 "$1"; else cat src/graph/*.c; fi >"$work/text"
cd "$work" || exit 1
failed=0

check() { # NAME COMMAND...
    local name=$1 begin=$SECONDS
    shift
    if "$@" >why 2>&1; then
        echo "ok $name ($((SECONDS - begin)) s$(sed -n 's/^note: /, /p' why))"
    else
        echo "not ok $name"
        tail -n 6 why log 2>/dev/null | tr '\r' '\n' | sed 's/^/    /'
        failed=1
    fi
}

# run OUT DEVICE STEPS OPTIONS...: become a training run; what it says goes to ./log. train: the same in a process of its own.
run() {
    local out=$1 where=$2 count=$3
    shift 3
    [ "$dtype" = bf16-sr ] && set -- --stochastic-rounding "$@"
    # shellcheck disable=SC2086 # shape is words
    exec timeout -k 5 "${LIMIT:-60}" "$banyan" train --data text --tokenizer byte --out "$out" $shape --dropout 0.1 --accumulate 2 \
        --learning-rate 1e-3 --lr-scheduler constant --warmup-steps 5 --max-steps "$count" --eval-steps "$half" --eval-batches 2 \
        --save-steps $((half > 10 ? half / 10 : 1)) --seed 7 --device "$where" --dtype "${dtype%-sr}" --quiet "$@" >log 2>&1
}
train() { (run "$@"); }

# The metrics without what the clock decides.
course() { sed 's/, "ms": [^,}]*//; s/, "tokens_per_s": [^,}]*//' "$1/metrics.jsonl"; }

# same A B: the runs ended alike, and went alike.
same() {
    local file
    for file in last/model.safetensors last/optimizer.safetensors best/model.safetensors; do
        cmp "$1/$file" "$2/$file" || return 1
    done
    cmp <(course "$1") <(course "$2")
}

# near A B BOUND: the losses of every step are no farther apart than that. Says how far they are.
near() {
    paste <(sed 's/.*"step": \([0-9]*\), "loss": \([^,}]*\).*/\1 \2/' "$1/metrics.jsonl") \
        <(sed 's/.*"step": \([0-9]*\), "loss": \([^,}]*\).*/\1 \2/' "$2/metrics.jsonl") |
        awk -v bound="$3" -v steps="$steps" '
            { d = $2 - $4; d = d < 0 ? -d : d; if (!(d <= most)) { most = d; at = $1 }; bad += $1 != NR || $3 != NR || !(d <= bound) }
            END {
                printf "note: losses at most %.2g apart, at step %d\n", most, at
                if (NR != steps || bad) printf "%d of %d steps are missing or more than %s apart\n", bad, NR, bound
                exit NR != steps || bad > 0
            }'
}

again() { train again "$device" "$steps" && same alone again; }
stopped() { train stopped "$device" "$half" && train stopped "$device" "$steps" && same alone stopped; }
interrupted() {
    local pid code
    run struck "$device" "$steps" &
    pid=$!
    while kill -0 "$pid" 2>/dev/null && [ "$(wc -l 2>/dev/null <struck/metrics.jsonl || echo 0)" -lt $((steps / 4)) ]; do
        sleep 0.02
    done
    kill -TERM "$pid" 2>/dev/null # as Ctrl-C, which a process in the background may be deaf to; timeout hands it on
    wait "$pid"
    code=$?
    echo "note: exit code $code after $(wc -l <struck/metrics.jsonl) of $steps steps"
    [ "$code" -eq 130 ] || [ "$code" -eq 0 ] || return 1 # 0: it was faster than this
    train struck "$device" "$steps" && same alone struck
}
# moved FROM TO BOUND
moved() {
    rm -rf moved
    train moved "$1" "$half" && train moved "$2" "$steps" && near alone moved "$3"
}

for dtype in ${DTYPES:-f32 bf16 bf16-sr}; do
    bound=0.01
    [ "$dtype" = f32 ] || bound=0.1
    rm -rf alone again stopped struck
    check "$dtype: $steps steps" train alone "$device" "$steps"
    [ -s alone/metrics.jsonl ] || continue
    check "$dtype: the same again" again
    check "$dtype: stopped half way" stopped
    check "$dtype: interrupted" interrupted
    check "$dtype: from cpu to $device" moved cpu "$device" "$bound"
    check "$dtype: from $device to cpu" moved "$device" cpu "$bound"
done
exit $failed
