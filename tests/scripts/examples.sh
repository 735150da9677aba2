#!/bin/sh
# The three programs of examples/, run as a reader would run them.
. "$(dirname "$0")/lib/common.sh"
own_folder
examples="$BANYAN_BUILD/examples"

check "a new architecture learns its sentence" "$examples/architecture"

# A small model to work with, trained on the sources of this very project.
cat "$BANYAN_SOURCE"/src/graph/*.c >"$tmp/text"
"$BANYAN" train --data "$tmp/text" --tokenizer byte --out "$tmp/run" --layers 2 --heads 2 --width 32 --context 32 \
    --batch-size 8 --max-steps 30 --warmup-steps 5 --quiet >"$tmp/log" 2>&1 || {
    echo "not ok a model to start from"
    cat "$tmp/log" >&2
    exit 1
}
check "generate from C" "$examples/generate" "$tmp/run/best" "static by" 40
check "fine-tune from C" "$examples/finetune" "$tmp/run/best" "$tmp/text" "$tmp/tuned" 200
# Batches differ, so several of them are compared: the first fifty with the last fifty.
mv "$tmp/why" "$tmp/steps"
check "fine-tuning lowers the loss" awk '/^step / { if ($2 <= 50) first += $4; if ($2 > 150) last += $4 } END { exit !(last > 0 && last < first) }' "$tmp/steps"
check "the tuned model opens again" "$BANYAN" inspect "$tmp/tuned"
