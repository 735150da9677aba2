#!/bin/bash
# The CPU recipe of nanoGPT's README: a character model of Shakespeare, 4 layers of width 128, context 64, 2000 steps of
# 12 rows, no dropout, the last tenth held out. It reports a validation loss of 1.88.
set -u
export LC_ALL=C
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
text=$BANYAN_SHARED/data/corpora/tinyshakespeare.txt
name="nanoGPT's CPU recipe reaches a held-out loss of 1.88"
if ! [ -e "$text" ]; then
    echo "not run $name: there is no $text"
    exit 0
fi

if ! "$BANYAN" train --data "$text" --out "$work/run" --layers 4 --heads 4 --width 128 --context 64 --dropout 0 \
    --batch-size 12 --max-steps 2000 --eval-fraction 0.1 --eval-steps 250 --json --quiet >"$work/result" 2>"$work/log"; then
    echo "not ok $name"
    cat "$work/log"
    exit 1
fi
loss=$(sed -n 's/.*"best_eval_loss":\([0-9.]*\).*/\1/p' "$work/result")
if awk "BEGIN { exit !(\"$loss\" != \"\" && $loss + 0 <= 1.88) }"; then
    echo "ok $name"
else
    echo "not ok $name: ${loss:-none}"
fi
# The same number from the saved model, through another verb: bits or nats per token of the held-out text.
bytes=$(($(wc -c <"$text") / 10))
tail -c "$bytes" "$text" >"$work/held"
check=$("$BANYAN" eval "$work/run/best" --data "$work/held" --json 2>"$work/log" | sed -n 's/.*"loss":\([0-9.]*\).*/\1/p')
if awk "BEGIN { d = ${check:-99} - ${loss:-0}; exit !(d < 0.02 && d > -0.1) }"; then
    echo "ok banyan eval agrees with the run"
else
    echo "not ok banyan eval agrees with the run: ${check:-nothing} instead of $loss"
    cat "$work/log"
fi
