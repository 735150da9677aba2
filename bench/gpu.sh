#!/bin/sh
# gpu.sh - Banyan against PyTorch on one NVIDIA GPU: training steps, decoding, and where a step goes. A Markdown table on stdout,
# progress on stderr. See bench/README.md.
#   bench/gpu.sh           the real shapes: about 8 minutes, of which PyTorch compiles for most
#   bench/gpu.sh --quick   tiny shapes, to see that everything runs; the figures mean nothing
# Environment: BANYAN (build/banyan), PEER_PYTHON (a python with torch and transformers; without it only Banyan is measured),
# ONLY (a part of the name of what is to be done, such as 'decode', 'B 64' or 'profile'), RESULTS (a folder that keeps what came
# out), DEVICE (cuda), DEADLINE (570: seconds in all; what finds too few left is not done, the table comes in any case),
# TRAIN_WAYS and DECODE_WAYS (of PyTorch: see peer_torch.py; the first way to train is measured everywhere before any other).
# Whatever fails or takes too long is said, and the rest goes on.
set -u
cd "$(dirname "$0")/.." || exit 1

banyan=${BANYAN:-build/banyan}
python=${PEER_PYTHON:-}
only=${ONLY:-}
device=${DEVICE:-cuda}
train_ways=${TRAIN_WAYS:-compiled+fused+autocast+padded compiled+fused+autocast+padded+cudnn}
decode_ways=${DECODE_WAYS:-transformers transformers+static+compiled eager+graphed}
small="--preset 124m" large="--preset 350m"
their_small="--layers 12 --heads 12 --width 768" their_large="--layers 24 --heads 16 --width 1024"
train="--seq 1024 --steps 20 --warmup 5" profile="--seq 1024 --steps 5 --warmup 2"
decode="--prompt 64 --new-tokens 256 --steps 3 --warmup 2"
train_a=64 train_b=32 train_c=16 decode_a=1 decode_b=32 # the cases and their batches
note=
if [ "${1:-}" = --quick ]; then
    note="Tiny models in place of those named: the figures mean nothing."
    small="--layers 2 --heads 2 --width 64 --context 64 --vocab 500" large="--layers 3 --heads 2 --width 64 --context 64 --vocab 500"
    their_small=$small their_large=$large
    train="--seq 32 --steps 2 --warmup 1" profile=$train decode="--prompt 16 --new-tokens 8 --steps 2 --warmup 1"
    train_a=4 train_b=2 train_c=1 decode_b=2
fi

[ -x "$banyan" ] || { echo "gpu.sh: $banyan is not there: make, or set BANYAN" >&2; exit 1; }
work=$(mktemp -d "${TMPDIR:-/tmp}/banyan-gpu.XXXXXX") || exit 1
child=
trap 'rm -rf "$work"' EXIT
trap '[ -n "$child" ] && kill "$child" 2>/dev/null; exit 130' INT TERM
results=${RESULTS:-$work/results}
mkdir -p "$results" || exit 1
: >"$results/results.jsonl"
: >"$work/times"
export TORCHINDUCTOR_CACHE_DIR="$work/inductor" # what one process compiled, the next ones find
start=$(date +%s)
deadline=$((start + ${DEADLINE:-570}))

# field LINE KEY: the value of a key in a line of JSON, empty when it is not there
field() {
    printf '%s\n' "$1" | sed -n "s/.*\"$2\":\([^,}]*\).*/\1/p" | tr -d '"'
}

# wanted NAME: does ONLY ask for it?
wanted() {
    case "$1" in *"$only"*) ;; *) return 1 ;; esac
}

# part NAME SECONDS FILE COMMAND...: what the command prints goes to the file. Said on stderr: how long it took, or what went
# wrong. The command runs in the background so that Ctrl-C need not wait for it.
part() {
    name=$1 limit=$2 file=$3
    shift 3
    begin=$(date +%s)
    left=$((deadline - begin))
    if [ "$left" -lt $((limit / 2)) ]; then
        echo "gpu.sh: $name: not done, the time is up" >&2
        echo "$name: not done" >>"$work/times"
        return 1
    fi
    [ "$limit" -le "$left" ] || limit=$left
    timeout -k 5 "$limit" "$@" >"$file" 2>"$work/error" </dev/null &
    child=$!
    wait $child
    code=$?
    child=
    took=$(($(date +%s) - begin))
    echo "gpu.sh: $name: $took s" >&2
    [ $code -eq 0 ] && { echo "$name: $took s" >>"$work/times"; return 0; }
    reason="exit code $code"
    [ $code -eq 124 ] && reason="stopped after $limit s"
    echo "gpu.sh: $name failed, $reason:" >&2
    tr '\r' '\n' <"$work/error" | tail -n 5 | cut -c 1-400 >&2
    echo "$name: $took s, FAILED, $reason" >>"$work/times"
    rm -f "$file"
    return 1
}

