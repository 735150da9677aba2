#!/bin/sh
# recipe_gpu.sh - nanoGPT's GPU recipe for a character model of tinyshakespeare, as `banyan train`: 6 layers, 6 heads, 384 wide,
# context 256, batches of 64, 5000 steps, dropout 0.2. Prints the best validation loss (over the whole last tenth of the text;
# nanoGPT gives 1.4697 for its own, over samples of it) and the time.
#   bench/recipe_gpu.sh tinyshakespeare.txt [more options of banyan train]
# Environment: BANYAN (build/banyan), DEVICE (cuda), DTYPE (bf16), STEPS (5000), RUN (a folder that keeps the run), LIMIT (570:
# seconds after which it is interrupted; with RUN the same command goes on).
set -u
[ -r "${1:-}" ] || { echo "usage: bench/recipe_gpu.sh TEXT [options of banyan train]" >&2; exit 2; }
banyan=${BANYAN:-$(dirname "$0")/../build/banyan}
data=$1
shift
work=$(mktemp -d "${TMPDIR:-/tmp}/banyan-recipe.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
run=${RUN:-$work/run}
steps=${STEPS:-5000}

begin=$(date +%s)
timeout -s INT -k 20 "${LIMIT:-570}" "$banyan" train --data "$data" --eval-fraction 0.1 --tokenizer char --out "$run" \
    --layers 6 --heads 6 --width 384 --context 256 --dropout 0.2 --batch-size 64 --max-steps "$steps" \
    --learning-rate 1e-3 --min-learning-rate 1e-4 --lr-scheduler cosine --warmup-steps 100 \
    --adam-beta1 0.9 --adam-beta2 0.99 --weight-decay 0.1 --max-grad-norm 1 --eval-steps 250 --logging-steps 10 --seed 1337 \
    --device "${DEVICE:-cuda}" --dtype "${DTYPE:-bf16}" --json --quiet "$@" >"$work/result"
code=$?
took=$(($(date +%s) - begin))
[ -s "$run/metrics.jsonl" ] || { echo "recipe_gpu.sh: it failed, exit code $code" >&2; exit 1; }

echo "| step | training loss | validation loss | ms per step |"
echo "|---|---|---|---|"
sed -n '/"eval_loss"/s/[{}",]//gp' "$run/metrics.jsonl" |
    awk '{ for (i = 1; i < NF; i += 2) v[$i] = $(i + 1); printf "| %d | %.4f | %.4f | %.2f |\n", v["step:"], v["loss:"], v["eval_loss:"], v["ms:"] }'
echo
field() {
    sed -n "s/.*\"$1\":\([^,}]*\).*/\1/p" "$work/result"
}
if [ $code -eq 0 ]; then
    echo "best validation loss $(field best_eval_loss) at step $(field best_step) of $steps; training took $(field seconds) s," \
        "the program $took s"
else
    echo "recipe_gpu.sh: stopped before the end, exit code $code, after $took s" >&2
    exit 1
fi
