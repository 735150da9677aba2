#!/bin/bash
# sanitize_gpu.sh - Banyan's CUDA kernels under compute-sanitizer: memcheck (addresses), racecheck (shared memory) and synccheck
# (barriers) over the op table, op by op, and over `banyan verify` and a few training steps of a tiny model.
#   bench/sanitize_gpu.sh [DIR...]     DIR: cases for `banyan verify`; if none is given, those of ../shared/parity that are there
# Of the op table the samples are run that `test_cuda --pick` names: the least work that takes every branch and starts every kernel.
# (initcheck would say nothing: the backend clears all memory that it allocates.) The parts run side by side (JOBS): the sanitizer
# keeps a core busier than the GPU. Every part has its time limit. A table on stdout says what each found and how long it took; the
# exit code is 1 when anything was found, failed or was not done. Hazards inside cuBLASLt's kernels are told, and are not ours.
# Environment: BUILD (build: banyan and tests/test_cuda are there), BANYAN, TEST (instead), TOOLS (racecheck memcheck synccheck),
# OPS (those to be done; else all), RACE_OPS (those of racecheck), ONLY (a part of the names of what is to be done, such as
# 'racecheck' or 'attention'), JOBS (12), LIMIT (180: seconds for one op), DEADLINE (570: seconds in all), RESULTS (a folder that keeps
# what the sanitizer said), WHOLE (1: memcheck over all samples too, which takes ten minutes), SPLIT (1: that op by op), OPTIONS (more
# options of compute-sanitizer).
set -u
# Which of the library's kernels is fastest is not tried out: that is hundreds of products.
export LC_ALL=C OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive GOMP_SPINCOUNT=0 BANYAN_TUNE=0
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

all_ops=$(sed -n 's/^GR_OP([A-Z0-9_]*, *\([a-z0-9_]*\),.*/\1/p' src/graph/ops.def 2>/dev/null)
tools=${TOOLS:-racecheck memcheck synccheck}
library='nvjet|cutlass|cublas|xmma|_sgemm_|gemmk1|gemv|splitKreduce' # in the names of the library's kernels, and of none of ours
tiny="--layers 2 --width 128 --heads 2 --seq 64 --context 64 --batch 2 --vocab 500 --steps 2 --warmup 1 --threads 2"

# part NUMBER NAME TOOL SECONDS COMMAND...: one line for the table: errors, seconds, what came of it, name
part() {
    local log=$work/$1.log name=$2 tool=$3 limit=$4 begin=$SECONDS left code count verdict
    shift 4
    left=$((deadline - begin))
    [ "$limit" -le "$left" ] || limit=$left
    if [ "$limit" -lt 10 ]; then
        echo "- - NOT DONE, the time is up@$name" >"$log.line"
        return
    fi
    # Without graphs racecheck sees plain launches; the kernels are the same. memcheck sees what users run.
    [ "$tool" = memcheck ] || export BANYAN_NO_GRAPHS=1
    # shellcheck disable=SC2086 # words
    timeout -k 5 "$limit" "$sanitizer" --tool "$tool" --print-limit 1000 ${OPTIONS:-} "$@" >"$log" 2>&1 </dev/null
    code=$?
    count=$(sed -n 's/^========= RACECHECK SUMMARY: \([0-9]*\) hazard.*/\1/p; s/^========= ERROR SUMMARY: \([0-9]*\) error.*/\1/p' "$log" |
        sort -n | tail -n 1)
    verdict="exit code $code"
    [ $code -eq 124 ] && verdict="STOPPED after $limit s"
    [ $code -eq 0 ] && verdict=ok
    if [ "${count:-0}" -gt 0 ]; then
        verdict="FOUND, exit code $code"
        grep -E '^========= .* at .*\+0x' "$log" >"$log.at"
        if [ "$tool" = racecheck ] && [ $code -eq 0 ] && [ -s "$log.at" ] && ! grep -qvE "$library" "$log.at"; then
            verdict="ok: all $count in cuBLASLt's kernels"
            count=0
        fi
    fi
    [ -n "$count" ] || [ $code -ne 0 ] || verdict="NO SUMMARY"
    grep -q "Device not supported" "$log" && verdict="REFUSED: device not supported"
    grep -q "not run: the op table" "$log" && verdict="NO GPU"
    echo "${count:--} $((SECONDS - begin)) $verdict@$name" >"$log.line"
    echo "sanitize_gpu.sh: $name: $((SECONDS - begin)) s, ${count:-no} errors, $verdict" >&2
}