# choose CASE: what it is made of, for the functions below; fails when ONLY leaves it out
choose() {
    key=$1 what=train size=124M weights=small shape=$small their_shape=$their_small options=$train
    case $1 in
    train_a) batch=$train_a ;;
    train_b) batch=$train_b ;;
    train_c) batch=$train_c size=350M weights=large shape=$large their_shape=$their_large ;;
    decode_a) what=decode batch=$decode_a weights=text options=$decode ;;
    decode_b) what=decode batch=$decode_b weights=text options=$decode ;;
    esac
    title="GPT-2 $size $what, B $batch"
    wanted "$title"
}

# save TYPE: the weights that both sides start from, once. Without them (the disk is full, say) each draws its own.
save() {
    [ -e "$work/saved-$weights" ] && return
    # shellcheck disable=SC2086 # words
    part "weights of $size, $1" 60 "$work/saved-$weights" "$banyan" bench forward $shape --dtype "$1" --device cpu --batch 1 --seq 1 \
        --steps 1 --warmup 0 --save "$work/$weights" || rm -rf "${work:?}/$weights"
    : >"$work/saved-$weights"
}

# ours: measure Banyan on the chosen case
ours() {
    [ -d "$work/$weights" ] && shape="--model-dir $work/$weights"
    # shellcheck disable=SC2086
    part "Banyan $title" 60 "$work/$key.ours" "$banyan" bench "$what" $shape --batch "$batch" $options --dtype bf16 \
        --device "$device" && cat "$work/$key.ours" >>"$results/results.jsonl"
}

# theirs WAY SECONDS: measure PyTorch on the chosen case
theirs() {
    [ -d "$work/$weights" ] && their_shape="--model-dir $work/$weights"
    # shellcheck disable=SC2086
    part "PyTorch $title, $1" "$2" "$work/out" "$python" bench/peer_torch.py "$what" $their_shape --batch "$batch" $options \
        --dtype bf16 --device "$device" --variant "$1" || return
    tail -n 1 "$work/out" >>"$work/$key.theirs"
    tail -n 1 "$work/out" >>"$results/results.jsonl"
}

# row NAME BANYAN PYTORCH: one row of the table from two lines of JSON, either of which may be empty
row() {
    check=-
    if [ -n "$2" ] && [ -n "$(field "$3" loss)" ]; then
        check=$(awk -v a="$(field "$2" loss)" -v b="$(field "$3" loss)" 'BEGIN { printf "loss %.4f, %.4f", a, b }')
    elif [ -n "$2" ] && [ -n "$(field "$3" token_sum)" ]; then
        check="other text"
        [ "$(field "$2" token_sum)" = "$(field "$3" token_sum)" ] && check="same text"
    fi
    awk -v label="$1" -v way="$(field "$3" variant)" -v check="$check" \
        -v a="$(field "$2" tokens_per_s)" -v b="$(field "$3" tokens_per_s)" \
        -v ams="$(field "$2" ms_per_step)" -v bms="$(field "$3" ms_per_step)" \
        -v af="$(field "$2" flops_per_s)" -v bf="$(field "$3" flops_per_s)" -v share="$(field "$2" peak_share)" \
        -v state="$(field "$2" state_bytes)" -v planned="$(field "$2" planned_bytes)" -v bm="$(field "$3" device_bytes)" '
        function cell(value, known, format) { return known != "" && known != "null" ? sprintf(format, value) : "-" }
        function ratio(x, y) { return x != "" && y + 0 ? sprintf("**%.2f**", x / y) : "-" }
        BEGIN {
            am = state == "" ? "" : state + planned
            printf "| %s | %s | %s | %s |", label, cell(a, a, "%.0f"), cell(b, b, "%.0f"), ratio(a, b)
            printf " %s | %s |", cell(ams, ams, "%.3f"), cell(bms, bms, "%.3f")
            printf " %s | %s | %s |", cell(af / 1e12, af, "%.1f"), cell(bf / 1e12, bf, "%.1f"), cell(100 * share, share, "%.0f %%")
            printf " %s | %s | %s |", cell(am / 2^30, am, "%.2f"), cell(bm / 2^30, bm, "%.2f"), ratio(am, bm)
            printf " %s | %s |\n", way == "" ? "-" : way, check
        }'
}

# rows: all rows of the chosen case, one for each way of PyTorch
rows() {
    [ -s "$work/$key.ours" ] || [ -s "$work/$key.theirs" ] || return
    mine=$(cat "$work/$key.ours" 2>/dev/null)
    if [ ! -s "$work/$key.theirs" ]; then
        row "$title" "$mine" ""
    else
        while IFS= read -r their; do
            row "$title" "$mine" "$their"
        done <"$work/$key.theirs"
    fi
}

