#!/bin/bash
# sanitize_gpu.sh - Banyan's CUDA kernels under compute-sanitizer: memcheck (addresses) over the whole op table, racecheck (shared
# memory) over the ops that use any, and both over `banyan verify` and a few training steps of a tiny model.
#   bench/sanitize_gpu.sh [DIR...]     DIR: cases for `banyan verify`; if none is given, those of ../shared/parity that are there
# The parts run side by side (JOBS): the sanitizer keeps a core busier than the GPU. Every part has its time limit. A table on
# stdout says what each found and how long it took; the exit code is 1 when anything was found, failed or was not done.
# Environment: BUILD (build: banyan and tests/test_cuda are there), BANYAN, TEST (instead), ONLY (a part of the names of what is to
# be done, such as 'racecheck' or 'attention'), JOBS (6), DEADLINE (570: seconds in all), RESULTS (a folder that keeps what the
# sanitizer said), SPLIT (1: memcheck op by op too, which leaves out what test_cuda checks beside the op table), RACE_OPS,
# OPTIONS (more options of compute-sanitizer).
set -u
export LC_ALL=C OMP_NUM_THREADS=2 OMP_WAIT_POLICY=passive GOMP_SPINCOUNT=0
cd "$(dirname "$0")/.." || exit 1
build=${BUILD:-build}
banyan=${BANYAN:-$build/banyan}
test=${TEST:-$build/tests/test_cuda}
only=${ONLY:-}
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
[ -n "$sanitizer" ] || { echo "sanitize_gpu.sh: there is no compute-sanitizer" >&2; exit 1; }
[ -x "$banyan" ] || { echo "sanitize_gpu.sh: $banyan is not there: make, or set BANYAN" >&2; exit 1; }
work=$(mktemp -d "${TMPDIR:-/tmp}/banyan-sanitize.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'jobs -p | xargs -r kill 2>/dev/null; exit 130' INT TERM
deadline=$((SECONDS + ${DEADLINE:-570}))
n=0

# words on purpose
race_ops=${RACE_OPS:-attention_grad attention attention_cached linear linear_dw linear_dx matmul norm_grad norm cross_entropy
    cross_entropy_grad gather_grad softmax softmax_grad reduce argmax top reorder permute norm2 adafactor adamw sgd}
all_ops=$(sed -n 's/^BY_OP([A-Z0-9_]*, *\([a-z0-9_]*\),.*/\1/p' src/graph/ops.def)
tiny="--layers 2 --width 128 --heads 2 --seq 64 --context 64 --batch 2 --vocab 500 --steps 2 --warmup 1 --threads 2"

# part NUMBER NAME TOOL SECONDS COMMAND...: one line for the table: errors, seconds, what came of it, name
part() {
    local log=$work/$1.log name=$2 tool=$3 limit=$4 begin=$SECONDS left code count verdict
    shift 4
    left=$((deadline - begin))
    [ "$limit" -le "$left" ] || limit=$left
    if [ "$limit" -lt 10 ]; then
        echo "- - NOT DONE, the time is up|$name" >"$log.line"
        return
    fi
    # Without graphs racecheck sees plain launches; the kernels are the same. memcheck sees what users run.
    [ "$tool" = memcheck ] || export BANYAN_NO_GRAPHS=1
    # shellcheck disable=SC2086 # words
    timeout -k 5 "$limit" "$sanitizer" --tool "$tool" --print-limit 20 ${OPTIONS:-} "$@" >"$log" 2>&1 </dev/null
    code=$?
    count=$(sed -n 's/^========= RACECHECK SUMMARY: \([0-9]*\) hazard.*/\1/p; s/^========= ERROR SUMMARY: \([0-9]*\) error.*/\1/p' "$log" |
        sort -n | tail -n 1)
    verdict="exit code $code"
    [ $code -eq 124 ] && verdict="STOPPED after $limit s"
    [ $code -eq 0 ] && verdict=ok
    [ "${count:-0}" -eq 0 ] || verdict="FOUND, exit code $code"
    [ -n "$count" ] || [ $code -ne 0 ] || verdict="NO SUMMARY"
    grep -q "Device not supported" "$log" && verdict="REFUSED: device not supported"
    grep -q "not run: the op table" "$log" && verdict="NO GPU"
    echo "${count:--} $((SECONDS - begin)) $verdict|$name" >"$log.line"
    echo "sanitize_gpu.sh: $name: $((SECONDS - begin)) s, ${count:-no} errors, $verdict" >&2
}

# start NAME TOOL SECONDS COMMAND...: a part in the background, when there is a place for it
start() {
    case "$1" in *"$only"*) ;; *) return ;; esac
    while [ "$(jobs -rp | wc -l)" -ge "${JOBS:-6}" ]; do
        wait -n
    done
    n=$((n + 1))
    part "$(printf %03d $n)" "$@" &
}

