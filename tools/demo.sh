#!/bin/sh
# The demonstration: train a small GPT-2 on the King James Bible from Debian's package, watch it learn, read what it writes.
set -eu
banyan="${BUILD:-build}/banyan"
out="${DEMO_OUT:-runs/demo}"
text="$out/kjv.txt"
steps="${DEMO_STEPS:-1500}"
mkdir -p "$out"

if [ ! -s "$text" ]; then
    if command -v bible >/dev/null 2>&1; then
        # -f: plain lines with their references; the text alone is kept
        bible -f 'Genesis 1:1-Revelation 22:21' </dev/null | sed 's/^[^ ]* //' >"$text.new"
    else
        echo "demo: the program 'bible' (package bible-kjv) is not there; training on the texts of this project's sources instead" >&2
        cat src/*/*.c docs/*.md README.md >"$text.new"
    fi
    mv "$text.new" "$text"
fi

echo "== training a character-level GPT-2 on $(wc -c <"$text") bytes of text, $steps steps"
"$banyan" train --data "$text" --out "$out" --preset tiny --layers 4 --heads 4 --width 128 --context 96 --batch-size 16 \
    --max-steps "$steps" --learning-rate 2e-3 --eval-steps 250 --eval-batches 40 --warmup-steps 100 --curve
echo
echo "== what it writes"
"$banyan" generate "$out" --prompt "And the Lord said" --max-new-tokens 400 --slide --temp 0.8 --top-k 40 --seed 1
echo
echo "The curve above is also a picture: $out/loss.svg"
echo "Next: $banyan help, and docs/ for the rest."
