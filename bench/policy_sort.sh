#!/bin/sh
# policy_sort.sh [METHOD...] - reinforcement learning with a reward that can be checked: a tiny model of characters that sorts few lists of
# digits after a little training learns to sort nearly all of them. Prints, as a Markdown table, the share of sorted lists before and
# after, sampled and greedy, and the time. The lists of training, of rewards, of validation and of the test are all different.
# Methods: grpo ppo rloo reinforce (default: grpo ppo). Environment: BUILD (build), THREADS (0), WORK (a new folder in TMPDIR).
set -u
export LC_ALL=C
cd "$(dirname "$0")/.." || exit 1
banyan=$PWD/${BUILD:-build}/banyan
threads=${THREADS:-0}
work=${WORK:-$(mktemp -d)} && mkdir -p "$work" || exit 1
cd "$work" || exit 1

# Lists of four and five digits, none twice.
awk 'BEGIN {
    srand(7)
    while (n < 25000) {
        list = ""
        digits = 4 + int(rand() * 2)
        for (i = 0; i < digits; i++)
            list = list int(rand() * 10)
        if (!(list in seen)) {
            seen[list]
            n++
            print list
        }
    }
}' >lists
head -n 20000 lists | awk '{ n = split($0, d, ""); for (i = 2; i <= n; i++) for (j = i; j > 1 && d[j] < d[j - 1]; j--) {
    t = d[j]; d[j] = d[j - 1]; d[j - 1] = t }; s = ""; for (i = 1; i <= n; i++) s = s d[i]; print $0 "=" s }' >text
prompts() { awk '{ printf "{\"prompt\": \"%s=\"}\n", $0 }'; }
sed -n '20001,24000p' lists | prompts >prompts.jsonl
sed -n '24001,24500p' lists | prompts >valid.jsonl
sed -n '24501,25000p' lists | prompts >test.jsonl

[ -d base/last ] || "$banyan" train --data text --tokenizer char --out base --layers 2 --heads 4 --width 64 --context 32 \
    --batch-size 32 --max-steps "${BASE_STEPS:-1000}" --learning-rate 2e-3 --dropout 0 --seed 1 --threads "$threads" --quiet >base.log || exit 1

# value KEY FILE: from a JSON object.
value() { sed -n "s/.*\"$1\": *\([-0-9.e]*\).*/\1/p" "$2"; }

# share MODEL OPTIONS...: of the test lists that the model sorts.
share() {
    model=$1
    shift
    rm -rf trial
    "$banyan" align "$model" --method grpo --data prompts.jsonl --eval test.jsonl --reward sorted --stop '\n' --max-new-tokens 8 \
        --batch-size 64 --max-steps 1 --learning-rate 0 --sample-steps -1 --out trial --threads "$threads" --quiet --json "$@" >trial.json || exit 1
    value reward trial.json
}

echo "| method | sampled | greedy | steps | wall s | CPU s |"
echo "|---|---|---|---|---|---|"
echo "| before | $(share base/last) | $(share base/last --greedy-eval) | | | |"
for method in ${*:-grpo ppo}; do
    rm -rf "$method"
    case $method in
    ppo) set -- --batch-size 64 --gradient-accumulation-steps 2 --num-minibatches 2 --temperature 1 --beta 0.01 --max-steps 300 ;;
    grpo) set -- --batch-size 16 --num-generations 8 --max-steps 500 ;;
    rloo) set -- --batch-size 16 --num-generations 8 --beta 0.01 --max-steps 500 ;;
    *) set -- --batch-size 128 --beta 0.01 --max-steps 500 ;;
    esac
    /usr/bin/time -f '%e %U %S' -o "$method.time" "$banyan" align base/last --method "$method" --data prompts.jsonl --eval valid.jsonl \
        --eval-steps 50 --reward sorted --stop '\n' --max-new-tokens 8 --learning-rate "${RATE:-1e-3}" --out "$method" --threads "$threads" \
        --json "$@" >"$method.json" 2>"$method.log" || exit 1
    echo "| $method | $(share "$method") | $(share "$method" --greedy-eval) | $(value steps "$method.json") | $(awk '{ print $1 " | " $2 + $3 }' "$method.time") |"
done
