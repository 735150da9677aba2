#!/bin/sh
# align.sh - `banyan align` with the methods that learn from given answers, on a tiny model made here: every method, chat templates,
# packing, references, adapters, going on bit for bit after Ctrl-C and kill -9, and what is refused.
# shellcheck disable=SC2016,SC2317 # check evaluates what it is given
. "$(dirname "$0")/lib/common.sh"
own_folder

field() { # KEY [FILE]
    sed -n "s|.*\"$1\": *\\([-0-9.e+]*\\).*|\\1|p" "${2:-$tmp/out}" | head -n 1
}
atleast() {
    awk -v a="$1" -v b="$2" 'BEGIN { exit !(a != "" && a >= b) }'
}
near() { # A B [TOLERANCE]
    awk -v a="$1" -v b="$2" -v t="${3:-1e-4}" 'BEGIN { d = a - b; if (d < 0) d = -d; exit !(a != "" && b != "" && d <= t) }'
}

# ---- a tiny model and data -------------------------------------------------------------------------------------------------
i=0
while [ $i -lt 60 ]; do
    echo "what is $((i % 7))? it is $((i % 7)). who is tom? he is a cat. go away, no. <user> <assistant>"
    i=$((i + 1))
done >"$tmp/text.txt"
run train --model gpt2 --data "$tmp/text.txt" --tokenizer byte --layers 2 --heads 2 --width 32 --context 64 --batch-size 8 --max-steps 30 \
    --threads 1 --out "$tmp/gpt2" --quiet
check a-tiny-gpt2 works model
gpt2=$tmp/gpt2/best
body=$(cksum <"$gpt2/model.safetensors")
i=0
while [ $i -lt 24 ]; do
    printf '{"prompt": "what is %d? ", "completion": "it is %d."}\n' $i $i
    i=$((i + 1))
done >"$tmp/sft.jsonl"
i=0
while [ $i -lt 24 ]; do
    printf '{"messages": [{"role": "user", "content": "say %d"}, {"role": "assistant", "content": "it is %d."}]}\n' $i $i
    i=$((i + 1))
done >"$tmp/chat.jsonl"
i=0
while [ $i -lt 24 ]; do
    printf '{"prompt": "say %d ", "chosen": "it is %d.", "rejected": "go away %d"}\n' $i $i $i
    i=$((i + 1))
done >"$tmp/pairs.jsonl"
i=0
while [ $i -lt 24 ]; do
    printf '{"prompt": "say %d ", "completion": "it is %d.", "label": true}\n{"prompt": "say %d ", "completion": "no %d", "label": false}\n' $i $i $i $i
    i=$((i + 1))
done >"$tmp/judged.jsonl"
printf "{%% for m in messages %%}<{{ m.role }}> {{ m.content }}{{ eos_token }}{%% endfor %%}{%% if add_generation_prompt %%}<assistant> {%% endif %%}" \
    >"$tmp/template.jinja"
printf '{%% for m in messages %%}{{ m.role' >"$tmp/bad.jinja"
run train --model gpt2 --data "$tmp/text.txt" --layers 1 --heads 2 --width 16 --context 64 --batch-size 4 --max-steps 1 --threads 1 \
    --out "$tmp/words" --quiet
check a-model-of-another-vocabulary works model
set -- --threads 1 --quiet --json --learning-rate 3e-3 --batch-size 4

