#!/bin/bash
# emulated.sh - the program on a GPU that is emulated on the CPU (src/cuda/emulate.h): recorded values, the same text as on
# the CPU, runs that are stopped and go on with the same bits, and runs that move between CPU and GPU.
# shellcheck disable=SC2317 # check calls what it is given
. "$(dirname "$0")/lib/common.sh"
program=$BANYAN_BUILD/tests/banyan-emulated
if [ ! -x "$program" ]; then
    echo "not run emulated: the emulation was not built (it needs a C++ compiler and cmocka, and has no sanitizers)"
    exit 0
fi
own_folder
cd "$tmp" || exit 1

# ---- recorded values ----------------------------------------------------------------------------------------------------
verify() { # CASE TYPE [NOTE]
    if [ -d "$BANYAN_SHARED/parity/$1" ]; then
        check "$1 $2${3:+, $3}" "$program" verify "$BANYAN_SHARED/parity/$1" --device cuda --dtype "$2"
    else
        echo "not run emulated $1 $2: $BANYAN_SHARED/parity/$1 is not there"
    fi
}
for case in gpt2-lm gpt2-classify gpt-lm gptj-lm reformer-lm reformer-local-lm transfo-xl-plain transfo-xl-memory transfo-xl-adaptive train-gpt2 linformer-mlm-headwise continuous-cache longformer-mlm bigbird-mlm xlnet-classify xlnet-memory xlnet-permutation imagegpt image-transformer-1d image-transformer-2d image-transformer-dmol vit-classify deit-classify tune-gpt2-lora tune-gpt2-dora tune-llama-embed tune-bert-bias tune-t5-lora align-dpo align-kto align-orpo-cpo align-reward align-grpo align-rloo align-ppo align-distil clip vit-gpt2-caption recurrent-rnn recurrent-lstm recurrent-gru attention-additive losses; do
    verify $case f32
done
# The term by distance of a few queries at a time, as for long texts.
export BANYAN_RELATIVE_CHUNK=4
for case in transfo-xl-plain transfo-xl-memory xlnet-memory xlnet-permutation; do
    verify $case f32 "in chunks"
done
unset BANYAN_RELATIVE_CHUNK
for mode in merged alternating heads; do
    verify sparse-strided-lm-$mode f32
    verify sparse-fixed-lm-$mode f32
done
verify gpt2-lm bf16
for case in gpt2 bert t5 transfo-xl transfo-xl-authors xlnet-answers imagegpt-classify vit-other-size deit-teacher caption caption-bert caption-roberta caption-roberta-padding tune-llama-tokens tune-gpt2-shifts align-sft align-dpo-mixed align-grpo-tokens upscale-2d upscale-dmol; do
    check "own $case" "$program" verify "$BANYAN_SOURCE/tests/data/verify/$case" --device cuda
done
for case in reformer-padding longformer-choice xlnet-empty-memory; do
    check "own $case" "$program" verify "$BANYAN_SOURCE/tests/data/cases/$case" --device cuda
done

# ---- the same text --------------------------------------------------------------------------------------------------------
cat "$BANYAN_SOURCE"/src/graph/[a-d]*.c >text
head -c 3000 text >held

# train OUT STEPS OPTIONS...: so many steps of a tiny run, or up to there when some have been made.
train() {
    local out=$1 steps=$2
    shift 2
    "$program" train --data text --eval-data held --eval-batches 2 --tokenizer byte --out "$out" --layers 2 --heads 2 \
        --width 32 --context 32 --batch-size 2 --warmup-steps 2 --lr-scheduler constant --max-steps "$steps" \
        --save-steps 5 --eval-steps 5 --threads 1 --quiet "$@"
}
text() { "$program" generate learnt "$1" --device "$2" --greedy -n 30 --threads 1; }
same_text() { cmp <(text "$1" cpu) <(text "$1" cuda) && [ "$(text "$1" cuda | wc -c)" -ge 30 ]; }
check "a run on the CPU" train learnt 300 --device cpu
check "greedy text" same_text "static int"
check "greedy text of a prompt of one byte" same_text "/"
# The GPU draws with a temperature alone, and the host behind a filter that drops nothing.
drawn() { # DEVICE SEED [MIN_P]
    "$program" generate learnt "static int" --device "$1" --temp 0.8 --top-k 0 --top-p 1 --min-p "${3:-0}" --seed "$2" -n 30 --threads 1
}
same_draws() { cmp <(drawn cpu "$1") <(drawn cuda "$1") && cmp <(drawn cuda "$1" 1e-30) <(drawn cuda "$1"); }
for seed in 1 2 3; do
    check "text drawn on the GPU, seed $seed" same_draws $seed
