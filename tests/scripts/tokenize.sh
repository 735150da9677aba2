#!/bin/sh
# tokenize.sh - `banyan tokenize`: a tokenizer made here, published ones, both directions, and lines that are wrong.
# shellcheck disable=SC2016,SC2317 # check evaluates what it is given
. "$(dirname "$0")/lib/common.sh"
own_folder
shared=${BANYAN_SHARED:-$BANYAN_SOURCE/../shared}
published=$shared/data/tokenizers

# check NAME EXPECTED: what the last command printed
check() {
    if [ "$(cat "$tmp/out")" = "$2" ]; then
        echo "ok $1"
    else
        echo "not ok $1"
        echo "    expected: $2"
        head -c 500 "$tmp/out" "$tmp/err" | awk '{ print "    > " $0 }'
        failed=1
    fi
}

# refuses NAME TEXT: the last command failed, printed nothing and named the reason
refuses() {
    if [ "$rc" -eq 1 ] && [ ! -s "$tmp/out" ] && grep -q -e "$2" "$tmp/err"; then
        echo "ok $1"
    else
        echo "not ok $1"
        head -c 500 "$tmp/err" | awk '{ print "    ! " $0 }'
        failed=1
    fi
}

tokenize() {
    "$BANYAN" tokenize "$@" >"$tmp/out" 2>"$tmp/err"
    rc=$?
}

printf 'abcab' >"$tmp/text"
"$BANYAN" train --data "$tmp/text" --tokenizer byte --eval-fraction 0 --layers 1 --heads 1 --width 8 --context 2 --max-steps 1 --threads 1 \
    --out "$tmp/run" --quiet >/dev/null 2>&1
tokenize "$tmp/run" abc
check "a run folder" "97 98 99"
printf 'abc\nca\n' >"$tmp/in"
tokenize "$tmp/run" <"$tmp/in"
check "lines of the input" "97 98 99
99 97"
printf '97 98\n99,97\n' >"$tmp/in"
tokenize "$tmp/run" --decode <"$tmp/in"
check "ids to text" "ab
ca"
printf '{"text": "ab"}\n' >"$tmp/in"
tokenize "$tmp/run" --jsonl --offsets <"$tmp/in"
check "JSON, with offsets" '{"ids":[97,98],"offsets":[[0,1],[1,2]]}'
printf '{"ids": [97, 34]}\n' >"$tmp/in"
tokenize "$tmp/run" --jsonl --decode <"$tmp/in"
check "JSON to text" '{"text":"a\""}'

printf '97\nx\n' >"$tmp/in"
tokenize "$tmp/run" --decode <"$tmp/in"
check "what comes before a line that is wrong" a
: >"$tmp/out"
refuses "a line that is wrong" "line 2"
printf '97 1e9\n' >"$tmp/in"
tokenize "$tmp/run" --decode <"$tmp/in"
refuses "an id that is not in the vocabulary" "line 1"
printf '1.5\n' >"$tmp/in"
tokenize "$tmp/run" --decode <"$tmp/in"
refuses "an id with a fraction" "1.5 is not a token id"
printf '{"text": 3}\n' >"$tmp/in"
tokenize "$tmp/run" --jsonl <"$tmp/in"
refuses "a text that is a number" "text"
printf '{"ids": [1, "a"]}\n' >"$tmp/in"
tokenize "$tmp/run" --jsonl --decode <"$tmp/in"
refuses "ids that are no numbers" "must hold numbers"
printf '{"text": \n' >"$tmp/in"
tokenize "$tmp/run" --jsonl <"$tmp/in"
refuses "a line that is not JSON" "line 1"
printf '{"text": "a\\u0000b"}\n' >"$tmp/in"
tokenize "$tmp/run" --jsonl <"$tmp/in"
refuses "a text with a NUL character, which JSON cannot bring here" "line 1: the line: NUL character"
printf '{"model":{"type":"WordLevel","unk_token":"b","vocab":{"a\\u0000":0,"b":1}}}\n' >"$tmp/nul.json"
tokenize "$tmp/nul.json" abc
check "a vocabulary with one is read" 1
tokenize "$tmp/nothing" abc
refuses "no such tokenizer" "nothing"