# nodes FILE: `banyan bench profile` as a table: by op and shape, and by op, the longest first
nodes() {
    sed 's/.*"nodes":\[//; s/\].*//; s/},{/}\n{/g' "$1" | awk '
        function value(key,  at) {
            at = index($0, "\"" key "\":")
            if (!at)
                return ""
            at = substr($0, at + length(key) + 3)
            if (substr(at, 1, 1) == "\"") {
                at = substr(at, 2)
                return substr(at, 1, index(at, "\"") - 1)
            }
            sub(/[,}].*/, "", at)
            return at == "null" ? 0 : at
        }
        {
            op[NR] = value("op"); shape[NR] = value("shape"); count[NR] = value("count"); ms[NR] = value("ms")
            flops[NR] = value("flops_per_s"); bytes[NR] = value("bytes_per_s")
            total += ms[NR]; of[op[NR]] += ms[NR]; many[op[NR]] += count[NR]
            done[op[NR]] += flops[NR] * ms[NR]; moved[op[NR]] += bytes[NR] * ms[NR]
        }
        function line(list, op, shape, count, ms, flops, bytes) {
            printf "%s %.6f | %s | %s | %d | %.3f | %.1f | %.0f | %.1f %% |\n", list, ms, op, shape, count, ms, flops / 1e12, \
                bytes / 1e9, 100 * ms / total
        }
        END {
            if (!total)
                exit 1
            for (i = 1; i <= NR; i++)
                line("node", op[i], shape[i], count[i], ms[i], flops[i], bytes[i])
            for (o in of)
                line("op", o, "all", many[o], of[o], of[o] ? done[o] / of[o] : 0, of[o] ? moved[o] / of[o] : 0)
            printf "total %.3f\n", total
        }' >"$work/nodes" || return 1
    sed -n 's/^total \(.*\)/All nodes together: \1 ms/p' "$work/nodes"
    for list in op node; do
        echo
        echo "| op | shape | count | ms | TFLOP/s | GB/s | share |"
        echo "|---|---|---|---|---|---|---|"
        grep "^$list " "$work/nodes" | sort -k 2,2rg | sed 's/^[^|]*//'
    done
}

# ---- what there is -----------------------------------------------------------------------------------------------------
if [ -n "$python" ] && ! timeout 120 "$python" -c 'import torch; print(torch.__version__)' >"$work/torch" 2>/dev/null; then
    echo "gpu.sh: no peer: $python cannot import torch" >&2
    python=
fi
[ -n "$python" ] || echo "gpu.sh: no peer: set PEER_PYTHON to a python that has torch to compare with PyTorch" >&2
echo "$("$banyan" --version)${python:+, PyTorch $(cat "$work/torch")}"
echo
part devices 60 "$results/devices.txt" "$banyan" devices && cat "$results/devices.txt"
nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.max.sm,power.limit --format=csv,noheader 2>/dev/null

# ---- Banyan ------------------------------------------------------------------------------------------------------------
for case in train_a train_b train_c decode_a decode_b; do
    choose $case || continue
    case $case in train_*) save f32 ;; *) save bf16 ;; esac
    ours
done
# shellcheck disable=SC2086
if wanted "profile, B $train_a" && part "profile, B $train_a" 60 "$results/profile.json" "$banyan" bench profile $small \
    --batch "$train_a" $profile --dtype bf16 --device "$device"; then
    nodes "$results/profile.json" >"$results/profile.md" || echo "gpu.sh: the profile could not be read" >&2
fi

# ---- PyTorch -----------------------------------------------------------------------------------------------------------
if [ -n "$python" ]; then
    for case in train_a train_b train_c; do
        choose $case && theirs "${train_ways%% *}" 150
    done
    for way in $decode_ways; do
        for case in decode_a decode_b; do
            choose $case && theirs "$way" 120
        done
    done
    for case in train_a train_b train_c; do
        for way in $train_ways; do
            [ "$way" != "${train_ways%% *}" ] && choose $case && theirs "$way" 150
        done
    done
fi

# ---- the table ---------------------------------------------------------------------------------------------------------
{
    [ -n "$note" ] && echo "$note" && echo
    echo "bf16; train $train; decode $decode"
    echo
    echo "| work | Banyan tok/s | PyTorch tok/s | ratio | Banyan ms | PyTorch ms | Banyan TFLOP/s | PyTorch TFLOP/s |" \
        "Banyan, of GEMM peak | Banyan GiB | PyTorch GiB | ratio | PyTorch's way | both computed |"
    echo "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|"
    for case in train_a train_b train_c decode_a decode_b; do
        choose $case && rows
    done
} >"$results/table.md"
if [ -s "$results/profile.md" ]; then
    echo
    echo "Where a training step goes (124M, B $train_a):"
    cat "$results/profile.md"
fi
echo
echo "Time spent, $(($(date +%s) - start)) s in all:"
sed 's/^/- /' "$work/times" | tee "$results/times.txt"
echo
cat "$results/table.md"
! grep -q FAILED "$work/times"
