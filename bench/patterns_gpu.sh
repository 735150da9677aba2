#!/bin/sh
# patterns_gpu.sh - compiles bench/patterns_cuda.cu with the attention kernels alone, for Hopper, and runs it: needs nvcc and a
# compiler, not the library. The files are compiled side by side.
#   bench/patterns_gpu.sh [WHAT [DIM [HEADS [BATCH]]]]...      default: check, then kernels
# Environment: OUT (a folder for objects, default /tmp/banyan-patterns), KEEP=1: do not compile again.
set -eu
cd "$(dirname "$0")/.."
out=${OUT:-/tmp/banyan-patterns}
mkdir -p "$out"
flags="-O3 -std=c++17 -gencode arch=compute_90a,code=sm_90a -Isrc -Iinclude -Itests -D_GNU_SOURCE -DBY_CUDA_HOPPER"
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
if [ "${KEEP:-0}" != 1 ] || [ ! -x "$out/patterns" ]; then
    cc -c -O2 -Isrc -Iinclude -D_GNU_SOURCE src/base/dtype.c -o "$out/dtype.o"
    jobs=
    for file in bench/patterns_cuda.cu src/cuda/kernels/attention.cu src/cuda/kernels/attention_few.cu \
        src/cuda/kernels/attention_bias.cu src/cuda/kernels/attention_grad.cu src/cuda/kernels/attention_grad_plain.cu \
        src/cuda/kernels/attention_views.cu; do
        # shellcheck disable=SC2086 # words
        "$nvcc" $flags -Xptxas -warn-lmem-usage,-warn-spills -c "$file" -o "$out/$(basename "$file" .cu).o" 2>"$out/$(basename "$file").log" &
        jobs="$jobs $!"
    done
    for job in $jobs; do
        wait "$job" || { cat "$out"/*.log >&2; exit 1; }
    done
    # shellcheck disable=SC2086
    "$nvcc" $flags "$out"/*.o -o "$out/patterns"
fi
if [ $# -eq 0 ]; then
    "$out/patterns" check | tail -3
    exec "$out/patterns" kernels
fi
exec "$out/patterns" "$@"
