#!/bin/sh
# verbs.sh - the program from outside: train a tiny model, then generate, eval, inspect and verify; what they print, what they say
# when something is wrong, and their exit codes. One thread: the machine may be busy.
# shellcheck disable=SC2016,SC2317 # check evaluates what it is given
. "$(dirname "$0")/lib/common.sh"
own_folder
export TMPDIR="$tmp/scratch"
mkdir "$TMPDIR"
shared=${BANYAN_SHARED:-$BANYAN_SOURCE/../shared}

# is_json: out is one object on one line.
is_json() {
    [ "$(wc -l <"$tmp/out")" -eq 1 ] || return 1
    if command -v python3 >/dev/null 2>&1; then
        python3 -c 'import json, sys; sys.exit(not isinstance(json.load(sys.stdin), dict))' <"$tmp/out" 2>/dev/null
    else
        grep -q '^{".*}$' "$tmp/out"
    fi
}

# field KEY: the number behind "KEY": in out.
field() {
    sed -n "s/.*\"$1\": *\\([-0-9.e+]*\\).*/\\1/p" "$tmp/out" | head -n 1
}

# near A B TOLERANCE
near() {
    awk -v a="$1" -v b="$2" -v t="$3" 'BEGIN { d = a - b; if (d < 0) d = -d; exit !(a != "" && b != "" && d <= t) }'
}

# ---- train -------------------------------------------------------------------------------------------------------------
i=0
while [ $i -lt 300 ]; do
    echo "the quick brown fox no. $i jumps over the lazy dog"
    i=$((i + 1))
done >"$tmp/text.txt"
characters=$(wc -c <"$tmp/text.txt")
set -- --data "$tmp/text.txt" --out "$tmp/run" --layers 2 --heads 2 --width 32 --context 32 --batch-size 8 \
    --warmup-steps 5 --learning-rate 5e-3 --threads 1
run train "$@" --max-steps 40 --json
check train works '"steps":40'
check train-json is_json
check train-writes-a-model [ -s "$tmp/run/best/model.safetensors" ]
check train-logs grep -q '"eval_loss"' "$tmp/run/metrics.jsonl"
run train "$@" --max-steps 40 --json
check train-again-has-nothing-to-do works '"resumed_from":40'
run train "$@" --max-steps 40 --seed 1
check train-refuses-another-run fails 1 seed
run train --data "$tmp/nowhere.txt" --out "$tmp/none"
check train-without-data fails 1 nowhere.txt
run train --out "$tmp/none"
check train-needs-data fails 2 --data
model=$tmp/run/best

