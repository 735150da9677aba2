#!/bin/sh
# decode_peer.sh - decoding one text with GPT-2 124M on the CPU, Banyan beside llama.cpp, in turns. A Markdown table on stdout.
#   LLAMA_BENCH=path/to/llama-bench GGUF=folder bench/decode_peer.sh
# GGUF holds gpt2-f32.gguf and gpt2-bf16.gguf, made by llama.cpp's convert_hf_to_gguf.py from the folder that
# `banyan bench forward --preset 124m --save DIR` writes, with GPT-2's tokenizer files beside the weights.
# Environment: BANYAN (build/banyan), THREADS (every core), ROUNDS (5), NEW (64: tokens written after 16).
set -eu
cd "$(dirname "$0")/.."
banyan=${BANYAN:-build/banyan}
bench=${LLAMA_BENCH:?the llama-bench program}
gguf=${GGUF:?the folder with gpt2-f32.gguf and gpt2-bf16.gguf}
threads=${THREADS:-$(nproc)} rounds=${ROUNDS:-5} new=${NEW:-64}

ours() {
    "$banyan" bench decode --preset 124m --prompt 16 --new-tokens "$new" --steps 1 --dtype "$1" --device cpu --threads "$threads" 2>/dev/null |
        sed -n 's/.*"tokens_per_s":\([0-9.]*\).*/\1/p'
}

theirs() {
    "$bench" -m "$gguf/gpt2-$1.gguf" -p 0 -n "$new" -r 1 -t "$threads" -o json 2>/dev/null | sed -n 's/.*"avg_ts": \([0-9.]*\).*/\1/p'
}

echo "| type | Banyan tok/s, each round | llama.cpp tok/s, each round | best against best |"
echo "|---|---|---|---|"
for type in f32 bf16; do
    a="" b=""
    for _ in $(seq "$rounds"); do
        a="$a $(ours $type)"
        b="$b $(theirs $type)"
    done
    echo "$a;$b" | awk -F';' -v type=$type '{
        n = split($1, x, " "); m = split($2, y, " ")
        for (i = 1; i <= n; i++) { if (x[i] > p) p = x[i]; s = s sprintf(" %.1f", x[i]) }
        for (i = 1; i <= m; i++) { if (y[i] > q) q = y[i]; r = r sprintf(" %.1f", y[i]) }
        printf "| %s |%s |%s | **%.2f** |\n", type, s, r, (q > 0 ? p / q : 0) }'
done
