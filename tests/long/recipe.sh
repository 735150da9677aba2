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
    --batch-size 12 --max-steps 2000 --eval-fraction 0.1 --eval-steps 250 --json --quiet \
    >"$work/result" 2>"$work/log"; then
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
# The same number from the saved model, through another verb. The text is ASCII: a character is a byte.
size=$(wc -c <"$text")
tail -c $((size - size * 9 / 10)) "$text" >"$work/held"
again=$("$BANYAN" eval "$work/run/best" --data "$work/held" --json --quiet 2>"$work/log" |
    sed -n 's/.*"loss":\([0-9.]*\).*/\1/p')
if awk "BEGIN { d = ${again:-99} - ${loss:-0}; exit !(d < 1e-4 && d > -1e-4) }"; then
    echo "ok banyan eval finds the same loss"
else
    echo "not ok banyan eval finds the same loss: ${again:-nothing} instead of $loss"
    cat "$work/log"
fi