if [ ! -d "$published" ]; then
    echo "not run published tokenizers: $published is not there"
    exit $failed
fi
tokenize "$published/gpt2" "Hello, world!"
check "GPT-2" "15496 11 995 0"
printf '{"ids": [64, 188, 65]}\n' >"$tmp/in"
tokenize "$published/gpt2" --decode --jsonl <"$tmp/in"
check "a NUL character comes out whole" '{"text":"a\u0000b"}'
printf '{"text": "Hello, world!"}\n' >"$tmp/in"
tokenize "$published/bert-base-cased" --jsonl <"$tmp/in"
check "BERT, special tokens around" '{"ids":[101,8667,117,1362,106,102]}'
tokenize "$published/bert-base-cased" --no-special "Hello, world!"
check "BERT, without" "8667 117 1362 106"
printf '101 8667 117 102\n' >"$tmp/in"
tokenize "$published/bert-base-cased" --decode --no-special <"$tmp/in"
check "BERT, text without them" "Hello,"
tokenize "$published/xlnet/spiece.model" "Hello, world!"
check "a bare spiece.model" "17 11368 19 185 136"
# Near ties in a long text fall as the library's sums do, which start again at -100000.
awk 'BEGIN { for (i = 0; i < 6250; i++) printf "%saloes vexx xsultan corporationx", i ? " " : ""; print "" }' >"$tmp/in"
tokenize "$published/albert/spiece.model" <"$tmp/in"
cksum <"$tmp/out" >"$tmp/sum"
mv "$tmp/sum" "$tmp/out"
check "a long text" "4191366805 312500"

# truncation and padding of the file, which --fit asks for
cat >"$tmp/fit.json" <<'END'
{"version":"1.0","truncation":{"direction":"Right","max_length":3,"strategy":"LongestFirst","stride":0},"padding":{"strategy":{"Fixed":5},"direction":"Right","pad_to_multiple_of":null,"pad_id":1,"pad_type_id":0,"pad_token":"p"},"added_tokens":[],"normalizer":null,"pre_tokenizer":{"type":"WhitespaceSplit"},"post_processor":null,"decoder":null,"model":{"type":"WordLevel","vocab":{"?":0,"p":1},"unk_token":"?"}}
END
run tokenize "$tmp/fit.json" "a b c d"
check "a text stays whole" "0 0 0 0"
run tokenize "$tmp/fit.json" --fit "a b c d"
check "--fit cuts and pads as tokenizer.json says" "0 0 0 1 1"

# a signal in the middle of a regular expression that takes very long on one text
cat >"$tmp/slow.json" <<'END'
{"version":"1.0","pre_tokenizer":{"type":"Split","pattern":{"Regex":"(?:a+)+b"},"behavior":"Isolated","invert":false},"model":{"type":"WordLevel","vocab":{"?":0},"unk_token":"?"}}
END
awk 'BEGIN { for (i = 0; i < 200000; i++) printf "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa "; print "" }' >"$tmp/in"
"$BANYAN" tokenize "$tmp/slow.json" -t 1 <"$tmp/in" >/dev/null 2>"$tmp/err" &
slow=$!
sleep 1
kill -TERM $slow
waited=0
while kill -0 $slow 2>/dev/null && [ $waited -lt 20 ]; do
    sleep 1
    waited=$((waited + 1))
done
[ $waited -lt 20 ] || kill -KILL $slow
code=0
wait $slow || code=$?
echo "$code $(sed 's/.*: //' "$tmp/err")" >"$tmp/out"
check "a signal ends a long match" "130 interrupted"

exit $failed