# ---- supervised ------------------------------------------------------------------------------------------------------------
run align "$gpt2" --method sft --data "$tmp/sft.jsonl" --eval-fraction 0.25 --out "$tmp/sft" --epochs 20 "$@"
check sft works '"method":"sft"'
check sft-learns atleast "$(field mean_token_accuracy)" 0.7
check sft-logs-evaluations grep -q '"eval_perplexity":.*"eval_mean_token_accuracy":.*"eval_entropy":' "$tmp/sft/metrics.jsonl"
check sft-leaves-a-model [ -s "$tmp/sft/model.safetensors" ]
check sft-leaves-the-body-alone [ "$(cksum <"$gpt2/model.safetensors")" = "$body" ]
check sft-records grep -q '"method": "sft"' "$tmp/sft/run.json"
run generate "$tmp/sft" --threads 1 --prompt 'what is 5? ' -n 5 --greedy
check sft-generates works 'it is'
run align "$gpt2" --method sft --data "$tmp/chat.jsonl" --chat-template "$tmp/template.jinja" --out "$tmp/chat" --max-steps 4 "$@"
check sft-of-conversations works '"steps":4'
check the-template-goes-with-the-model grep -q 'chat_template.*m.role' "$tmp/chat/tokenizer_config.json"
check and-with-its-checkpoints grep -q 'chat_template.*m.role' "$tmp/chat/last/tokenizer_config.json"
run align "$tmp/chat" --method sft --data "$tmp/chat.jsonl" --out "$tmp/chat2" --max-steps 2 "$@"
check the-model-s-own-template works '"steps":2'
run align "$gpt2" --method sft --data "$tmp/sft.jsonl" --eval "$tmp/sft.jsonl" --pack --out "$tmp/packed" --epochs 40 "$@"
check packed works '"method":"sft"'
check packed-learns atleast "$(field mean_token_accuracy)" 0.6
# One step over all examples is the same step, in one row each or packed.
run align "$gpt2" --method sft --data "$tmp/sft.jsonl" --out "$tmp/one" --max-steps 1 "$@" --batch-size 24 --dropout 0
loss=$(field train_loss)
run align "$gpt2" --method sft --data "$tmp/sft.jsonl" --out "$tmp/one-packed" --max-steps 1 "$@" --batch-size 24 --dropout 0 --pack
check packing-changes-no-loss near "$(field train_loss)" "$loss" 1e-5
# The mean is over all tokens of a step, however they are divided.
run align "$gpt2" --method sft --data "$tmp/sft.jsonl" --out "$tmp/parts" --max-steps 1 "$@" --batch-size 5 --accumulate 5 --dropout 0
check the-mean-is-over-all-tokens near "$(field train_loss)" "$loss" 1e-5

run align "$gpt2" --method sft --data "$tmp/sft.jsonl" --dynamic --out "$tmp/dynamic" --max-steps 2 --save-steps 1 "$@"
check a-dynamic-loss works '"method":"sft"'
run align "$gpt2" --method sft --data "$tmp/sft.jsonl" --out "$tmp/dynamic" --max-steps 4 --keep-end "$@"
check another-truncation-is-another-run fails 1 'started with keep_end 0'

run align "$gpt2" --method sft --data "$tmp/sft.jsonl" --neftune 5 --dropout 0 --out "$tmp/noise" --max-steps 4 --save-steps 2 "$@"
check noise works '"method":"sft"'
run align "$gpt2" --method sft --data "$tmp/sft.jsonl" --dropout 0 --out "$tmp/quiet" --max-steps 4 --save-steps 2 "$@"
check noise-differs eval '! cmp -s "$tmp/noise/model.safetensors" "$tmp/quiet/model.safetensors"'
run align "$gpt2" --method sft --data "$tmp/sft.jsonl" --neftune 5 --dropout 0 --out "$tmp/noise2" --max-steps 4 --save-steps 2 "$@"
check noise-repeats cmp "$tmp/noise/model.safetensors" "$tmp/noise2/model.safetensors"
loss=$(field train_loss)
run align "$gpt2" --method sft --data "$tmp/sft.jsonl" --neftune 5 --dropout 0 --recompute --out "$tmp/noise3" --max-steps 4 "$@"
check noise-is-recomputed near "$(field train_loss)" "$loss"
run align "$gpt2" --method sft --data "$tmp/sft.jsonl" --neftune 5 --lora r=2 --out "$tmp/noise4" --max-steps 2 "$@"
check noise-with-an-adapter works '"method":"sft"'

