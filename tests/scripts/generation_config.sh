#!/bin/sh
# generation_config.sh - generation_config.json in generate and translate: the ids that transformers gives, options before it,
# --no-generation-config without it, and keys that are not supported refused by name.
. "$(dirname "$0")/lib/common.sh"
own_folder
models=$BANYAN_SHARED/differences/models
if ! [ -d "$models/gpt2-generation-config" ]; then
    echo "not run generation_config: $models is not there"
    exit 0
fi
generate() { # MODEL IDS OPTIONS...
    local model=$1 ids=$2
    shift 2
    run generate "$model" --ids -p "$ids" --json --threads 1 "$@"
}
config() { # JSON [MODEL]: a copy of GPT-2, or of MODEL, with this generation_config.json
    rm -rf "$tmp/model"
    cp -r "$models/${2:-gpt2-generation-config}" "$tmp/model"
    chmod -R u+w "$tmp/model"
    printf '%s' "$1" >"$tmp/model/generation_config.json"
}
# The ids that transformers 5.23 generates with a file that holds these keys besides the usual ones.
gpt2() { # KEYS IDS
    config "{\"bos_token_id\": 1, \"eos_token_id\": 2, \"pad_token_id\": 0, \"do_sample\": false, \"max_new_tokens\": 6, $1}"
    generate "$tmp/model" "9 5 6 11"
    check "GPT-2: $1" works "\"ids\":\[$2\]"
}
t5() { # KEYS IDS
    config "{\"eos_token_id\": 1, \"pad_token_id\": 0, \"no_repeat_ngram_size\": 1, \"do_sample\": false, \"max_new_tokens\": 6, $1}" \
        t5-gc-eos-list
    generate "$tmp/model" "9 5 8 11 12 1"
    check "T5: $1" works "\"ids\":\[$2\]"
}

generate "$models/gpt2-generation-config" "9 5 6 11" -n 12 --greedy
check "bad_words_ids count in generate" works '"ids":\[15,15,4,4,4,4,13,4,4,4,4,4\]'
generate "$models/t5-gc-eos-list" "9 5 8 11 12 1"
check "beams, a list of ends and the length count in generate" works '"ids":\[13,13,21,21,13,9,9,13,28\]'
run translate "$models/t5-gc-eos-list" --json --threads 1 "t3 t4 t7"
check "and in translate" works '"text":"t2 t13 t28 t9 t9 t28 t28 t19 t19"'

config '{"do_sample": false, "max_new_tokens": 3, "suppress_tokens": [15]}'
generate "$tmp/model" "9 5 6 11"
check "do_sample false is greedy, max_new_tokens counts" works '"tokens":3,'
check "suppress_tokens count" sh -c "! grep -q '\"ids\":\[[^]]*15' '$tmp/out'"
generate "$tmp/model" "9 5 6 11" -n 5
check "an option comes first" works '"tokens":5,'
config '{"do_sample": false, "max_length": 6}'
generate "$tmp/model" "9 5 6 11"
check "max_length counts the prompt" works '"tokens":2,'
gpt2 '"sequence_bias": [[[7], 6.0], [[7, 9], 30.0]]' 7,9,7,9,7,9
gpt2 '"encoder_repetition_penalty": 0.1' 15,15,4,4,4,4
gpt2 '"encoder_no_repeat_ngram_size": 1' 15,15,4,4,4,4
gpt2 '"num_beams": 3, "suppress_tokens": [5, 15], "renormalize_logits": true' 4,14,14,14,4,4
gpt2 '"remove_invalid_values": true' 5,5,5,5,5,5
gpt2 '"forced_bos_token_id": 7' 5,5,5,5,5,5 # the prompt is longer than one token
gpt2 '"bad_words_ids": [[2], [5]]' 15,15,4,4,4,4
gpt2 '"max_time": 0' 5
check "the time ended it" works '"finish_reason":"time"'
t5 '"decoder_start_token_id": 0' 13,9,28,18,19,24
t5 '"decoder_start_token_id": 9' 13,21,24,19,28,18
t5 '"bos_token_id": 17' 13,9,21,28,18,24
t5 '"decoder_start_token_id": 0, "encoder_no_repeat_ngram_size": 1' 13,7,21,24,28,18
t5 '"decoder_start_token_id": 0, "encoder_repetition_penalty": 9.0' 9,11,8,13,12,7
t5 '"decoder_start_token_id": 0, "forced_bos_token_id": 7, "begin_suppress_tokens": [13, 4]' 7,9,13,28,18,19
config '{"do_sample": false, "max_new_tokens": 4, "sequence_bias": [[[2], 99.0]]}'
generate "$tmp/model" "9 5 6 11"
check "a file without eos_token_id ends nothing" works '"ids":\[2,2,2,2\]'
config '{"do_sample": true, "top_k": 0, "epsilon_cutoff": 0.99, "max_new_tokens": 4}'
generate "$tmp/model" "9 5 6 11" --seed 1
check "epsilon_cutoff counts in draws" works '"ids":\[5,5,5,5\]'
config '{"do_sample": true, "top_k": 0, "eta_cutoff": 0.99, "temperature": 0.05, "max_new_tokens": 4}'
generate "$tmp/model" "9 5 6 11" --seed 1
check "eta_cutoff counts in draws" works '"ids":\[5,5,5,5\]'
config '{"do_sample": true, "top_k": 0, "top_h": 0.001, "max_new_tokens": 4}'
generate "$tmp/model" "9 5 6 11" --seed 1
check "top_h counts in draws" works '"ids":\[5,5,5,5\]'

