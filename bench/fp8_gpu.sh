#!/bin/sh
# fp8_gpu.sh - what FP8 gives on one NVIDIA GPU: single products, training steps of GPT-2 1.5B and of wide models, and a real
# training run, each in bf16 on `cuda` and on `cuda+fp8`. Markdown on stdout, progress on stderr. See docs/CUDA.md.
#   bench/fp8_gpu.sh [TEXT]            the run trains on the characters of TEXT, 1 MB or so; without it there is no run. 5 minutes
#   bench/fp8_gpu.sh --quick [TEXT]    tiny shapes, to see that everything runs; the figures mean nothing
# Environment: BANYAN (build/banyan), BUILD (build: the folder with libbanyan.so), DEVICE (cuda), ONLY (products, steps or run),
# STEPS (400, of the run), PRODUCTS (bench/products.c built elsewhere). The exit code is 1 when anything failed.
set -u
export LC_ALL=C
build=${BUILD:-build}
quick=
[ "${1:-}" = --quick ] && { quick=1; shift; }
text=${1:-}
[ -z "$text" ] || text=$(realpath "$text") || exit 2
cd "$(dirname "$0")/.." || exit 1
banyan=${BANYAN:-$build/banyan}
device=${DEVICE:-cuda}
only=${ONLY:-}
steps=${STEPS:-400}
[ -x "$banyan" ] || { echo "fp8_gpu.sh: $banyan is not there: make, or set BANYAN" >&2; exit 1; }
work=$(mktemp -d "${TMPDIR:-/tmp}/banyan-fp8.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
failed=0

field() { # FILE KEY: of the last line of JSON
    tail -n 1 "$1" | sed -n "s/.*\"$2\": *\([^,}]*\).*/\1/p"
}

wanted() {
    [ -z "$only" ] || [ "$only" = "$1" ]
}

# part NAME FILE COMMAND...: what the command prints goes to the file
part() {
    name=$1 file=$2
    shift 2
    begin=$(date +%s)
    if timeout -k 5 300 "$@" >"$file" 2>"$work/error" </dev/null; then
        echo "fp8_gpu.sh: $name: $(($(date +%s) - begin)) s" >&2
        return 0
    fi
    echo "fp8_gpu.sh: $name failed:" >&2
    tr '\r' '\n' <"$work/error" | tail -n 5 | cut -c 1-400 >&2
    failed=1
    return 1
}

# ---- single products ---------------------------------------------------------------------------------------------------
products() {
    program=${PRODUCTS:-$work/products}
    if [ -z "${PRODUCTS:-}" ] && ! cc -O2 -Iinclude bench/products.c -o "$program" -L"$build" -lbanyan \
        -Wl,-rpath,"$(realpath "$build")" 2>"$work/error"; then
        echo "fp8_gpu.sh: no products: $(head -n 1 "$work/error")" >&2
        failed=1
        return
    fi
    # shellcheck disable=SC2046
    part products "$work/out" "$program" $([ -n "$quick" ] && echo 128 64 64) && cat "$work/out" && echo
}

# ---- training steps ----------------------------------------------------------------------------------------------------
# measure NAME OPTIONS...: a row with the same steps in bf16, with +fp8, and with every product in FP8
measure() {
    title=$1
    shift
    for way in bf16 fp8 all; do
        on=$device
        [ $way = bf16 ] || on=$device+fp8
        set_all=
        [ $way = all ] && set_all=BANYAN_FP8=all
        # shellcheck disable=SC2086
        part "$title, $way" "$work/$way" env $set_all "$banyan" bench train "$@" --dtype bf16 --device "$on" || return
    done
    awk -v title="$title" -v a="$(field "$work/bf16" ms_per_step)" -v b="$(field "$work/fp8" ms_per_step)" \
        -v c="$(field "$work/all" ms_per_step)" -v la="$(field "$work/bf16" loss)" -v lb="$(field "$work/fp8" loss)" \
        -v lc="$(field "$work/all" loss)" 'BEGIN {
            printf "| %s | %.2f | %.2f | **%.3f** | %.2f | %.4f | %.4f | %.4f |\n", title, a, b, a / b, c, la, lb, lc }'
}