# ---- rows as they are ------------------------------------------------------------------------------------------------------
run align "$gpt2" --method sft --data "$tmp/sft.jsonl" --show-batch 2
check shows-rows works '^row 1: 20 tokens, 9 learned'
check shows-what-is-learned works 'what is 0? \[\[it is 0\.'
run align "$gpt2" --method sft --data "$tmp/sft.jsonl" --pack --show-batch 1
check shows-packed-rows works 'next example of the row'
run align "$gpt2" --method dpo --data "$tmp/pairs.jsonl" --show-batch 1
check shows-pairs works '^row 1, rejected: '
run align "$gpt2" --method kto --data "$tmp/judged.jsonl" --show-batch 1 --json
printf '{"text": "%0999d"}\n{"prompt": "%0999d", "completion": "b"}\n' 0 0 >"$tmp/long.jsonl"
run align "$gpt2" --method sft --data "$tmp/long.jsonl" --show-batch 2
check says-what-is-left-out grep -q '1 example, 64 tokens, .*; 2 shortened to 64 tokens; 1 left out' "$tmp/err"
run align "$gpt2" --method sft --data "$tmp/long.jsonl" --show-batch 2 --keep-end
check keeps-the-end works '^0*\[\[b<|endoftext|>'
run align "$gpt2" --method kto --data "$tmp/judged.jsonl" --show-batch 1 --json
check shows-json works '"kind": "good".*"learned": \[0, '

# ---- preferences -----------------------------------------------------------------------------------------------------------
for method in dpo orpo simpo cpo; do
    run align "$gpt2" --method $method --data "$tmp/pairs.jsonl" --eval-fraction 0.25 --out "$tmp/$method" --epochs 4 "$@" --learning-rate 1e-3
    check $method works "\"method\":\"$method\""
    check $method-learns atleast "$(field rewards/accuracies)" 0.99
    check $method-logs-steps grep -q '"rewards/chosen":.*"rewards/rejected":.*"logps/chosen":' "$tmp/$method/metrics.jsonl"
    check $method-logs-evaluations grep -q '"eval_rewards/accuracies":.*"eval_rewards/margins":' "$tmp/$method/metrics.jsonl"
done
check orpo-logs-its-likelihood grep -q '"nll_loss":.*"log_odds_chosen":' "$tmp/orpo/metrics.jsonl"
check the-first-step-of-dpo-is-at-log-2 near "$(field loss "$tmp/dpo/metrics.jsonl")" 0.693147 1e-4
check dpo-keeps-the-reference [ -s "$tmp/dpo/data/reference.safetensors" ]
for loss in hinge ipo robust sigmoid_norm sppo_hard apo_zero apo_down nca_pair exo_pair bco_pair sft; do
    case $loss in robust | exo_pair) smoothing=0.1 ;; *) smoothing=0 ;; esac
    run align "$gpt2" --method dpo --loss $loss --label-smoothing $smoothing --data "$tmp/pairs.jsonl" --out "$tmp/dpo-$loss" --max-steps 2 "$@"
    check dpo-$loss works '"steps":2'
done
for data in judged pairs; do
    run align "$gpt2" --method kto --data "$tmp/$data.jsonl" --eval-fraction 0.25 --out "$tmp/kto-$data" --epochs 4 "$@" --learning-rate 1e-3
    check kto-of-$data works '"method":"kto"'
    check kto-of-$data-learns atleast "$(field rewards/margins)" 0.1
    check kto-of-$data-logs grep -q '"kl":' "$tmp/kto-$data/metrics.jsonl"
done
run align "$gpt2" --method kto --unpaired --data "$tmp/judged.jsonl" --out "$tmp/kto-unpaired" --max-steps 2 "$@"
check kto-unpaired works '"steps":2'
grep '"label": *true' "$tmp/judged.jsonl" >"$tmp/good.jsonl"
run align "$gpt2" --method kto --unpaired --desirable-weight 0 --data "$tmp/good.jsonl" --out "$tmp/kto-nothing" --max-steps 2 "$@"
check answers-of-weight-0-teach-nothing near "$(field grad_norm "$tmp/kto-nothing/metrics.jsonl")" 0 1e-12