# ---- generate ----------------------------------------------------------------------------------------------------------
run generate "$tmp/run" --threads 1 --prompt "the quick" -n 20 --greedy
check generate works '^the quick'
cp "$tmp/out" "$tmp/first"
run generate "$model" --threads 1 --prompt "the quick" -n 20 --greedy
check generate-from-run-or-model cmp -s "$tmp/out" "$tmp/first"
run generate "$tmp/run" --threads 1 --prompt "the" -n 20 --json --seed 3
check generate-json is_json
check generate-json-length works '"tokens":20'
printf 'the quick\nfox\nthe\nbrown fox\n' >"$tmp/prompts"
run generate "$tmp/run" --threads 1 -f "$tmp/prompts" --lines -n 12 --greedy
check generate-lines eval '[ $rc -eq 0 ] && [ "$(wc -l <"$tmp/out")" -eq 4 ] && sed -n 1p "$tmp/out" | grep -q "^the quick" && sed -n 4p "$tmp/out" | grep -q "^brown fox"'
sed -n 4p "$tmp/out" >"$tmp/fourth"
run generate "$tmp/run" --threads 1 --prompt "brown fox" -n 12 --greedy
tr '\n' ' ' <"$tmp/out" | sed 's/ $//' >"$tmp/alone"
check generate-lines-as-alone eval '[ "$(sed "s/\\\\n/ /g" "$tmp/fourth")" = "$(cat "$tmp/alone")" ]'
run generate "$tmp/run" --threads 1 -f "$tmp/prompts" --lines -n 5 --seed 3 --samples 3 --json
check generate-lines-json eval '[ "$(wc -l <"$tmp/out")" -eq 12 ] && sed -n 12p "$tmp/out" | grep -q "^{\"line\":4,\"sample\":3,"'
run generate "$tmp/run" --threads 1 -f "$tmp/prompts" --lines -n 5 --beams 2 --return 2 --json
check generate-lines-beams eval '[ "$(wc -l <"$tmp/out")" -eq 8 ] && sed -n 8p "$tmp/out" | grep -q "^{\"line\":4,\"sample\":2,"'
run generate "$tmp/run" --threads 1 --lines --prompt "the" -n 5
check generate-lines-need-a-file fails 2 'lines reads'
# The tokens of a stop string are in neither output.
run generate "$tmp/run" --threads 1 --prompt "the quick" -n 20 --greedy --no-echo
word=$(cut -c 5-7 "$tmp/out" | head -n 1)
run generate "$tmp/run" --threads 1 --prompt "the quick" -n 20 --greedy --no-echo --stop "$word" --verbose
check generate-stop-counts grep -q ', 4 new in' "$tmp/err"
run generate "$tmp/run" --threads 1 --prompt "the quick" -n 20 --greedy --stop "$word" --json
check generate-stop-counts-json eval 'works "\"finish_reason\":\"stop\".*\"tokens\":4" && [ "$(sed "s/.*\"ids\":\[\([^]]*\)\].*/\1/" "$tmp/out" | tr , "\n" | wc -l)" -eq 4 ]'
run generate "$tmp/run" --threads 1 --prompt "the quick" -n 20 --beams 3
check generate-beams works '^the quick'
run generate "$tmp/run" --threads 1 --prompt "the quick" -n 20 --beams 4 --return 3
check generate-beams-scores works '^--- text 3, score -[0-9.]* ---$'
run generate "$tmp/run" --threads 1 --prompt "the quick" -n 20 --beams 3
cp "$tmp/out" "$tmp/searched"
run generate "$tmp/run" --threads 1 --prompt "the quick" -n 20 --beams 3 --temp 1e-4
check generate-beams-cold cmp "$tmp/searched" "$tmp/out"
run generate "$tmp/run" --threads 1 --prompt "the quick" -n 20 --beams 3 --temp 3 --seed 1 --top-k 0 --min-p 0
check generate-beams-drawn works '^the quick'
run generate "$tmp/run" --threads 1 --prompt "the quick" -n 8 --beams 4 --groups 2 --diversity 1 --json
check generate-beams-json is_json
check generate-beams-json-score works '"score":-'
run generate "$tmp/run" --threads 1 --prompt "the quick" -n 20 --greedy --ban "bro" --begin " "
check generate-ban works '^the quick '
check generate-ban-holds eval '! grep -q bro "$tmp/out"'
run generate "$tmp/run" --threads 1 --prompt "the quick" -n 5 --greedy --force-first "j" --force-last "z"
check generate-forced works '^the quickj...z$'
run generate "$tmp/run" --threads 1 --prompt "the" -n 3 --seed 3 --explain
check generate-explain works '^step 3$'
check generate-explain-why works '▸ .*◂ sampled from'
run generate "$tmp/run" --threads 1 --prompt "the" -n 3 --beams 2 --explain
check generate-explain-beams works 'ends: the greatest length is reached'
run generate "$tmp/run" --threads 1 --prompt "the" -n 3 --beams 2 --explain --json
check generate-explain-json [ "$(grep -c '^{"explain":"beams"' "$tmp/out")" -eq 3 ]
run generate "$tmp/run" --threads 1 --prompt "the" --beams 4 --groups 3
check generate-groups fails 1 'groups'
check generate-groups-hint eval '! grep -q slide "$tmp/err"'
run generate "$tmp/run" --threads 1 --prompt "the" -n 90 --no-slide
check generate-no-slide fails 1 'do not fit'
check generate-no-slide-hint grep -q 'hint: --slide' "$tmp/err"
run generate "$tmp/run" --threads 1 --prompt "the" --beams 2 --return 3
check generate-return fails 1 'return'
run generate "$tmp/run" --threads 1 --prompt "the" --beams 2 --samples 3
check generate-beams-samples fails 2 "use --return"
run generate "$tmp/run" --threads 1 --prompt "the" -n 5 --min-new-tokens 6
check generate-minimum fails 1 'min_new_tokens 6'
run generate "$tmp/run" --threads 1 --prompt "the" --force-first the
check generate-force-one-token fails 1 'not one'
run generate "$tmp/run" --threads 1 --prompt "THE"
check generate-unknown-character fails 1 U+0054
i=0
while [ $i -lt 60 ]; do
    printf 'one\0two '
    i=$((i + 1))