# start NAME TOOL SECONDS COMMAND...: a part in the background, when there is a place for it
start() {
    case "$1" in *"$only"*) ;; *) return ;; esac
    while [ "$(jobs -rp | wc -l)" -ge "${JOBS:-12}" ]; do
        wait -n
    done
    n=$((n + 1))
    part "$(printf %03d $n)" "$@" &
}

# ---- does it work here at all? ---------------------------------------------------------------------------------------------
part 000 "banyan devices | memcheck" memcheck 60 "$banyan" devices --quick
if ! grep -q ' ok@' "$work/000.log.line"; then
    echo "sanitize_gpu.sh: compute-sanitizer does not work here:" >&2
    tail -n 10 "$work/000.log" >&2
    exit 1
fi
grep -q '^cuda:0' "$work/000.log" || { echo "sanitize_gpu.sh: banyan finds no GPU" >&2; cat "$work/000.log" >&2; exit 1; }

# ---- the parts, the longest first --------------------------------------------------------------------------------------------
# op NAME SHARES: the parts of one op, each in so many processes
op() {
    local tool share
    [ -z "${OPS:-}" ] || case " $OPS " in *" $1 "*) ;; *) return ;; esac
    for tool in $tools; do
        [ "$tool" = racecheck ] && [ -n "${RACE_OPS:-}" ] && case " $RACE_OPS " in *" $1 "*) ;; *) continue ;; esac
        for ((share = 0; share < $2; share++)); do
            if [ "$2" -eq 1 ]; then
                start "$1 | $tool" "$tool" "${LIMIT:-180}" "$test" --picked "$work/picked" "$1"
            else
                start "$1 $share/$2 | $tool" "$tool" "${LIMIT:-180}" "$test" --picked "$work/picked" "$1" $share/"$2"
            fi
        done
    done
}
if [ ! -x "$test" ]; then
    echo "sanitize_gpu.sh: $test is not there: the op table is left out" >&2
elif ! timeout 120 "$test" --pick >"$work/picked" || [ ! -s "$work/picked" ]; then
    echo "sanitize_gpu.sh: $test --pick failed" >&2
    exit 1
else
    echo "sanitize_gpu.sh: $(wc -l <"$work/picked") samples of $(cut -d ' ' -f 1 "$work/picked" | sort -u | wc -l) ops" >&2
    # The ops with the most samples first, sixteen of them to a process.
    while read -r count name; do
        op "$name" $(((count + 15) / 16))
    done < <(cut -d ' ' -f 1 "$work/picked" | sort | uniq -c | sort -rn)
    op beside 1
    op fp8 1
    if [ "${SPLIT:-0}" = 1 ]; then
        for name in $all_ops; do
            start "$name, all samples | memcheck" memcheck 400 "$test" "$name"
        done
    elif [ "${WHOLE:-0}" = 1 ]; then
        start "all ops, all samples | memcheck" memcheck 560 "$test"
    fi
fi
if [ $# -eq 0 ]; then
    for dir in ../shared/parity/gpt2-lm ../shared/parity/train-gpt2; do
        [ -d "$dir" ] && set -- "$@" "$dir"
    done
    [ $# -gt 0 ] || echo "sanitize_gpu.sh: no cases for banyan verify: give folders" >&2
fi
for tool in $tools; do
    for dtype in f32 bf16; do
        for dir in "$@"; do
            start "banyan verify ${dir##*/} $dtype | $tool" "$tool" 150 "$banyan" verify "$dir" --device cuda --dtype $dtype --threads 2
        done
        # shellcheck disable=SC2086
        start "banyan bench train $dtype | $tool" "$tool" 150 "$banyan" bench train $tiny --device cuda --dtype $dtype
    done
done
wait

# ---- what they found -----------------------------------------------------------------------------------------------------------
for log in "$work"/*.log; do
    grep -q '^0 [0-9]* ok' "$log.line" && continue
    echo "==== $(cut -d @ -f 2 "$log.line")"
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
    echo "| what | tool | errors | seconds | |"
    echo "|---|---|---|---|---|"
    for line in "$work"/*.line; do
        sed 's/^\([^ ]*\) \([^ ]*\) \(.*\)@\(.*\)/| \4 | \1 | \2 | \3 |/' "$line"
    done
    echo
    echo "$(cat "$work"/*.line | awk '{ s += $1 } END { print s + 0 }') errors in $((n + 1)) parts," \
        "$(cat "$work"/*.line | grep -vc '^0 [0-9]* ok') parts not clean, $SECONDS s"
} | tee "${RESULTS:-$work}/sanitize.md"
! cat "$work"/*.line | grep -qv '^0 [0-9]* ok'
