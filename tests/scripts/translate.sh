#!/bin/bash
# translate.sh - a Transformer trained on a few pairs, and all that is done with it: a run that is killed goes on as if
# nothing had happened, texts come from arguments, the input and files, scores agree, attention is drawn, models are
# inspected and converted, and what is wrong is said in one line.
. "$(dirname "$0")/lib/common.sh"
export LC_ALL=C.UTF-8
own_folder
cd "$tmp" || exit 2

pairs=$BANYAN_SHARED/data/tasks/multi30k
if ! [ -s "$pairs/train.en" ]; then
    echo "not run translate: $pairs is not there"
    exit 0
fi
head -n 200 "$pairs/train.en" >t.en
head -n 200 "$pairs/train.de" >t.de
head -n 20 "$pairs/val.en" >v.en
head -n 20 "$pairs/val.de" >v.de

banyan() { "$BANYAN" "$@" --threads 1 >out 2>err; }
refuses() { # CODE TEXT ARGUMENTS...: one line that says so, and nothing else
    local code=$1 text=$2
    shift 2
    banyan "$@"
    [ $? -eq "$code" ] && grep -q -e "$text" err && [ "$(wc -l <err)" -eq 1 ] && ! [ -s out ]
}
json() { # FILE: every line is an object
    if command -v python3 >why2; then
        python3 -c 'import json, sys; [json.loads(line)["text"] for line in open(sys.argv[1])]' "$1"
    else
        ! grep -qv '^{"source":".*","text":".*}$' "$1"
    fi
}

# ---- training ----------------------------------------------------------------------------------

run() { # OUT: become a training run
    exec "$BANYAN" train --model transformer --data t.en t.de --tokenizer bpe:500 --layers 2 --heads 2 --width 32 --seq 64 --batch-tokens 512 \
        --schedule inverse-sqrt --warmup 20 --lr 5e-3 --label-smoothing 0.1 --max-steps 160 --eval-steps 40 --save-steps 20 --threads 1 \
        --out "$1" >out 2>err
}
train() { (run "$1"); }
saved() { readlink "$1/last" | sed 's/checkpoint-0*//' | grep . || echo 0; } # OUT: the step of its last checkpoint
killed() { # twice, without a word of warning, at some moment after a checkpoint and before the end
    local at pid
    for at in 20 80; do
        run parts &
        pid=$!
        while kill -0 $pid 2>why2 && [ "$(saved parts)" -lt $at ]; do sleep 0.01; done
        kill -KILL $pid
        wait $pid 2>why2
        [ "$(saved parts)" -lt 160 ] || return 1
    done
    train parts
}
same() {
    cmp whole/last/model.safetensors parts/last/model.safetensors &&
        cmp <(sed 's/, "ms".*//' whole/metrics.jsonl) <(sed 's/, "ms".*//' parts/metrics.jsonl)
}
check "training" train whole
check "a run that was killed goes on" killed
check "as if nothing had happened" same

# ---- texts -------------------------------------------------------------------------------------