done >"$tmp/nul.txt"
run train --data "$tmp/nul.txt" --out "$tmp/nul" --layers 1 --heads 1 --width 8 --context 8 --batch-size 2 --max-steps 1 --threads 1 --quiet
run generate "$tmp/nul" --threads 1 --prompt "one" -n 2 --force-first 0 --force-last t --json
check generate-json-nul works '"text":"\\u0000t"'
run generate "$tmp/nul" --threads 1 --prompt "one" -n 1 --force-first 0 --explain --json
check generate-explain-json-nul works '"token":0,"text":"\\u0000"'

# ---- eval --------------------------------------------------------------------------------------------------------------
run eval "$tmp/run" --threads 1 --data "$tmp/text.txt" --json
check eval is_json
check eval-predicts-all-but-one [ "$(field tokens)" -eq $((characters - 1)) ]
check eval-counts-bytes [ "$(field bytes)" -eq $((characters - 1)) ]
loss=$(field loss)
check eval-perplexity near "$(awk -v l="$loss" 'BEGIN { print exp(l) }')" "$(field perplexity)" 1e-4
check eval-bits-per-byte near "$(awk -v l="$loss" 'BEGIN { print l / log(2) }')" "$(field bits_per_byte)" 1e-4
check eval-learned near "$loss" 0 2
run eval "$tmp/run" "$tmp/text.txt" --threads 1 --batch-size 3 --json
check eval-batches-do-not-matter near "$loss" "$(field loss)" 1e-5
run eval "$tmp/run" "$tmp/run/data/train.bin" --threads 1 --json
check eval-shard near "$loss" "$(field loss)" 1e-6
run eval "$tmp/run" "$tmp/text.txt" --threads 1
check eval-text works 'perplexity'
run eval "$tmp/run" "$tmp/text.txt" --threads 1 --max-tokens 11 --json
check eval-max-tokens [ "$(field tokens)" -eq 10 ]

# nats of a text, in windows: nats TEXT OPTIONS...
nats() {
    printf '%s' "$1" >"$tmp/piece.txt"
    shift
    run eval "$tmp/run" "$tmp/piece.txt" --threads 1 --json "$@"
    awk -v l="$(field loss)" -v n="$(field tokens)" 'BEGIN { printf "%.9f", l * n }'
}
# "the qu" in windows of 4 that overlap by 2: four predictions, and then u given "e q" alone.
overlapping=$(nats "the qu" --seq 4 --stride 2)
by_hand=$(awk -v a="$(nats "the q" --seq 4)" -v b="$(nats "e qu")" -v c="$(nats "e q")" 'BEGIN { printf "%.9f", a + b - c }')
check eval-stride near "$overlapping" "$by_hand" 1e-5
check eval-stride-matters eval '! near "$overlapping" "$(nats "the qu" --seq 4)" 1e-4'
printf 'x' >"$tmp/one.txt"
run eval "$tmp/run" "$tmp/one.txt" --threads 1
check eval-one-token fails 1 'two are needed'
run eval "$tmp/run" --threads 1
check eval-needs-data fails 2 --data
run eval "$tmp/run" "$tmp/text.txt" "$tmp/run/data/train.bin" --threads 1
check eval-text-or-shards fails 1 mixed
run eval "$tmp/run" "$tmp/text.txt" --seq 33 --threads 1
check eval-context fails 1 'context is 32'
run eval "$tmp/run" "$tmp/text.txt" --seq 8 --stride 9 --threads 1
check eval-stride-too-long fails 1 stride
check eval-leaves-nothing-behind [ -z "$(ls -A "$TMPDIR")" ]