# ---- does it work here at all? ---------------------------------------------------------------------------------------------
part 000 "memcheck banyan devices" memcheck 60 "$banyan" devices --quick
if ! grep -q ' ok|' "$work/000.log.line"; then
    echo "sanitize_gpu.sh: compute-sanitizer does not work here:" >&2
    tail -n 10 "$work/000.log" >&2
    exit 1
fi
grep -q '^cuda:0' "$work/000.log" || { echo "sanitize_gpu.sh: banyan finds no GPU" >&2; cat "$work/000.log" >&2; exit 1; }

# ---- the parts, the longest first --------------------------------------------------------------------------------------------
if [ ! -x "$test" ]; then
    echo "sanitize_gpu.sh: $test is not there: the op table is left out" >&2
elif [ "${SPLIT:-0}" = 1 ]; then
    for op in $all_ops; do
        start "memcheck test_cuda $op" memcheck 120 "$test" "$op"
    done
else
    start "memcheck test_cuda, whole" memcheck 560 "$test"
fi
if [ -x "$test" ]; then
    for op in $race_ops; do
        case $op in
        attention | attention_grad | linear) # minutes in one piece
            for share in 0 1 2 3 4 5 6 7; do
                start "racecheck test_cuda $op $share/8" racecheck 400 "$test" "$op" $share/8
            done ;;
        *) start "racecheck test_cuda $op" racecheck 240 "$test" "$op" ;;
        esac
    done
fi
if [ $# -eq 0 ]; then
    for dir in ../shared/parity/gpt2-lm ../shared/parity/train-gpt2; do
        [ -d "$dir" ] && set -- "$@" "$dir"
    done
    [ $# -gt 0 ] || echo "sanitize_gpu.sh: no cases for banyan verify: give folders" >&2
fi
for tool in memcheck racecheck; do
    for dtype in f32 bf16; do
        for dir in "$@"; do
            start "$tool verify ${dir##*/} $dtype" $tool 150 "$banyan" verify "$dir" --device cuda --dtype $dtype --threads 2
        done
        # shellcheck disable=SC2086
        start "$tool bench train $dtype" $tool 150 "$banyan" bench train $tiny --device cuda --dtype $dtype
    done
done
wait

# ---- what they found -----------------------------------------------------------------------------------------------------------
for log in "$work"/*.log; do
    grep -q '^0 [0-9]* ok|' "$log.line" && continue
    echo "==== $(cut -d '|' -f 2 "$log.line")"
    cat "$log"
done >"$work/found"
if [ -n "${RESULTS:-}" ]; then
    mkdir -p "$RESULTS" && cp "$work/found" "$RESULTS/sanitize.log"
fi
if [ -s "$work/found" ]; then
    echo "What was said, by how often (the whole is in RESULTS/sanitize.log):"
    sed -n 's/^========= \([A-Z].*\)/\1/p' "$work/found" | sed 's/+0x[0-9a-f]*//g; s/0x[0-9a-f]*/ADDRESS/g; s/([0-9]*,[0-9]*,[0-9]*)/(x,y,z)/g' |
        sort | uniq -c | sort -rn | head -n 40 | cut -c 1-300
    grep -h '^\(banyan:\|banyan \)\|FAILED\|complain\|not finite' "$work/found" | sort | uniq -c | sort -rn | head -n 10 | cut -c 1-300
    echo
fi
{
    echo "| part | errors | seconds | |"
    echo "|---|---|---|---|"
    for line in "$work"/*.line; do
        sed 's/^\([^ ]*\) \([^ ]*\) \(.*\)|\(.*\)/| \4 | \1 | \2 | \3 |/' "$line"
    done
    echo
    echo "$(cat "$work"/*.line | awk '{ s += $1 } END { print s + 0 }') errors in $((n + 1)) parts," \
        "$(cat "$work"/*.line | grep -vc '^0 [0-9]* ok|') parts not clean, $SECONDS s"
} | tee "${RESULTS:-$work}/sanitize.md"
! cat "$work"/*.line | grep -qv '^0 [0-9]* ok|'