from_everywhere() {
    banyan translate whole -f v.en && mv out file && [ "$(wc -l <file)" -eq 20 ] &&
        banyan translate whole <v.en && cmp out file &&
        mapfile -t lines <v.en && banyan translate whole "${lines[@]}" && cmp out file &&
        banyan translate whole -f v.en --batch-size 3 && cmp out file
}
check "from a file, the input and arguments" from_everywhere
check "something was learnt" grep -q '^Ein' file
check "lines of Windows" eval 'sed "s/$/\r/" v.en >crlf && banyan translate whole -f crlf && cmp out file'
check "empty lines" eval 'printf "\n  \n\n" | banyan translate whole && cmp out <(printf "\n\n\n")'
check "an empty file" eval ': >empty && banyan translate whole -f empty && ! [ -s out ]'
check "the last line has no end" eval 'printf "A man." | banyan translate whole && [ "$(wc -l <out)" -eq 1 ]'
check "as JSON" eval 'printf "A \"man\"\t\\\\ \360\237\230\200\nTwo\n\n" | banyan translate whole --json && [ "$(wc -l <out)" -eq 3 ] && json out'
check "bytes that are no UTF-8" eval 'printf "A \377\376 man\n" | banyan translate whole --json && [ "$(wc -l <out)" -eq 1 ] && json out'
several() {
    banyan translate whole --beams 4 --return 3 "Two dogs run." "A man." && [ "$(wc -l <out)" -eq 6 ] &&
        [ "$(grep -c -P '^-[0-9]+\.[0-9]{4}\t' out)" -eq 6 ] && head -n 3 out | cut -f 1 | sort -c -g -r &&
        banyan translate whole --beams 4 --return 3 --json "Two dogs run." && json out && grep -q '"others":\[{.*},{.*}\]' out
}
check "several texts" several
check "constraints" eval 'banyan translate whole --ban Mann --max-new-tokens 6 --begin Eine -f v.en && [ "$(grep -c ^Eine out)" -eq 20 ] && ! grep -q Mann out'
own_words() { # that the model itself rules out, and more
    local run
    grep -q '^Ein Mann' file && cp -rL whole/best own || return 1
    run=$("$BANYAN" tokenize own --no-special "Ein Mann" | tr ' ' ,)
    sed -i "s/^{/{\"bad_words_ids\": [[$run]],/" own/generation_config.json
    banyan translate own -f v.en && ! grep -q '^Ein Mann' out && grep -q einem out &&
        banyan translate own -f v.en --ban einem && ! grep -q -e '^Ein Mann' -e einem out
}
check "words of the model's and others" own_words
check "a seed decides" eval 'banyan translate whole --temp 1 --seed 3 -f v.en && mv out drawn && banyan translate whole --temp 1 --seed 3 -f v.en -b 7 &&
    cmp out drawn && banyan translate whole --temp 1 --seed 4 -f v.en && ! cmp -s out drawn'
check "no share is the likeliest token" eval 'banyan translate whole --beams 1 -f v.en && mv out greedy && banyan translate whole --temp 1 --top-p 0 --seed 3 -f v.en &&
    cmp out greedy'
check "the same by summarize" eval 'banyan summarize whole -f v.en && cmp out file'
check "a long text is cut" eval 'for i in {1..400}; do printf "man "; done >long && banyan translate whole --truncate -f long && grep -q "1 text was cut" err'
check "only the beginning is read" eval 'head -c 24 long | banyan translate whole && mv out few && banyan translate whole --max-source 7 -f long &&
    cmp out few && grep -q "1 text was cut to the first 7 tokens" err && banyan translate whole --max-source 900 -f long; [ $? -eq 1 ]'
check "draws within a search" eval 'banyan translate whole --temp 1e-4 --beams 4 -f v.en && mv out cold && banyan translate whole --beams 4 -f v.en && cmp out cold &&
    banyan translate whole --temp 2 --beams 4 --seed 1 -f v.en && mv out drawn && ! cmp -s cold drawn && banyan translate whole --temp 2 --beams 4 --seed 1 -f v.en -b 3 && cmp out drawn'
check "nobody reads the rest" eval 'for i in {1..40}; do cat v.en; done | "$BANYAN" translate whole --threads 1 -n 3 2>err | head -n 1 >out && [ -s out ] && ! [ -s err ]'
check "steps are explained" eval 'banyan generate whole "A man." --beams 3 --explain --max-new-tokens 3 && grep -q "^step 3" out && grep -q "ends: " out'

# ---- figures and pictures ----------------------------------------------------------------------