training_steps() {
    echo "| training steps, T 1024 | bf16 ms | +fp8 ms | ratio | all in FP8 ms | bf16 loss | +fp8 loss | all in FP8 loss |"
    echo "|---|---|---|---|---|---|---|---|"
    if [ -n "$quick" ]; then
        measure "tiny" --layers 1 --heads 2 --width 64 --context 32 --vocab 100 --batch 4 --seq 32 --steps 2 --warmup 1
        return
    fi
    long="--seq 1024 --context 1024 --steps 30 --warmup 5"
    # shellcheck disable=SC2086
    {
        measure "48 layers, 1600 wide (1.5B), B 8" --layers 48 --heads 25 --width 1600 --batch 8 $long
        measure "8 layers, 2048 wide, B 8" --layers 8 --heads 16 --width 2048 --batch 8 $long
        measure "8 layers, 2048 wide, B 16" --layers 8 --heads 16 --width 2048 --batch 16 $long
        measure "4 layers, 4096 wide, B 8" --layers 4 --heads 32 --width 4096 --batch 8 $long
    }
}

# ---- a run -------------------------------------------------------------------------------------------------------------
run() {
    shape="--layers 6 --heads 16 --width 2048 --context 256 --batch-size 32" every=$((steps / 8))
    [ -n "$quick" ] && shape="--layers 1 --heads 2 --width 64 --context 32 --batch-size 4" steps=4 every=2
    for way in bf16 fp8 again; do
        on=$device
        [ $way = bf16 ] || on=$device+fp8
        # shellcheck disable=SC2086
        part "run, $way" "$work/out" env ${quick:+BANYAN_FP8=all} "$banyan" train --data "$text" --eval-fraction 0.1 --tokenizer char \
            --out "$work/run-$way" $shape --max-steps "$steps" --learning-rate 3e-4 --min-learning-rate 3e-5 --lr-scheduler cosine \
            --warmup-steps $((steps / 10)) --weight-decay 0.1 --max-grad-norm 1 --dropout 0.1 --eval-steps "$every" \
            --logging-steps 1 --seed 1337 --device "$on" --dtype bf16 --json --quiet || return
    done
    echo
    echo "$shape, characters of $(basename "$text")"
    echo
    echo "| step | bf16 loss | +fp8 loss | bf16 validation | +fp8 validation | bf16 ms | +fp8 ms |"
    echo "|---|---|---|---|---|---|---|"
    for way in bf16 fp8; do
        sed -n '/"eval_loss"/s/[{}",:]//gp' "$work/run-$way/metrics.jsonl"
    done | awk '{
            for (i = 1; i < NF; i += 2)
                v[$i] = $(i + 1)
            if (v["step"] in loss)
                printf "| %d | %.4f | %.4f | %.4f | %.4f | %.1f | %.1f |\n", v["step"], loss[v["step"]], v["loss"], \
                    eval[v["step"]], v["eval_loss"], ms[v["step"]], v["ms"]
            loss[v["step"]] = v["loss"]; eval[v["step"]] = v["eval_loss"]; ms[v["step"]] = v["ms"]
        }'
    if cmp -s "$work/run-fp8/last/model.safetensors" "$work/run-again/last/model.safetensors"; then
        echo "ok a second run in FP8 ends with the same bytes"
    else
        echo "not ok a second run in FP8 ends with other bytes"
        failed=1
    fi
}

"$banyan" --version
wanted products && products
wanted steps && training_steps
if wanted run; then
    if [ -n "$text" ]; then run; else echo "fp8_gpu.sh: no run: no text is given" >&2; fi
fi
exit $failed
