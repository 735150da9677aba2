#!/bin/sh
# ngram.sh - n-gram models from the command line: estimation with every smoothing, ARPA files, perplexity, scores by sentence,
# generation, conversion; runs that are killed or interrupted; what is refused. That the estimates are KenLM's is the business of
# `banyan verify` on recorded models.
# shellcheck disable=SC2317 # check evaluates what it is given
. "$(dirname "$0")/lib/common.sh"
own_folder
export TMPDIR="$tmp"

# Words of the documentation, a line for each of its lines.
words() { cat "$@" | tr '[:upper:]' '[:lower:]' | tr -cs 'a-z0-9\n' ' ' | grep '[a-z].* [a-z]'; }
words "$BANYAN_SOURCE"/docs/[A-S]*.md "$BANYAN_SOURCE"/docs/models/*.md >"$tmp/text"
words "$BANYAN_SOURCE"/docs/T*.md >"$tmp/held"

train() { run train --model ngram --data "$tmp/text" --quiet "$@"; }
near() { awk -v a="$1" -v b="$2" -v e="$3" 'BEGIN { d = a - b; exit !(a != "" && b != "" && d <= e && -d <= e) }'; }
less() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a != "" && b != "" && a + 0 < b + 0) }'; }
number() { sed -n "s/.*\"$1\":\\([-0-9.e]*\\).*/\\1/p" "$tmp/out"; }
perplexity() { # MODEL: with all words
    run eval "$1" "$tmp/held" --json --quiet && number perplexity
}

# ---- train ----------------------------------------------------------------------------------------------

train --order 3 --out "$tmp/ng" --arpa "$tmp/ng.arpa.gz" --eval-data "$tmp/held"
check "a model of words is estimated" works 'held-out perplexity'
files() { [ -s "$tmp/ng/config.json" ] && [ -s "$tmp/ng/ngram.bin" ] && [ -s "$tmp/ng/run.json" ]; }
check "its folder has configuration, binary and record" files
check "its ARPA file is complete" sh -c "gunzip -c '$tmp/ng.arpa.gz' | tail -n 1 | grep -q end"
for kind in mle add-k stupid-backoff; do
    train --order 2 --smoothing $kind --add-k 0.5 --out "$tmp/$kind"
    check "a model with --smoothing $kind is estimated" works "model: $tmp/$kind"
done
train --order 3 --prune 0 0 1 --out "$tmp/pruned"
check "pruning leaves out trigrams that occur once" works 'before pruning'
train --order 3 --no-interpolate-unigrams --out "$tmp/sri"
check "unigrams need not be interpolated" works "model: $tmp/sri"
train --order 3 --memory 1M --temporary "$tmp" --threads 2 --out "$tmp/spilled" --arpa "$tmp/spilled.arpa"
train --order 3 --threads 1 --out "$tmp/held-in" --arpa "$tmp/held-in.arpa"
check "a budget that is too small for the counts changes nothing" cmp "$tmp/spilled.arpa" "$tmp/held-in.arpa"
check "nor do threads change the binary" cmp "$tmp/spilled/ngram.bin" "$tmp/held-in/ngram.bin"
train --out "$tmp/ng"
check "a model is not replaced unasked" fails 1 'already holds an n-gram model'
train --order 2 --overwrite --out "$tmp/mle"
check "but when it is asked for" works "model: $tmp/mle"
"$BANYAN" train --model ngram --data - --out "$tmp/piped" --quiet <"$tmp/text" >"$tmp/out" 2>"$tmp/err"
check "standard input is a corpus" cmp "$tmp/piped/ngram.bin" "$tmp/ng/ngram.bin"