scores() {
    local bleu
    banyan eval whole v.en v.de --predictions said.jsonl && bleu=$(sed -n 's/^BLEU \([0-9.]*\).*/\1/p' out) && [ -n "$bleu" ] &&
        [ "$(wc -l <said.jsonl)" -eq 20 ] && json said.jsonl &&
        "$BANYAN" score file v.de >out 2>err && grep -q "^BLEU|.* = $bleu " out
}
check "eval and score agree" scores
check "a table of pairs" eval 'paste v.en v.de >v.tsv && banyan eval whole v.tsv --json --metric bleu,chrf,rouge,exact && grep -q "\"texts\":20,\"bleu\":.*\"rougeL\":" out'
svg() { # PART
    banyan attention whole "A man rides." --part "$1" -o "$1.svg" && grep -q '</svg>' "$1.svg" &&
        banyan attention whole "A man rides." --target "Ein Mann." --part "$1" -o "$1.svg" && grep -q '</svg>' "$1.svg"
}
for part in cross encoder decoder; do check "attention: $part" svg $part; done
check "attention in numbers" eval 'banyan attention whole "A" --target "Ein" --json && grep -q "^{\"tokens\":\[\"A\",\"</s>\"\],\"written\":\[\"Ein\",\"</s>\"\],\"weights\"" out'
inspected() {
    "$BANYAN" inspect whole >out 2>err && grep -q '^  decode ' out && grep -q '^  train ' out && "$BANYAN" inspect t5:v1.1-small --json >out 2>err &&
        grep -q '"decode":{.*"cache_bytes":' out
}
check "inspect" inspected
check "convert" eval '"$BANYAN" convert whole other >out 2>err && banyan translate other -f v.en && cmp out file'
check "bench" eval 'banyan bench translate --model transformer --preset tiny --vocab 300 --batch 2 --new-tokens 4 --steps 1 && grep -q "\"what\":\"translate\"" out'

# ---- what is refused ---------------------------------------------------------------------------

"$BANYAN" train --model gpt2 --data t.en --tokenizer byte --layers 1 --heads 1 --width 8 --seq 16 --max-steps 1 --threads 1 --out lm >out 2>err
check "no such model" refuses 1 'nothing: no such' translate nothing x
check "a model that does not translate" refuses 1 'a GPT2LMHeadModel is not' translate lm x
check "an unknown language" refuses 1 'unknown language "fr"' translate whole --to fr x
check "an unknown task" refuses 1 'no settings for "haiku"' translate whole --task haiku x
check "more texts than beams" refuses 1 '--return 9' translate whole --return 9 --beams 4 x
check "groups that do not divide" refuses 1 '--groups 3' translate whole --groups 3 --beams 4 x
check "cutoffs without draws" refuses 1 '--top-k is for sampling, and nothing is sampled here' translate whole --top-k 5 x
check "several draws" refuses 1 '--temp samples' translate whole --temp 1 --return 3 x
check "groups that draw" refuses 1 'beam groups require temperature 0' translate whole --temp 1 --beams 4 --groups 2 x
check "more at least than at most" refuses 1 'min_new_tokens 9 exceeds max_new_tokens 4' translate whole --min-new-tokens 9 --max-new-tokens 4 x
check "a prefix that does not fit" refuses 1 'the prefix has' translate whole --begin 'Ein Mann mit Hut' --max-new-tokens 2 x
check "a text that is too long" refuses 1 'text 1 has .* tokens; the limit of this model is 256' translate whole -f long
check "which one it is" eval '{ for i in {1..600}; do echo "A man."; done; cat long; } >many && banyan translate whole -n 2 -f many;
    [ $? -eq 1 ] && grep -q "text 601 has" err && [ "$(wc -l <out)" -ge 512 ]'
check "a file that is not there" refuses 1 'nothing.txt: No such file' translate whole -f nothing.txt
check "a directory" refuses 1 'is a directory' translate whole -f .
check "bytes that are no text" eval 'printf "A\nman\0s\n" >bytes && refuses 1 "bytes: line 2 contains a NUL character" translate whole -f bytes'
check "a full disk" eval '! "$BANYAN" translate whole --threads 1 x >/dev/full 2>err && grep -q "No space left" err'
check "no references" refuses 1 'a file of sources and one of references' eval whole v.en
check "references of another length" refuses 1 'v.en has 20 lines but t.de has 200' eval whole v.en t.de
check "an unknown metric" refuses 1 'bleu,ter' eval whole v.en v.de --metric bleu,ter
check "a second text to look at" refuses 1 '--pair' attention whole A --pair B
check "a layer that is not there" refuses 1 'the model has 2 layers' attention whole A --target B --layer 2
check "more than the model can write" refuses 1 '300 new tokens do not fit' generate whole A --max-new-tokens 300