# ---- references ------------------------------------------------------------------------------------------------------------
refers() { # NAME OPTIONS...: the loss of the last of three steps of DPO
    local name=$1
    shift
    run align "$gpt2" --method dpo --data "$tmp/pairs.jsonl" --out "$tmp/$name" --max-steps 3 --threads 1 --quiet --json --batch-size 4 \
        --learning-rate 1e-3 "$@"
    field train_loss
}
loss=$(refers cached)
check the-reference-in-every-step near "$(refers every --no-cache)" "$loss"
check an-explicit-reference near "$(refers explicit --reference "$gpt2")" "$loss"
check another-reference eval '! near "$(refers other --reference "$tmp/sft")" "$loss"'
lora="--lora r=4,targets=all-linear"
loss=$(refers lora-cached $lora)
check the-adapter-off-is-the-reference near "$(refers lora-every $lora --no-cache)" "$loss"
run align "$gpt2" --method kto --data "$tmp/judged.jsonl" --out "$tmp/kto-every" --max-steps 3 "$@" --no-cache
check kto-without-a-cache works '"steps":3'

# ---- reward models ---------------------------------------------------------------------------------------------------------
sed 's/"chosen"/"margin": 0.5, "chosen"/' "$tmp/pairs.jsonl" >"$tmp/margins.jsonl"
run align "$gpt2" --method reward --data "$tmp/margins.jsonl" --eval-fraction 0.25 --center 0.01 --out "$tmp/reward" --epochs 6 "$@"
check reward works '"method":"reward"'
check reward-learns atleast "$(field accuracy)" 0.99
check reward-logs grep -q '"accuracy":.*"margin":.*"mean_reward":.*"min_reward":' "$tmp/reward/metrics.jsonl"
check reward-is-a-classifier grep -q 'GPT2ForSequenceClassification' "$tmp/reward/config.json"
check reward-names-its-padding grep -q '"pad_token_id": 256' "$tmp/reward/config.json"
# Held-out pairs in the wrong order: the first model is the best, and what is printed at the end is its.
sed 's/"chosen"/"x"/; s/"rejected"/"chosen"/; s/"x"/"rejected"/' "$tmp/pairs.jsonl" >"$tmp/swapped.jsonl"
run align "$gpt2" --method reward --data "$tmp/pairs.jsonl" --eval "$tmp/swapped.jsonl" --out "$tmp/spoilt" --max-steps 5 --eval-steps 1 "$@"
best=$(field best_step)
check the-best-is-not-the-last [ "$best" -lt 5 ]
sed -n "/\"step\": $best,/p" "$tmp/spoilt/metrics.jsonl" >"$tmp/at-best"
check the-result-is-the-best-model-s near "$(field loss)" "$(field eval_loss "$tmp/at-best")"
run classify "$tmp/reward" --threads 1 'say 3 it is 3.'
good=$(grep -o -e '-*[0-9.]*$' "$tmp/out")
run classify "$tmp/reward" --threads 1 'say 3 go away 3'
check reward-of-a-text atleast "$good" "$(grep -o -e '-*[0-9.]*$' "$tmp/out")"

# ---- adapters --------------------------------------------------------------------------------------------------------------
run align "$gpt2" --method sft --data "$tmp/sft.jsonl" --eval "$tmp/sft.jsonl" --out "$tmp/lora" --epochs 10 "$@" $lora --weights q8_0 --learning-rate 2e-2
check an-adapter-over-8-bits works '"method":"sft"'
check the-adapter-learns atleast "$(field loss "$tmp/lora/metrics.jsonl")" "$(awk "BEGIN { print 1.05 * $(field loss) }")"
check the-adapter-is-peft-s grep -q '"peft_type": "LORA"' "$tmp/lora/adapter_config.json"
check the-adapter-is-alone [ ! -e "$tmp/lora/model.safetensors" ]
run align "$tmp/lora" --method dpo --data "$tmp/pairs.jsonl" --out "$tmp/lora-dpo" --max-steps 2 "$@"
check an-adapter-learns-on works '"steps":2'
check from-itself-as-reference near "$(field loss "$tmp/lora-dpo/metrics.jsonl")" 0.693147 1e-3