for kind in char byte bpe:300; do
    train --order 4 --tokenizer $kind --discount-fallback --out "$tmp/tokens"
    check "a model of tokens is estimated with --tokenizer $kind" works 'tokens in 1'
    run eval "$tmp/tokens" "$tmp/held" --json --quiet
    bits=$(number bits_per_byte)
    check "and has bits per byte" less "$bits" 4
    run generate "$tmp/tokens" "the w" -n 20 --seed 1
    check "and generates" works '^the w'
    run score "$tmp/tokens" "$tmp/held" --words
    check "and scores lines" works 'Total: -'
    rm -rf "$tmp/tokens"
done

# ---- eval, score, generate, inspect, convert ------------------------------------------------------------

whole=$(perplexity "$tmp/ng")
check "perplexity is that of the ARPA file" near "$whole" "$(perplexity "$tmp/ng.arpa.gz")" 1e-3
check "a trigram model predicts better than a pruned one" less "$whole" "$(perplexity "$tmp/pruned")"
run score "$tmp/ng" "$tmp/held"
total=$(awk '{ s += $2 } END { print s }' "$tmp/out")
run eval "$tmp/ng" "$tmp/held" --json --quiet
check "scores of sentences add up to the loss" near "$total" "$(awk -v l="$(number loss)" -v n="$(number tokens)" 'BEGIN { print -l * n / log(10) }')" 0.01
run score "$tmp/ng" "$tmp/held" --words
words=$(tr '\t' '\n' <"$tmp/out" | awk '/=/ { s += $3 } END { print s }')
check "and those of words to them" near "$words" "$total" 0.05
run score "$tmp/ng.arpa.gz" "$tmp/held" --json --words
check "scores come as JSON" works '"scores":\[{"word":"'
echo 'the neverseen model' >"$tmp/line"
run score "$tmp/ng" "$tmp/line"
check "unknown words are counted" works 'OOV: 1$'
run eval "$tmp/ng" "$tmp/line"
check "and perplexity is given without them" works 'perplexity without unknown words .* unknown words 1 of 3'
run generate "$tmp/ng" the model -n 12 --seed 4 --ignore-eos
check "words are generated after a prompt" works '^the model [a-z0-9]'
cp "$tmp/out" "$tmp/first"
run generate "$tmp/ng" the model -n 12 --seed 4 --ignore-eos
check "and are the same for the same seed" cmp "$tmp/out" "$tmp/first"
run generate "$tmp/ng.arpa.gz" --samples 3 --seed 1 --json --ban the
check "samples of an ARPA file come as JSON" works '"sample":3'
run inspect "$tmp/ng"
check "inspect shows the orders" works ' 3-grams '
run inspect "$tmp/ng.arpa.gz" --json
check "also those of an ARPA file" works '"family":"ngram","order":3'
run convert "$tmp/ng.arpa.gz" "$tmp/back"
check "an ARPA file becomes a directory" works 'order 3'
run convert "$tmp/back" "$tmp/again.arpa"
check "and the directory an ARPA file" works 'order 3'
sorted() { gunzip -cf "$1" | sort >"$1.sorted"; }
same() { sorted "$tmp/ng.arpa.gz" && sorted "$tmp/again.arpa" && [ -s "$tmp/again.arpa" ] &&
    cmp "$tmp/ng.arpa.gz.sorted" "$tmp/again.arpa.sorted"; }
check "with the same n-grams" same

# ---- beside a neural model ----------------------------------------------------------------------------------

