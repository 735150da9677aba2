#!/bin/sh
# policy_sentiment.sh SST2 [BETA...] - steering sentiment: a small language model of movie reviews learns from the probability that a classifier
# gives to the label "positive". SST2 is a folder with train.tsv and dev.tsv (text, label 0 or 1). For each weight of the divergence
# (default: 0.12) prints, as a Markdown table, the mean probability of answers to validation prompts and their divergence. The weight
# with the highest probability within NATS (15) nats per answer is chosen; for it alone the same follows on test prompts, also under another
# classifier, which has rewarded nothing, and some texts before and after. Prompts of the runs are the first three words of training sentences, those
# of validation and test of dev sentences. Environment: BUILD (build), THREADS (0), STEPS (160), WORK (a new folder in TMPDIR).
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
sed -n '329,528p' held.jsonl >test.jsonl # settings were once compared on the 200 lines before
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
    "$banyan" align "$model" --method grpo --reward "model:$judge" --reward-label 1 --stop '\n' --max-new-tokens 24 --out "$out" \
        --threads "$threads" --quiet --json "$@"
}
# probability MODEL JUDGE PROMPTS: the mean over one answer to each prompt.
probability() {
    rm -rf trial
    align "$1" "$2" trial --data prompts.jsonl --eval "$3" --batch-size 25 --learning-rate 0 --max-steps 1 --sample-steps -1 |
        sed -n 's/.*"reward": *\([0-9.]*\).*/\1/p'
}
# nats MODEL PROMPTS: the divergence of an answer from the model before, over two answers to each prompt.
nats() {
    rm -rf trial
    align "$1" judge trial --reference lm --data "$2" --batch-size $(($(wc -l <"$2") / 2)) --gradient-accumulation-steps 2 --num-generations 2 \
        --beta 0.1 --learning-rate 0 --max-steps 1 --sample-count 20 >>log 2>&1 || exit 1
    sed 's/.*"kl": \([-0-9.e]*\),.*"completions\/mean_length": \([0-9.]*\),.*/\1 \2/' trial/metrics.jsonl | awk '{ printf "%.1f", $1 * $2 }'
}
# texts: prompts and answers of the last trial.
texts() { sed -n 's/.*"prompt": "\(.*\)", "answer": "\(.*\)", "tokens".*/\1 *\2*/p' trial/samples.jsonl; }

echo "| validation prompts | the judge | nats per answer |"
echo "|---|---|---|"
echo "| before | $(probability lm judge valid.jsonl) | 0 |"
best=0 chosen=
for beta in ${*:-0.12}; do
    rm -rf "run-$beta"
    align lm judge "run-$beta" --data prompts.jsonl --eval valid.jsonl --eval-steps 20 --num-generations 8 --batch-size 8 --beta "$beta" \
        --learning-rate 4e-4 --max-steps "${STEPS:-160}" >"$beta.json" || exit 1
    p=$(probability "run-$beta" judge valid.jsonl) n=$(nats "run-$beta" valid.jsonl)
    echo "| beta $beta | $p | $n |"
    if awk "BEGIN { exit !($p > $best && $n <= ${NATS:-15}) }"; then
        best=$p chosen=$beta
    fi
done
[ "$chosen" ] || exit 1
echo
echo "| test prompts | the judge | another | nats per answer |"
echo "|---|---|---|---|"
echo "| before | $(probability lm judge test.jsonl) | $(probability lm other test.jsonl) | 0 |"
echo "| beta $chosen | $(probability "run-$chosen" judge test.jsonl) | $(probability "run-$chosen" other test.jsonl) | $(nats "run-$chosen" test.jsonl) |"
echo
nats lm test.jsonl >nats && texts >before
nats "run-$chosen" test.jsonl >nats && texts >after
paste -d '|' before after | sed 's/.*/|&|/'