run align "$gpt2" --method orpo --data "$tmp/pairs.jsonl" --out "$tmp/bf16" --max-steps 2 "$@" --bf16 --recompute
check in-bf16-and-recomputed works '"steps":2'

# ---- stop and go on, bit for bit -------------------------------------------------------------------------------------------
on() { # OUT OPTIONS...: become a run
    local out=$1
    shift
    exec "$BANYAN" align "$gpt2" --data "$tmp/judged.jsonl" --eval-fraction 0.25 --method kto --max-steps 30 --eval-steps 10 --save-steps 3 \
        --threads 1 --quiet --batch-size 4 --learning-rate 1e-3 --dropout 0.1 --out "$out" "$@" >"$tmp/log" 2>&1
}
course() { sed 's/, "ms": [^,}]*//; s/, "tokens_per_s": [^,}]*//' "$1/metrics.jsonl"; }
alike() { # A B
    cmp "$1/last/model.safetensors" "$2/last/model.safetensors" && cmp "$1/last/optimizer.safetensors" "$2/last/optimizer.safetensors" &&
        cmp "$1/model.safetensors" "$2/model.safetensors" && [ "$(course "$1")" = "$(course "$2")" ]
}
(on "$tmp/whole")
check a-whole-run [ -s "$tmp/whole/model.safetensors" ]
strike() { # OUT SIGNAL: stop a run twice in its midst, then let it end
    for mark in 03 15; do
        (on "$1") &
        pid=$!
        while kill -0 $pid 2>/dev/null && ! [ -d "$1/checkpoint-0000$mark" ]; do sleep 0.02; done
        kill "-$2" $pid 2>/dev/null
        wait $pid 2>/dev/null
    done
    [ "$2" = INT ] || rm -f "$1/data/reference.safetensors" # it is made again
    (on "$1")
}
strike "$tmp/killed" KILL
check killed-and-the-same alike "$tmp/whole" "$tmp/killed"
strike "$tmp/stopped" INT
check stopped-and-the-same alike "$tmp/whole" "$tmp/stopped"
run align --resume "$tmp/killed" --max-steps 33
check goes-on-from-its-folder-alone works '^3 steps'
check another-beta-is-another-run eval '! (on "$tmp/stopped" --beta 0.2) && grep -q beta "$tmp/log"'

# ---- several losses, divergences -------------------------------------------------------------------------------------------
run align "$gpt2" --method dpo --data "$tmp/pairs.jsonl" --loss sigmoid,bco_pair,sft --loss-weights 0.8,0.2,1 --out "$tmp/mixed" \
    --max-steps 2 --save-steps 1 "$@"
check a-sum-of-losses works '"method":"dpo"'
check it-is-recorded grep -q '"loss": "0.8 sigmoid, 0.2 bco_pair, 1 sft"' "$tmp/mixed/run.json"
run align "$gpt2" --method dpo --data "$tmp/pairs.jsonl" --loss-weights 0.8,0.2,2 --out "$tmp/mixed" --max-steps 4 "$@"
check another-sum-is-another-run fails 1 'started with loss 0.8 sigmoid'
run align "$gpt2" --method dpo --data "$tmp/pairs.jsonl" --divergence js_divergence --weight-pairs --out "$tmp/js" --max-steps 2 "$@"
check a-divergence-and-weights works '"method":"dpo"'

# ---- a template with special tokens, where answers are sampled --------------------------------------------------------------
printf '{"prompt": [{"role": "user", "content": "4"}]}\n' >"$tmp/said.jsonl"
run align "$gpt2" --method grpo --data "$tmp/said.jsonl" --chat-template "$tmp/template.jinja" --reward json --max-new-tokens 2 --max-steps 1 \
    --batch-size 1 --threads 1 --out "$tmp/said"
check special-tokens-of-templates grep -q '^1 prompt, the longest of 21 tokens' "$tmp/err"