run train --data "$tmp/text" --tokenizer bpe:300 --out "$tmp/neural" --layers 1 --heads 2 --width 16 --context 32 --max-steps 20 --threads 1 --quiet
train --order 4 --tokenizer "$tmp/neural" --discount-fallback --out "$tmp/tokens"
check "an n-gram model takes the tokenizer of a run" works 'tokens in'
run eval "$tmp/neural" "$tmp/held" --json --quiet --max-tokens 400
alone=$(number perplexity)
run eval "$tmp/neural" "$tmp/held" --json --quiet --max-tokens 400 --ngram "$tmp/tokens" --ngram-weight 0
check "a weight of 0 changes nothing" near "$alone" "$(number perplexity)" 1e-3
head -n 40 "$tmp/held" >"$tmp/tune"
run eval "$tmp/neural" "$tmp/held" --json --quiet --max-tokens 400 --ngram "$tmp/tokens" --tune-ngram "$tmp/tune"
check "a tuned weight lowers the perplexity" less "$(number perplexity)" "$alone"
check "and the one without the n-gram model is given" near "$alone" "$(number plain_perplexity)" 1e-3
run eval "$tmp/neural" "$tmp/held" --quiet --max-tokens 400 --ngram "$tmp/tokens" --tune-ngram "$tmp/tune"
check "the weight is shown" works 'tuned on .*--ngram-weight 0\.'
run generate "$tmp/neural" the --greedy -n 12 --ngram "$tmp/tokens" --ngram-weight 1
cp "$tmp/out" "$tmp/first"
run generate "$tmp/tokens" the --greedy -n 12
check "with a weight of 1 the text is that of the n-gram model" cmp "$tmp/out" "$tmp/first"
run generate "$tmp/neural" the --beams 3 -n 6 --ngram "$tmp/tokens" --ngram-weight 0.5
check "a beam search takes an n-gram model" works '^the'
run generate "$tmp/neural" the --ngram "$tmp/ng"
check "a model of words is refused" fails 1 'the n-gram model predicts words'
train --order 2 --tokenizer bpe:280 --discount-fallback --out "$tmp/other"
run eval "$tmp/neural" "$tmp/held" --ngram "$tmp/other"
check "and so is another tokenizer" fails 1 'with another tokenizer'
head -n 300 "$tmp/text" >"$tmp/source"
run train --model transformer --data "$tmp/source" "$tmp/source" --tokenizer bpe:300 --out "$tmp/pairs" --layers 1 --heads 2 --width 16 \
    --context 64 --max-steps 4 --batch-tokens 256 --threads 1 --quiet
train --order 3 --tokenizer "$tmp/pairs" --lines --discount-fallback --out "$tmp/target"
check "lines can be texts" works 'tokens in [0-9,]* texts'
run translate "$tmp/pairs" "the model" --beams 2 -n 8 --ngram "$tmp/target" --ngram-weight 0.2
check "a translation takes an n-gram model" [ "$rc" -eq 0 ]
run eval "$tmp/pairs" "$tmp/line" "$tmp/line" --beams 2 --ngram "$tmp/target" --quiet
check "and so does its evaluation" works BLEU

# ---- interruptions ----------------------------------------------------------------------------------------

# stop SIGNAL: a run is stopped while it counts a text without an end.
mkfifo "$tmp/endless"
stop() {
    (while cat "$tmp/text"; do :; done) >"$tmp/endless" 2>/dev/null &
    writer=$!
    "$BANYAN" train --model ngram --data - --memory 1M --out "$tmp/stopped" --overwrite --quiet <"$tmp/endless" >"$tmp/out" 2>"$tmp/err" &
    pid=$!
    sleep 0.3
    kill -"$1" $pid
    wait $pid 2>/dev/null
    rc=$?
    wait $writer 2>/dev/null
}
for signal in KILL INT TERM; do
    rm -rf "$tmp/stopped"
    stop $signal
    check "a count that is stopped by $signal ends with an error" [ "$rc" -ne 0 ]
    check "and leaves no model" [ -z "$(find "$tmp/stopped" -name config.json 2>/dev/null)" ]
    mkdir -p "$tmp/stopped" && touch "$tmp/stopped/ngram.bin.tmp-99999999"
    train --order 3 --out "$tmp/stopped"
    check "and starts again to the same model" cmp "$tmp/stopped/ngram.bin" "$tmp/ng/ngram.bin"
    check "and nothing is left over" [ -z "$(find "$tmp" -name '*tmp-*' -o -name 'banyan-ngram*')" ]
    stop $signal
    check "an older model stays when its successor is stopped by $signal" cmp "$tmp/stopped/ngram.bin" "$tmp/ng/ngram.bin"
    run inspect "$tmp/stopped"
    check "and is whole" works 'order 3'
