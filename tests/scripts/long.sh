#!/bin/sh
# long.sh - the continuous cache, text without an end, and `banyan bench attention`, from the command line.
. "$(dirname "$0")/lib/common.sh"
own_folder
cd "$tmp" || exit 1
cat "$BANYAN_SOURCE"/src/graph/*.c >text
head -c 6000 text >held
tail -c 6000 text >unseen
run train --data text --tokenizer byte --out run --layers 2 --heads 2 --width 32 --context 32 --batch-size 8 \
    --max-steps 60 --warmup-steps 5 --seed 1 --threads 1 --quiet
check "a model to work with" test "$rc" -eq 0

# ---- the continuous cache -------------------------------------------------------------------------------------------
value() { sed -n "s/.*\"$1\": *\([0-9.e+-]*\).*/\1/p" "$2"; }
run eval run unseen --threads 1 --json --quiet
check "without a cache" works perplexity
cp out plain
run eval run unseen --threads 1 --json --quiet --cache-size 500 --tune-cache held
check "a cache that is tuned" works cache_theta
cp out tuned
below() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a > 0 && a < b) }'; }
check "the cache lowers the perplexity" below "$(value perplexity tuned)" "$(value perplexity plain)"
check "the rest stays" test "$(value plain_perplexity tuned | cut -c1-6)" = "$(value perplexity plain | cut -c1-6)"
run eval run unseen --threads 1 --json --quiet --cache-size 500 --cache-theta "$(value cache_theta tuned)" \
    --cache-lambda "$(value cache_lambda tuned)"
check "the numbers that were chosen, given" test "$(value perplexity out | cut -c1-7)" = "$(value perplexity tuned | cut -c1-7)"
run eval run unseen held --threads 1 --quiet --cache-size 500 --cache-theta 0.1 --cache-lambda 0.2
cp out carried
run eval run unseen held --threads 1 --quiet --cache-size 500 --cache-theta 0.1 --cache-lambda 0.2 --cache-per-document
check "a cache for each document is another" sh -c "! cmp -s out carried && grep -q 'cache of 500' out"
refused() { [ "$rc" -eq 2 ] && grep -q -e "$1" err; }
run eval run unseen --cache-size 500
check "a cache without numbers is refused" refused tune-cache
run generate run -p "static" --cache-size 500
check "so it is in generate" refused cache-lambda
run generate run -p "static" -n 40 --greedy --threads 1 --cache-size 100 --cache-theta 0.1 --cache-lambda 0.3
check "text with a cache" works static
cp out cached
run generate run -p "static" -n 40 --greedy --threads 1
check "is another text" sh -c "! cmp -s out cached"

# ---- text without an end --------------------------------------------------------------------------------------------
tokens() { sed -n 's/.*"tokens": *\([0-9]*\).*/\1/p' out; }
run generate run -p "static int" -n 300 --greedy --ignore-eos --window 24 --sinks 4 --threads 1 --json
check "300 tokens in a window of 24" test "$(tokens)" = 300
cp out sinks
run generate run -p "static int" -n 300 --greedy --ignore-eos --window 24 --sinks 0 --threads 1 --json
check "sinks matter" sh -c "! cmp -s out sinks"
run generate run -p "static int" -n 300 --greedy --ignore-eos --context 24 --threads 1 --json
cp out slid
run generate run -p "static int" -n 300 --greedy --ignore-eos --window 24 --sinks 0 --threads 1 --json
ids() { sed 's/.*"ids"://; s/"finish.*//' "$1"; }
check "no sinks: as a context that slides" test "$(ids out)" = "$(ids slid)"
run generate run -p "static int" --sinks 4
check "sinks without a window" refused window
run generate run -p "static int" --window 24 --beams 2
check "a window in a beam search" refused window
run generate run -p "static int" --window 24 --sinks 24 -n 40
check "sinks that fill the window" sh -c "[ $rc -ne 0 ] && grep -q 'no room' err"

# ---- attention over lengths -----------------------------------------------------------------------------------------
run bench attention --lengths 64,128 --heads 2 --head-dim 16 --json --plot plot.svg --threads 1
check "attention over lengths" works forward_backward_exponent
kinds=$(grep -c '"length":64' out)
check "each kind at each length, and fitted" test "$(wc -l <out)" = $((3 * kinds))
check "at least twelve kinds" test "$kinds" -ge 12
check "the share of the causal pairs" grep -q '"attention":"causal","length":64.*"share":0.5078125' out
check "a picture" grep -q '>bigbird<' plot.svg
run bench attention --lengths 64 --kinds dense --threads 1
check "one length has no exponent" sh -c '! grep -q -e exponent -e nan out && grep -q dense out'
run bench attention --lengths 64 --kinds dense,nonsense
check "an unknown kind" refused kinds
run bench attention --lengths 64,x
check "lengths that are none" refused lengths
exit $failed