# ---- what is refused -------------------------------------------------------------------------------------------------------
refused() { # NAME CODE TEXT OPTIONS...
    local name=$1 code=$2 text=$3
    shift 3
    rm -rf "$tmp/bad"
    run align "$gpt2" --threads 1 --quiet --out "$tmp/bad" "$@"
    check "$name" fails "$code" "$text"
    check "$name-leaves-nothing" [ ! -e "$tmp/bad" ]
}
refused no-method 2 'no method' --data "$tmp/sft.jsonl"
refused no-such-method 2 'dpo, kto' --method rlhf --data "$tmp/sft.jsonl"
refused no-such-loss 2 'unknown --loss' --method dpo --loss log --data "$tmp/pairs.jsonl"
refused no-data 2 'no data' --method sft
refused data-of-another-form 1 '"chosen" and "rejected"' --method dpo --data "$tmp/sft.jsonl"
refused conversations-without-a-template 1 'chat template' --method sft --data "$tmp/chat.jsonl"
refused a-template-with-an-error 1 'bad.jinja' --method sft --data "$tmp/chat.jsonl" --chat-template "$tmp/bad.jinja"
refused packed-pairs 2 'is for sft, not for dpo' --method dpo --pack --data "$tmp/pairs.jsonl"
refused clipped-ratios-of-sft 2 'is for ppo, grpo, rloo and reinforce, not for sft' --method sft --epsilon 0.2 --data "$tmp/sft.jsonl"
refused reference-of-orpo 2 'is for dpo, kto and policies, not for orpo' --method orpo --reference "$tmp/base" --data "$tmp/pairs.jsonl"
refused adapter-of-no-layer 1 'no linear layer or embedding of the given layers of' --method sft --lora r=2,layers=99 --data "$tmp/sft.jsonl"
refused no-smoothing-of-hinge 1 'label smoothing is for the losses sigmoid' --method dpo --loss hinge --label-smoothing 0.1 --data "$tmp/pairs.jsonl"
refused an-unknown-loss-in-a-list 2 'unknown --loss log' --method dpo --loss sigmoid,log --data "$tmp/pairs.jsonl"
refused weights-of-another-number 2 'not 2 numbers' --method dpo --loss sigmoid,sft --loss-weights 1 --data "$tmp/pairs.jsonl"
refused a-divergence-of-apo 1 'apo_zero is defined only for the divergence reverse_kl' --method dpo --loss sigmoid,apo_zero \
    --divergence forward_kl --data "$tmp/pairs.jsonl"
refused an-alpha-of-no-divergence 2 'needs --divergence alpha_divergence' --method dpo --divergence-alpha 0.3 --data "$tmp/pairs.jsonl"
refused weighted-pairs-of-sft 1 'no weights of pairs' --method dpo --loss sft --weight-pairs --data "$tmp/pairs.jsonl"
refused a-beta-of-0 1 'beta is 0; it must be above 0' --method simpo --beta 0 --data "$tmp/pairs.jsonl"
refused weights-of-0 1 'the weights of good and bad answers are 0 and 0' --method kto --desirable-weight 0 --undesirable-weight 0 --data "$tmp/judged.jsonl"
refused smoothing-of-exo-pair 1 'exo_pair' --method dpo --loss exo_pair --data "$tmp/pairs.jsonl"
refused blocks-that-learn 1 'train an adapter' --method sft --weights q4_0 --data "$tmp/sft.jsonl"
refused too-small-a-share 1 'leaves nothing' --method sft --eval-fraction 0.01 --data "$tmp/sft.jsonl"
refused a-reference-of-another-vocabulary 1 'reference' --method dpo --data "$tmp/pairs.jsonl" --reference "$tmp/words/best"
refused no-reference-there 1 nowhere --method dpo --data "$tmp/pairs.jsonl" --reference "$tmp/nowhere"
printf '{"prompt": "a", "completion": "b"}\n{"prompt": 3}\n' >"$tmp/torn.jsonl"
refused a-torn-line 1 'line 2' --method sft --data "$tmp/torn.jsonl"
exit $failed
