#!/bin/sh
# run.sh - Banyan against PyTorch on this machine, as a Markdown table on stdout. See bench/README.md.
#   bench/run.sh           the real shapes (minutes; the machine should have nothing else to do)
#   bench/run.sh --quick   tiny shapes, to see that everything runs; the figures mean nothing
# Environment: BUILD (build), PEER_PYTHON (a python with torch; without it only Banyan is measured), THREADS (every core),
# ROUNDS (2), ONLY (a pattern of works, such as 'decode*').
set -u
cd "$(dirname "$0")/.." || exit 1

banyan=${BUILD:-build}/banyan
python=${PEER_PYTHON:-}
threads=${THREADS:-$(nproc)}
rounds=${ROUNDS:-2}
only=${ONLY:-*}
gpt2="--preset 124m"
char="--layers 6 --heads 6 --width 384 --context 256 --vocab 65"
first_variant=best
more=""
if [ "${1:-}" = --quick ]; then
    gpt2="--layers 2 --heads 2 --width 64 --context 1024 --vocab 500"
    char="--layers 2 --heads 2 --width 32 --context 256 --vocab 65"
    first_variant=eager rounds=1 more="--steps 2 --warmup 1"
fi

[ -x "$banyan" ] || { echo "bench: $banyan is not there: make, or set BUILD" >&2; exit 1; }
if [ -z "$python" ]; then
    echo "bench: no peer: set PEER_PYTHON to a python that has torch to compare with PyTorch" >&2
elif ! "$python" -c 'import torch' 2>/dev/null; then
    echo "bench: no peer: $python cannot import torch" >&2
    python=
fi
work=$(mktemp -d "${TMPDIR:-/tmp}/banyan-bench.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
export TORCHINDUCTOR_CACHE_DIR="$work/inductor" # later rounds find what the first one compiled

# field LINE KEY: the value of a key in a line of JSON, empty when it is not there
field() {
    printf '%s\n' "$1" | sed -n "s/.*\"$2\":\([^,}]*\).*/\1/p" | tr -d '"'
}

# faster A B: whichever line has more tokens per second; either may be empty
faster() {
    if awk -v a="$(field "$1" tokens_per_s)" -v b="$(field "$2" tokens_per_s)" 'BEGIN { exit !(a + 0 >= b + 0) }'; then
        printf '%s' "$1"
    else
        printf '%s' "$2"
    fi
}

# earlier A B: the smaller number; either may be empty or null
earlier() {
    awk -v a="$1" -v b="$2" 'BEGIN { a = a + 0; b = b + 0; print a && (!b || a < b) ? a : b }'
}

# Both sides start from the same weights, so that they can be seen to compute the same thing.
save() { # NAME SHAPE... DTYPE
    name=$1
    shift
    "$banyan" bench forward "$@" --batch 1 --seq 1 --steps 1 --warmup 0 --save "$work/$name" >/dev/null 2>"$work/error" ||
        { cat "$work/error" >&2; exit 1; }
}

# check BANYAN TORCH: did the two do the same? The loss after the last step, or the text that was decoded.
check() {
    if [ -n "$(field "$1" loss)" ]; then
        awk -v a="$(field "$1" loss)" -v b="$(field "$2" loss)" 'BEGIN { printf "loss %.4f, %.4f", a, b }'
    elif [ -n "$(field "$1" token_sum)" ]; then
        [ "$(field "$1" token_sum)" = "$(field "$2" token_sum)" ] && printf 'same text' || printf 'other text'
    fi
}

# measure LABEL DTYPE MODEL ARGUMENTS...: one row of the table
measure() {
    label=$1 dtype=$2 model=$3
    shift 3
    # shellcheck disable=SC2254 # a pattern is what is wanted
    case "$label $dtype" in $only) ;; *) return ;; esac
    ours="" theirs="" our_first="" their_first="" variant=$first_variant round=0
    while [ $round -lt "$rounds" ]; do
        round=$((round + 1))
        echo "bench: $label $dtype, round $round of $rounds" >&2
        # shellcheck disable=SC2086 # words on purpose
        line=$("$banyan" bench "$@" --model-dir "$work/$model" --dtype "$dtype" --threads "$threads" $more 2>"$work/error") ||
            { cat "$work/error" >&2; exit 1; }
        ours=$(faster "$ours" "$line")
        our_first=$(earlier "$our_first" "$(field "$line" first_token_s)")
        if [ -z "$python" ] || [ -z "$variant" ]; then
            continue
        fi
        # shellcheck disable=SC2086
        line=$("$python" bench/peer_torch.py "$@" --model-dir "$work/$model" --dtype "$dtype" --threads "$threads" $more \
            --variant "$variant" 2>"$work/error") || { tail -n 3 "$work/error" >&2; line=""; }
        [ "$variant" = best ] && cat "$work/error" >&2
        theirs=$(faster "$theirs" "$line")
        their_first=$(earlier "$their_first" "$(field "$line" first_token_s)")
        variant=$(field "$theirs" variant)
    done
    awk -v label="$label" -v dtype="$dtype" -v way="$(field "$theirs" variant)" -v check="$(check "$ours" "$theirs")" \
        -v a="$(field "$ours" tokens_per_s)" -v b="$(field "$theirs" tokens_per_s)" \
        -v ams="$(field "$ours" ms_per_step)" -v bms="$(field "$theirs" ms_per_step)" \
        -v am="$(field "$ours" max_rss_bytes)" -v bm="$(field "$theirs" max_rss_bytes)" \
        -v share="$(field "$ours" peak_share)" 'BEGIN {
            there = b != ""
            printf "| %s | %s | %.1f | %s | %s |", label, dtype, a, there ? sprintf("%.1f", b) : "-", there ? sprintf("**%.2f**", a / b) : "-"
            printf " %.2f | %s | %.0f%% |", ams, there ? sprintf("%.2f", bms) : "-", 100 * share
            printf " %.0f | %s | %s |", am / 2^20, there ? sprintf("%.0f", bm / 2^20) : "-", there ? sprintf("%.2f", am / bm) : "-"
            printf " %s | %s |\n", there ? way : "-", there ? check : "-"
        }'
    if [ -n "$(field "$ours" first_token_s)" ]; then
        awk -v dtype="$dtype" -v a="$our_first" -v b="$their_first" 'BEGIN {
            printf "Time to the first token, from the start of the program, model opened from disk (%s): ", dtype
            printf "Banyan %.3f s%s\n", a, b + 0 ? sprintf(", PyTorch %.3f s", b) : "" }' >>"$work/first"
    fi
}

