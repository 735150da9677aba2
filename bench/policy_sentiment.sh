#!/bin/sh
# policy_sentiment.sh SST2 [BETA...] - steering sentiment: a small language model of movie reviews learns from the probability that a classifier
# gives to the label "positive". SST2 is a folder with train.tsv and dev.tsv (text, label 0 or 1). For each weight of the divergence
# (default: 0.05 0.1) prints, as a Markdown table, the mean probability over test prompts before and after, under the classifier that
# rewards and under another one, and the divergence of an answer. Prompts of the runs are the first three words of training sentences, those
# of validation and test of dev sentences. Environment: BUILD (build), THREADS (0), WORK (a new folder in TMPDIR).
set -u
export LC_ALL=C
sst2=$(cd "${1:?a folder with train.tsv and dev.tsv is needed}" && pwd) || exit 1
shift
cd "$(dirname "$0")/.." || exit 1
banyan=$PWD/${BUILD:-build}/banyan
threads=${THREADS:-0}
work=${WORK:-$(mktemp -d)} && mkdir -p "$work" || exit 1
cd "$work" || exit 1

# prompts FILE: the first three words of longer sentences, none twice.
prompts() { awk -F '\t' 'split($1, w, " ") >= 8 { p = w[1] " " w[2] " " w[3]; if (p !~ /["\\]/ && !(p in seen)) { seen[p]; printf "{\"prompt\": \"%s\"}\n", p } }' "$1"; }
prompts "$sst2/train.tsv" | head -n 2000 >prompts.jsonl
prompts "$sst2/dev.tsv" | grep -vxFf prompts.jsonl >held.jsonl
head -n 128 held.jsonl >valid.jsonl
sed -n '129,328p' held.jsonl >test.jsonl
cut -f1 "$sst2/train.tsv" >text

[ -d lm/last ] || "$banyan" train --data text --tokenizer bpe:2000 --out lm --layers 3 --heads 4 --width 128 --context 64 --batch-size 16 \
    --max-steps 900 --learning-rate 2e-3 --dropout 0.1 --threads "$threads" --quiet >log || exit 1
[ -d judge/best ] || "$banyan" finetune lm --data "$sst2/train.tsv" --eval "$sst2/dev.tsv" --out judge --epochs 2 --max-length 48 \
    --learning-rate 5e-4 --threads "$threads" --quiet >>log || exit 1
[ -d other/best ] || "$banyan" finetune lm --data "$sst2/train.tsv" --eval "$sst2/dev.tsv" --out other --epochs 4 --max-length 48 \
    --learning-rate 2e-4 --dropout 0.2 --threads "$threads" --quiet >>log || exit 1

# align MODEL JUDGE OUT OPTIONS...
align() {
    model=$1 judge=$2 out=$3
    shift 3
    "$banyan" align "$model" --method grpo --data prompts.jsonl --reward "model:$judge" --reward-label 1 --stop '\n' --max-new-tokens 24 \
        --out "$out" --threads "$threads" --quiet --json "$@"
}
# probability MODEL JUDGE: the mean over the test prompts.
probability() {
    rm -rf trial
    align "$1" "$2" trial --eval test.jsonl --batch-size 25 --learning-rate 0 --max-steps 1 --sample-steps -1 |
        sed -n 's/.*"reward": *\([0-9.]*\).*/\1/p'
}

echo "| | the judge | another | nats per answer |"
echo "|---|---|---|---|"
echo "| before | $(probability lm judge) | $(probability lm other) | 0 |"
for beta in ${*:-0.05 0.1}; do
    rm -rf "run-$beta"
    align lm judge "run-$beta" --eval valid.jsonl --eval-steps 22 --num-generations 8 --batch-size 8 --beta "$beta" --learning-rate 4e-4 \
        --max-steps 110 >"$beta.json" || exit 1
    nats=$(tail -n 20 "run-$beta/metrics.jsonl" | sed 's/.*"kl": \([-0-9.e]*\),.*"completions\/mean_length": \([0-9.]*\),.*/\1 \2/' |
        awk '{ sum += $1 * $2 } END { printf "%.1f", sum / NR }')
    echo "| beta $beta | $(probability "run-$beta" judge) | $(probability "run-$beta" other) | $nats |"
done