# ---- weights in blocks -------------------------------------------------------------------------------------------------
run eval "$tmp/run" --threads 1 --data "$tmp/text.txt" --json
exact=$(field loss)
for type in q8_0 q4_0 bf16 f16; do
    run eval "$tmp/run" --threads 1 --data "$tmp/text.txt" --weights $type --json
    check eval-weights-$type works "\"weights\":\"$type\""
    check eval-weights-$type-is-close awk "BEGIN { d = $(field loss) / $exact - 1; exit !(d * d < 0.01) }"
    run generate "$tmp/run" --prompt "the quick" --max-new-tokens 8 --temperature 0 --threads 1 --weights $type
    check generate-weights-$type works 'the quick'
done
check eval-weights-round [ "$(field loss)" != "$exact" ]
run eval "$tmp/run" --threads 1 --data "$tmp/text.txt" --dtype bf16 --weights f16
check weights-of-another-16-bits fails 1 'need f32 activations'
run bench decode --preset tiny --batch 1 --seq 8 --new-tokens 4 --steps 1 --threads 1 --weights q4_0
check bench-weights works '"weights":"q4_0"'

# ---- inspect -----------------------------------------------------------------------------------------------------------
for dir in "$BANYAN_SOURCE"/tests/data/cases/*/; do # without a head, with a head of two rows, with a source
    run inspect "$dir"
    check "inspect-$(basename "$dir")" works '^  forward '
done
run inspect "$BANYAN_SOURCE/tests/data/cases/gpt2-body" --mode train
check inspect-has-no-loss fails 1 'a GPT2Model has no trainable head'
run inspect "$tmp/run"
check inspect works '2 layers, 2 heads, width 32, context 32'
check inspect-decode works '^  decode '
run inspect "$tmp/run" --json --params
check inspect-json is_json
check inspect-json-modes works '"modes":{"forward":.*"train":.*"decode":'
sum=$(grep -o '"elements":[0-9]*' "$tmp/out" | awk -F: '{ sum += $2 } END { print sum }')
check inspect-counts [ "$(field parameters)" -eq "$sum" ]
run inspect gpt2:124m --json
check inspect-preset works '"parameters":124439808'
# a frozen body under a trained head: no gradients, moments or masters of the body
run inspect gpt2:124m --task classify --freeze body --mode train --seq 64 --json
check inspect-frozen works '"trained_parameters":3072'
check inspect-frozen-gradients [ "$(field gradient_bytes)" -eq $((3072 * 4)) ]
check inspect-frozen-optimizer [ "$(field optimizer_bytes)" -eq $((3072 * 8)) ]
run inspect gpt2:124m --task classify --freeze body --mode train --seq 64 --json --dtype bf16
check inspect-frozen-masters [ "$(field optimizer_bytes)" -eq $((3072 * 12)) ]
run inspect gpt2:124m --task classify --freeze 13 --mode train --seq 64
check inspect-freezes-too-much fails 1 'up to 12'
run inspect gpt2:124m --weights q8_0 --mode decode --json
check inspect-weights [ "$(field weight_bytes)" -eq $((123532032 / 32 * 34 + (124439808 - 123532032) * 4)) ]
run inspect gpt2:124m --weights q4_0 --mode train
check inspect-weights-are-not-trained fails 1 'cannot be trained'
run inspect gpt2:1558m --dtype bf16 --batch 4
check inspect-large works 'train, recompute'
run inspect gpt2:tiny --seq 16 --mode train --graph dot
check inspect-dot eval 'works "^digraph" && [ "$(tail -n 1 "$tmp/out")" = "}" ]'
run inspect gpt2:tiny --seq 16 --graph text
check inspect-graph works 'attention'
run inspect "$model/model.safetensors"
check inspect-file works 'transformer.wte.weight .*f32'
run inspect "$model/model.safetensors" --json
check inspect-file-json is_json
run inspect gpt2:huge
check inspect-unknown-preset fails 1 'available: tiny'
run inspect gpt3:tiny
check inspect-unknown-family fails 1 gpt3
run inspect "$tmp/run" --seq 64
check inspect-context fails 1 'context is 32'
run inspect "$tmp/text.txt"
check inspect-not-a-container fails 1 text.txt

# ---- verify ------------------------------------------------------------------------------------------------------------
run verify "$tmp/nowhere"
check verify-missing fails 1 nowhere
run verify "$model"
check verify-no-case fails 1 case.json
cases=$BANYAN_SOURCE/tests/data/verify
for case in gpt2 bert t5 xlnet-answers vit-other-size deit-teacher caption caption-bert caption-roberta upscale-2d upscale-dmol tune-deit tune-vit-old tune-caption vit-module-names caption-module-names clip-old; do
    run verify "$cases/$case" --threads 1
    check "verify-$case" works '^verify: ok [0-9]* tensors$'
done
run verify "$cases/gpt2" --threads 1
check verify works '^verify: ok [0-9]* tensors$'
check verify-beam works '^generate.beam4 .*ok'
check verify-lines [ "$(grep -c '  ok' "$tmp/out")" -eq "$(sed -n 's/^verify: ok \([0-9]*\) tensors$/\1/p' "$tmp/out")" ]
run verify "$cases/gpt2" --threads 1 --json
check verify-json is_json
check verify-json-ok works '"ok":true'
mkdir "$tmp/empty"
echo '{"kind": "ngram"}' >"$tmp/empty/case.json"
echo '{"models": {}}' | tee "$tmp/empty/scores.json" >"$tmp/empty/counting.json"
run verify "$tmp/empty"
check verify-nothing fails 1 'nothing to compare'
mkdir "$tmp/case"
cp "$cases"/gpt2/* "$tmp/case"
chmod u+w "$tmp"/case/*
cp "$cases/bert/reference.safetensors" "$tmp/case"
run verify "$tmp/case" --threads 1
check verify-wrong-inputs fails 1 input.token_type_ids
sed 's/"layer_norm_epsilon": 1e-05/"layer_norm_epsilon": 1e-02/' "$cases/gpt2/config.json" >"$tmp/case/config.json"
cp "$cases/gpt2/reference.safetensors" "$tmp/case"
run verify "$tmp/case" --threads 1
check verify-failed eval '[ $rc -eq 1 ] && grep -q "^verify: FAILED [0-9]* of 39$" "$tmp/out"'
check verify-failed-tensor grep -q '^output.logits .* FAILED' "$tmp/out"
run verify "$tmp/case" --threads 1 --json
check verify-failed-json eval '[ $rc -eq 1 ] && is_json && grep -q "\"ok\":false" "$tmp/out"'
head -c 5000 "$cases/gpt2/reference.safetensors" >"$tmp/case/reference.safetensors"
run verify "$tmp/case" --threads 1
check verify-truncated fails 1 reference.safetensors
if [ -d "$shared/parity" ]; then
    # every other case: right, or one clear line
    odd=
    for dir in "$shared"/parity/*/; do
        run verify "$dir" --threads 1
        { [ $rc -eq 0 ] && works '^verify: ok'; } || fails 1 "$dir" || odd="$odd $dir"
    done
    check verify-every-case [ -z "$odd" ]