config '{"decoder_start_token_id": 0, "eos_token_id": 1, "num_beams": 1, "max_new_tokens": 6, "no_repeat_ngram_size": 1, "stop_strings": ["28 t"]}' t5-gc-eos-list
generate "$tmp/model" "9 5 8 11 12 1" --greedy
check "stop_strings end a text, also where ids are printed" works '"ids":\[13,9,28,18\],"finish_reason":"stop"'
run translate "$tmp/model" --threads 1 "t9 t5 t8 t11 t12"
check "and stay in the text of translate" works '^t13 t9 t28 t18$'
run translate "$tmp/model" --threads 1 --stop "28 t" "t9 t5 t8 t11 t12"
check "--stop removes them" works '^t13 t9 t$'
generate "$tmp/model" "9 5 8 11 12 1" --greedy --no-generation-config -n 6 --decoder-start 9 --no-repeat-ngram 1
check "--decoder-start" works '"ids":\[13,21,24,19,28,18\]'
config '{}'
generate "$tmp/model" "9 5 6 11" -n 6 --greedy --bias 7=6 --bias "7 9=30"
check "--bias" works '"ids":\[7,9,7,9,7,9\]'
generate "$tmp/model" "9 5 6 11" -n 6 --greedy --no-source-ngram 1
check "--no-source-ngram" works '"ids":\[15,15,4,4,4,4\]'
generate "$tmp/model" "9 5 6 11" -n 6 --greedy --source-penalty 0.1
check "--source-penalty" works '"ids":\[15,15,4,4,4,4\]'
generate "$tmp/model" "9 5 6 11" -n 4 --temp 1 --top-k 0 --top-p 1 --min-p 0 --epsilon-cutoff 0.99 --seed 1
check "--epsilon-cutoff" works '"ids":\[5,5,5,5\]'
generate "$tmp/model" "9 5 6 11" -n 6 --temp 1 --ban 5 --bias x
check "a bias that is none is an error" fails 1 'TEXT=NUMBER'

for key in '"guidance_scale": 2.0' '"num_beam_groups": 2' '"penalty_alpha": 0.6' '"watermarking_config": {"bias": 2.0}' \
    '"assistant_ensemble_weight": 0.5' '"token_healing": true'; do
    config "{$key}"
    generate "$tmp/model" "9 5 6 11"
    check "$key is refused" fails 1 "$(echo "$key" | cut -d'"' -f2)"
done
config '{"guidance_scale": 2.0}'
generate "$tmp/model" "9 5 6 11"
check "a key that is not supported is refused" fails 1 guidance_scale
generate "$tmp/model" "9 5 6 11" -n 4 --greedy --no-generation-config
check "--no-generation-config ignores the file" works '"tokens":4,'

# a recorded case is generated with the file, as the reference does
cp -r "$BANYAN_SOURCE/tests/data/verify/gpt2" "$tmp/case"
chmod -R u+w "$tmp/case"
run verify "$tmp/case"
check "verify" works 'generate.greedy.* ok'
printf '{"eos_token_id": 2, "suppress_tokens": [30]}' >"$tmp/case/generation_config.json"
run verify "$tmp/case"
check "verify generates with generation_config.json" sh -c "grep -q 'generate.greedy .*\(FAIL\|fail\|wrong\)' '$tmp/out'"
printf '{"guidance_scale": 2.0}' >"$tmp/case/generation_config.json"
run verify "$tmp/case"
check "verify refuses a key by name" sh -c "[ $rc -ne 0 ] && grep -q guidance_scale '$tmp/out'"

printf 't3 t4\n' >"$tmp/src"
printf 't5\n' >"$tmp/tgt"
config '{"guidance_scale": 2.0}' t5-gc-eos-list
run eval "$tmp/model" "$tmp/src" "$tmp/tgt" --threads 1
check "eval of texts refuses it too" fails 1 guidance_scale
run eval "$tmp/model" "$tmp/src" "$tmp/tgt" --threads 1 --no-generation-config
check "eval --no-generation-config" works BLEU
exit $failed
