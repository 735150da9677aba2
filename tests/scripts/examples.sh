#!/bin/sh
# The three programs of examples/, run as a reader would run them.
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
examples="$BANYAN_BUILD/examples"

check() { # NAME COMMAND...
    name=$1
    shift
    if "$@" >"$work/log" 2>&1; then echo "ok $name"; else
        echo "not ok $name"
        cat "$work/log" >&2
    fi
}

check "a new architecture learns its sentence" "$examples/architecture"

# A small model to work with, trained on the sources of this very project.
cat "$BANYAN_SOURCE"/src/graph/*.c >"$work/text"
"$BANYAN" train --data "$work/text" --tokenizer byte --out "$work/run" --layers 2 --heads 2 --width 32 --context 32 \
    --batch-size 8 --max-steps 30 --warmup-steps 5 --quiet >"$work/log" 2>&1 || {
    echo "not ok a model to start from"
    cat "$work/log" >&2
    exit 1
}
check "generate from C" "$examples/generate" "$work/run/best" "static by" 40
check "fine-tune from C" "$examples/finetune" "$work/run/best" "$work/text" "$work/tuned" 200
# Batches differ, so several of them are compared: the first fifty with the last fifty.
if awk '/^step / { if ($2 <= 50) first += $4; if ($2 > 150) last += $4 } END { exit !(last > 0 && last < first) }' "$work/log"; then
    echo "ok fine-tuning lowers the loss"
else
    echo "not ok fine-tuning lowers the loss"
    cat "$work/log" >&2
fi
check "the tuned model opens again" "$BANYAN" inspect "$work/tuned"