done
differ() { ! cmp -s <(drawn cuda 1) <(drawn cuda 2); }
check "seeds differ" differ
beams() { "$program" generate learnt "static int" --device "$1" --beams 3 --return 3 --no-repeat-ngram 4 -n 12 --threads 1; }
same_beams() { cmp <(beams cpu | sed 's/score.*//') <(beams cuda | sed 's/score.*//') && [ "$(beams cuda | wc -c)" -ge 60 ]; }
check "the texts of a beam search" same_beams

# ---- stopped and continued -------------------------------------------------------------------------------------------------
same() { # A B: the same bytes
    local file
    for file in model.safetensors optimizer.safetensors trainer_state.json; do
        cmp "$1/last/$file" "$2/last/$file" || return 1
    done
}
go_on() { # OPTIONS...
    rm -rf alone stopped
    train alone 10 --device cuda "$@" && train stopped 5 --device cuda "$@" && train stopped 10 --device cuda "$@" &&
        same alone stopped
}
check "stopped and continued, f32" go_on
check "stopped and continued, bf16, dropout, accumulation" go_on --bf16 --dropout 0.2 --accumulate 2
# Parameters and moments of more than 1 MiB leave the device in parts.
check "stopped and continued, tensors that are saved in parts" go_on --width 256 --context 1100 --seq 8 --layers 1 -b 1 --inner 32
large() { find stopped/last/ -name "$1" -size +$(($2 * 1024))k | grep -q .; }
check "which are in the checkpoint" eval 'large model.safetensors 1 && large optimizer.safetensors 2'
check "and intact" eval '"$BANYAN" inspect stopped/last >/dev/null && train stopped 11 --device cpu --width 256 --context 1100 --seq 8 --layers 1 -b 1 --inner 32'
check "stopped and continued, stochastic rounding" go_on --bf16 --stochastic-rounding --dropout 0.1

# ---- losses that are read later ---------------------------------------------------------------------------------------------
# A GPU's losses are read for many steps at once: the step that goes wrong is named all the same, and those before it recorded.
wrong() { # DEVICE
    rm -rf wrong
    ! train wrong 40 --device "$1" --optimizer sgd --learning-rate 100 --max-grad-norm 0 --save-steps 40 2>said &&
        cat said && [ ! -e wrong/last ] && grep -q "\(loss is .*\|norm is not finite\) at step $(($(wc -l <wrong/metrics.jsonl) + 1))\$" said
}
check "a loss that is not finite, on the CPU" wrong cpu
check "a loss that is not finite, on the GPU" wrong cuda

# ---- from one device to the other ---------------------------------------------------------------------------------------------
losses() { sed -n 's/.*"loss": \([0-9.]*\).*/\1/p' "$1/metrics.jsonl"; }
moves() { # OPTIONS...: CPU, GPU and CPU again gives the losses that the CPU alone does, to rounding
    rm -rf still moving
    train still 15 --device cpu "$@" && train moving 5 --device cpu "$@" && train moving 10 --device cuda "$@" &&
        train moving 15 --device cpu "$@" || return 1
    [ "$(losses moving | wc -l)" -eq 15 ] && paste <(losses still) <(losses moving) |
        awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-5 * $1) { print "step " NR ": " $0; bad = 1 } } END { exit bad }'
}
check "from the CPU to the GPU and back" moves
check "from the CPU to the GPU and back, with dropout" moves --dropout 0.1
exit $failed