# shellcheck disable=SC2086 # shapes are words
{
    save gpt2-f32 $gpt2 --dtype f32
    save gpt2-bf16 $gpt2 --dtype bf16
    save char-f32 $char --dtype f32
}
cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo 2>/dev/null | head -n 1)
echo "$("$banyan" --version), ${python:+PyTorch $("$python" -c 'import torch; print(torch.__version__)'), }$threads threads," \
    "${cpu:-unknown processor}, load before $(cut -d ' ' -f 1 /proc/loadavg 2>/dev/null)"
[ "${1:-}" = --quick ] && echo && echo "Tiny models in place of those named: the figures mean nothing."
echo
echo "| work | type | Banyan tok/s | PyTorch tok/s | ratio | Banyan ms | PyTorch ms | Banyan, of GEMM peak | Banyan RSS MiB |" \
    "PyTorch RSS MiB | ratio | PyTorch's fastest way | both computed |"
echo "|---|---|---|---|---|---|---|---|---|---|---|---|---|"
for dtype in f32 bf16; do
    measure "GPT-2 124M train, B 4, T 64" $dtype gpt2-f32 train --batch 4 --seq 64
done
for dtype in f32 bf16; do
    measure "char-GPT 6x384 train, B 12, T 256" $dtype char-f32 train --batch 12 --seq 256
done
for dtype in f32 bf16; do
    measure "GPT-2 124M prefill 512" $dtype gpt2-$dtype prefill --prompt 512
done
for dtype in f32 bf16; do
    measure "GPT-2 124M decode 256 after 64" $dtype gpt2-$dtype decode --prompt 64 --new-tokens 256
done
[ -s "$work/first" ] && echo && cat "$work/first"
exit 0