else
    echo "not run verify: $shared/parity is not there"
fi

# ---- completion and names of other programs ----------------------------------------------------------------------------
# completes EXPECTED WORDS...: the words that bash would offer for the last of WORDS.
completes() {
    local expected=$1
    shift
    [ "$(bash -c 'compopt() { :; }; eval "$("$0" completion bash)"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _banyan
        echo "${COMPREPLY[*]}"' "$BANYAN" "$@")" = "$expected" ]
}
if command -v bash >/dev/null 2>&1; then
    check complete-family completes 'distilbert' banyan train --model dist
    check complete-preset completes '124m' banyan train --preset 124
    check complete-device completes 'cpu cuda' banyan classify --device c
    check complete-dtype completes 'bf16' banyan train --dtype b
    check complete-task completes 'answer' banyan finetune --task an
    check complete-objective completes 'mlm' banyan train --objective ml
    check complete-recipe completes 'multi30k multi30k-gru' banyan train --recipe mul
else
    echo "not run completion: there is no bash"
fi
run generate "$model" --threads 1 --prompt "the quick" --n_predict 4 --num_beams=2 --num-return-sequences 2 --no-repeat-ngram-size 3 --json
check names-of-transformers works '"score"'
run train --train-file "$tmp/text.txt" --output-dir "$tmp/hf" --n-layer 1 --n-head 2 --n-embd 16 --block-size 16 --max-iters 2 \
    --per-device-train-batch-size 2 --threads 1 --quiet
check names-of-nanogpt grep -q '"n_layer": 1' "$tmp/hf/best/config.json"
run generate "$model" --num-beans 2
check names-misspelt fails 2 'unknown option --num-beans'
# what they stand for exists
run help --aliases
cp "$tmp/out" "$tmp/aliases"
for verb in $("$BANYAN" help --list); do "$BANYAN" help "$verb"; done >"$tmp/help"
stand_for() {
    sed 's/^--[^ ]* *//; s/, or /\n/g' "$tmp/aliases" | sort -u | while read -r name; do
        grep -q -e "$name\( \|\$\)" "$tmp/help" || { echo "$name"; exit 1; }
    done
}
check aliases-stand-for-options stand_for

# ---- bad model directories ---------------------------------------------------------------------------------------------
# spoiled NAME: a copy of the model in $tmp/bad
spoiled() {
    rm -rf "$tmp/bad"
    cp -r "$model/" "$tmp/bad"
}
spoiled
head -c 60000 "$model/model.safetensors" >"$tmp/bad/model.safetensors"
run generate "$tmp/bad" --prompt the
check truncated-weights fails 1 model.safetensors
run eval "$tmp/bad" "$tmp/text.txt"
check truncated-weights-eval fails 1 model.safetensors
spoiled
head -c 4 "$model/model.safetensors" >"$tmp/bad/model.safetensors"
run inspect "$tmp/bad"
check four-bytes-of-weights fails 1 model.safetensors
for change in 's/"n_head": *2/"n_head": 3/' 's/"n_embd": *32/"n_embd": 64/' \
    's/"n_layer": *2/"n_layer": 1/' 's/"n_layer": *2/"n_layer": 3/' \
    's/"n_positions": *32/"n_positions": -1/' 's/"vocab_size": *[0-9]*/"vocab_size": "many"/' 's/"n_head": *2/"n_head": 1e30/' \
    's/"model_type": *"gpt2"/"model_type": 2/' 's/"model_type": *"gpt2"/"model_type": "gpt9"/' 's/}$/,/' \
    's/"activation_function": *"[a-z_]*"/"activation_function": "maybe"/'; do
    spoiled
    sed "$change" "$model/config.json" >"$tmp/bad/config.json"
    run generate "$tmp/bad" --threads 1 --prompt the
    check "config $change" eval '! cmp -s "$model/config.json" "$tmp/bad/config.json" && fails 1 "$tmp/bad"'
done
spoiled
rm "$tmp/bad/tokenizer.json"
run eval "$tmp/bad" "$tmp/text.txt" --threads 1
check no-tokenizer fails 1 tokenizer.json
spoiled
rm "$tmp/bad/model.safetensors"
run inspect "$tmp/bad"
check no-weights fails 1 safetensors

# ---- bench -------------------------------------------------------------------------------------------------------------
tiny="--layers 1 --heads 1 --width 16 --context 8 --vocab 50 --seq 8 --steps 1 --warmup 0 --threads 1"
# shellcheck disable=SC2086 # several options
{
    run bench train $tiny --batch 2 --bf16 --stochastic-rounding
    check bench-stochastic-rounding works '"dtype":"bf16".*"stochastic_rounding":true.*"state_bytes":[0-9]'
    run bench forward $tiny --batch 2 --bf16
    check bench-forward works '"what":"forward".*"state_bytes":[0-9]'
    check bench-forward-no-rounding eval '! grep -q stochastic_rounding "$tmp/out"'
    run bench train $tiny --batch 1000000 --seq 10000
    check bench-too-large fails 1 'a batch of 1000000 rows of 10000 tokens is too large'
}

# ---- the command line itself -------------------------------------------------------------------------------------------
run
check no-command eval '[ $rc -eq 2 ] && [ ! -s "$tmp/out" ]'
run trian
check unknown-command fails 2 'did you mean train'
for verb in train generate eval inspect verify bench convert help completion; do
    run help $verb
    check "help $verb" works "banyan $verb"
    run $verb --help
    check "$verb --help" works "banyan $verb"
    run help --man $verb
    check "man $verb" works '^\.TH'
done
run eval "$tmp/run" --treads 1
check unknown-option fails 2 'did you mean --threads'
run inspect "$tmp/run" --mode trane
check unknown-choice fails 2 train
run eval "$tmp/run" --batch-size 0
check out-of-range fails 2 batch-size
run eval "$tmp/run" --threads two
check not-a-number fails 2 threads
run inspect
check missing-argument fails 2 MODEL
run verify a b
check too-many-arguments fails 2 .
run generate "$tmp/run" --device gpu9 --prompt the
check unknown-device fails 1 gpu9
for shell in bash zsh fish; do
    run completion $shell
    check "completion $shell" works inspect
    if command -v $shell >/dev/null 2>&1; then
        check "completion $shell parses" $shell -n "$tmp/out"
    fi
done
run --version
check version works '^banyan [0-9]'

# ---- when nobody reads -------------------------------------------------------------------------------------------------
{
    "$BANYAN" inspect gpt2:1558m --graph text --mode train 2>"$tmp/err"
    echo $? >"$tmp/rc"
} | head -n 1 >"$tmp/out"
rc=$(cat "$tmp/rc")
check closed-pipe eval '[ "$rc" -eq 1 ] && [ ! -s "$tmp/err" ]'
{
    "$BANYAN" generate "$tmp/run" --threads 1 -n 100000 --prompt the 2>"$tmp/err"
    echo $? >"$tmp/rc"
} | head -c 10 >"$tmp/out"
rc=$(cat "$tmp/rc")
check closed-pipe-while-generating eval '[ "$rc" -eq 1 ] && [ ! -s "$tmp/err" ]'
if [ -c /dev/full ]; then
    for command in "inspect $tmp/run" "inspect gpt2:tiny --graph dot" "eval $tmp/run $tmp/text.txt --threads 1 -q" \
        "eval $tmp/run $tmp/text.txt --threads 1 -q --json" "generate $tmp/run --threads 1 --prompt the -n 5" \
        "help" "completion bash"; do
        # shellcheck disable=SC2086 # split into words
        "$BANYAN" $command >/dev/full 2>"$tmp/err" </dev/null
        rc=$?
        : >"$tmp/out"
        check "full disk: ${command%% *}" fails 1 'cannot write to standard output'
    done
else
    echo "not run full-disk: there is no /dev/full"
fi
"$BANYAN" inspect gpt2:tiny >&- 2>"$tmp/err"
rc=$?
: >"$tmp/out"
check closed-stdout fails 1 .
# A name of the hub that is no folder here: the error has the command that fetches it.
for verb in "classify bert-base-uncased x" "generate openai-community/gpt2 -p x" "tokenize gpt2 x" "convert gpt2 $tmp/converted"; do
    # shellcheck disable=SC2086 # words
    run $verb
    check "hub-name-${verb%% *}" fails 1 "git clone https://huggingface.co/$(echo "$verb" | cut -d" " -f2)"
done
run classify ./no/such/folder x
check no-hub-hint-for-a-path fails 1 "no such directory$"
mkdir -p "$tmp/here/runs"
(cd "$tmp/here" && "$BANYAN" classify runs/bert x) >"$tmp/out" 2>"$tmp/err"
rc=$?
check no-hub-hint-below-a-directory fails 1 "no such directory$"

exit $failed