done

# ---- what is refused --------------------------------------------------------------------------------------

: >"$tmp/empty"
run train --model ngram --data "$tmp/empty" --out "$tmp/bad"
check "an empty corpus is refused" fails 1 'no words'
echo 'a <s> b' >"$tmp/symbols"
run train --model ngram --data "$tmp/symbols" --out "$tmp/bad"
check "symbols in the text are refused" fails 1 'symbols:1: the text contains the reserved symbol <s>'
run train --model ngram --order 9 --data "$tmp/line" --out "$tmp/bad"
check "discounts that cannot be estimated are an error" fails 1 'discounts of order'
check "and leave no folder" [ ! -e "$tmp/bad" ]
run train --model ngram --order 9 --data "$tmp/line" --discount-fallback --out "$tmp/high"
check "an order above every sentence is fine with fallback discounts" works 'model: '
run train --model ngram --layers 2 --data "$tmp/text" --out "$tmp/bad"
check "options of neural models are refused" fails 2 'layers is not for n-gram models'
run train --order 4 --data "$tmp/text" --out "$tmp/bad"
check "and options of n-gram models elsewhere" fails 2 'order is for n-gram models'
run train --model ngram --prune 0 x --data "$tmp/text" --out "$tmp/bad"
check "a pruning threshold is a number" fails 2 'x is not a count'
run train --model ngram --prune 0 2 1 --data "$tmp/text" --out "$tmp/bad"
check "pruning thresholds do not fall" fails 1 'must not decrease'
run classify "$tmp/ng" text
check "other commands say that they take no n-gram model" fails 1 'this command does not support n-gram models'
printf '\\data\\\nngram 1=2\n\n\\1-grams:\n-1\ta b c\n' >"$tmp/spaces.arpa"
run eval "$tmp/spaces.arpa" "$tmp/held"
check "a word with spaces in an ARPA file is refused" fails 1 'line 5'
printf '\\data\\\nngram 1=3\n\n\\1-grams:\n-1\t<s>\n-1\t</s>\n\n\\end\\\n' >"$tmp/count.arpa"
run inspect "$tmp/count.arpa"
check "counts that do not fit are refused" fails 1 'fewer n-grams than the header says'
head -c 100000 "$tmp/held-in.arpa" >"$tmp/cut.arpa"
run score "$tmp/cut.arpa" "$tmp/held"
check "a cut ARPA file is refused" fails 1 'cut.arpa: line'
head -c 20000 "$tmp/ng.arpa.gz" >"$tmp/half.arpa.gz"
run score "$tmp/half.arpa.gz" "$tmp/held"
check "a cut compressed one is called truncated, not misspelt" fails 1 'the compressed data is truncated'
train --order 3 --prune 0 0 1 2 --out "$tmp/bad"
check "more pruning thresholds than orders are refused" fails 1 '4 pruning thresholds; the order is 3'
run train --model ngram --memory 0 --data "$tmp/text" --out "$tmp/bad"
check "a budget of nothing is refused" fails 2 'at least 1'
for kind in zst xz bz2; do
    train --order 2 --out "$tmp/packed" --overwrite --arpa "$tmp/packed.arpa.$kind"
    check "an ARPA file is not written as .$kind" fails 1 "packed.arpa.$kind: ARPA files are written plain or as .gz"
done
xz -c "$tmp/held-in.arpa" >"$tmp/packed.arpa.xz"
run inspect "$tmp/packed.arpa.xz"
check "one that is compressed otherwise names the program that unpacks it" fails 1 'compressed with xz'
run generate "$tmp/missing.arpa"
check "a missing one is named" fails 1 'missing.arpa: no such file'
exit $failed
