#!/bin/sh
# adapters.sh - `--lora`, `--ia3`, `--prefix-tuning` and `--prompt-tuning` of `banyan finetune` on every task with tiny models made here, the folders it leaves, going on, weights of
# blocks, `--adapter` of the other verbs, `convert --merge`, `inspect --lora`, and what is refused.
# shellcheck disable=SC2016,SC2317 # check evaluates what it is given
. "$(dirname "$0")/lib/common.sh"
own_folder

field() {
    sed -n "s/.*\"$1\": *\\([-0-9.e+]*\\).*/\\1/p" "$tmp/out" | head -n 1
}
atleast() {
    awk -v a="$1" -v b="$2" 'BEGIN { exit !(a != "" && a >= b) }'
}
near() {
    awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; if (d < 0) d = -d; exit !(a != "" && b != "" && d <= 1e-4) }'
}

# ---- tiny models ---------------------------------------------------------------------------------------------------------
mkdir "$tmp/words"
{
    printf '[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n'
    printf '%s\n' good bad fine awful film book cat dog sat ran the a who what did anna berlin in lives
} >"$tmp/words/vocab.txt"
printf '{"tokenizer_class": "BertTokenizer", "do_lower_case": true}\n' >"$tmp/words/tokenizer_config.json"
i=0
while [ $i -lt 40 ]; do
    echo "the cat sat . the dog ran . anna lives in berlin . who did what . a good film . a bad book ."
    i=$((i + 1))
done >"$tmp/text.txt"
run train --model bert --objective mlm --data "$tmp/text.txt" --tokenizer "$tmp/words" --layers 2 --heads 2 --width 32 --inner 64 \
    --context 24 --batch-size 4 --max-steps 60 --threads 1 --out "$tmp/bert" --quiet
check a-tiny-bert works model
run train --model gpt2 --data "$tmp/text.txt" --layers 2 --heads 2 --width 32 --context 96 --batch-size 4 --max-steps 2 --threads 1 \
    --out "$tmp/gpt2" --quiet
check a-tiny-gpt2 works model
bert=$tmp/bert/best gpt2=$tmp/gpt2/best
body=$(cksum <"$bert/model.safetensors")
set -- --threads 1 --quiet --json --learning-rate 1e-2 --batch-size 8 --dropout 0 --lora r=4,alpha=8,targets=all-linear

# ---- classify --------------------------------------------------------------------------------------------------------------
i=0
while [ $i -lt 24 ]; do
    printf 'a good film\tpos\nthe fine book\tpos\na bad film\tneg\nthe awful book\tneg\n'
    i=$((i + 1))
done >"$tmp/train.tsv"
printf 'sentence\tlabel\nthe good book\tpos\nthe bad book\tneg\na fine film\tpos\na awful film\tneg\n' >"$tmp/dev.tsv"
run finetune "$bert" --data "$tmp/train.tsv" --eval "$tmp/dev.tsv" --out "$tmp/c" --epochs 14 "$@"
check classify works '"accuracy":1'
# query, key, value, dense: 32 to 32; intermediate 32 to 64 and back: 4 (inputs + outputs) of each; pooler and classifier are new: whole
check trains-the-adapter-alone [ "$(field trained_parameters)" -eq $((2 * 4 * (4 * 64 + 2 * 96) + 32 * 32 + 32 + 32 * 2 + 2)) ]
check leaves-a-config grep -q '"peft_type": "LORA"' "$tmp/c/adapter_config.json"
check lists-all-linear grep -q '"bert.encoder.layer.1.intermediate.dense"' "$tmp/c/adapter_config.json"
check names-its-task grep -q '"task_type": "SEQ_CLS"' "$tmp/c/adapter_config.json"
check leaves-tensors grep -qa 'base_model.model.bert.encoder.layer.0.attention.self.query.lora_A.weight' "$tmp/c/adapter_model.safetensors"
check leaves-the-head grep -qa '"base_model.model.classifier.weight"' "$tmp/c/adapter_model.safetensors"
check leaves-no-weights [ ! -e "$tmp/c/model.safetensors" ]
check leaves-a-tokenizer [ -s "$tmp/c/tokenizer.json" ]
check the-body-is-untouched [ "$(cksum <"$bert/model.safetensors")" = "$body" ]
run eval "$tmp/c" --data "$tmp/dev.tsv" --threads 1 --json
check eval-of-the-folder works '"accuracy":1'
loss=$(field loss)
run eval "$bert" --adapter "$tmp/c" --data "$tmp/dev.tsv" --threads 1 --json
check eval-with-adapter near "$(field loss)" "$loss"
run classify "$tmp/c" --threads 1 'the good book'
check classify-with-the-folder works pos
run classify "$bert" --adapter "$tmp/c" --threads 1 'the bad book'
check classify-with-adapter works neg
run embed "$tmp/c" --threads 1 --similarity 'a film' 'a film'
check embed-with-the-folder works '^1.0000'
run embed "$bert" --adapter "$tmp/c" --threads 1 'a film'
check embed-with-adapter works
run attention "$bert" --adapter "$tmp/c" --threads 1 --out "$tmp/heads.svg" 'a film'
check attention-with-adapter works 'heads.svg'
run inspect "$tmp/c" --mode train
check inspect-of-the-folder works 'trained .* 4.*[0-9][0-9][0-9] '

# ---- merged ----------------------------------------------------------------------------------------------------------------
run convert "$bert" "$tmp/merged" --merge "$tmp/c"
check merge works 'merged'
check merged-has-no-adapter [ ! -e "$tmp/merged/adapter_config.json" ]
run eval "$tmp/merged" --data "$tmp/dev.tsv" --threads 1 --json
check merged-is-the-same near "$(field loss)" "$loss"
run convert "$tmp/c" "$tmp/merged2"
check merge-of-the-folder works 'merged'
check both-ways-are-equal cmp "$tmp/merged/model.safetensors" "$tmp/merged2/model.safetensors"
run convert "$bert" "$tmp/merged" --merge "$tmp/c"
check merge-into-what-is-there fails 1 merged
run convert "$bert" "$tmp/merged3" --merge "$tmp/words"
check merge-needs-an-adapter fails 1 adapter_config.json

# ---- stop and go on, bit for bit -------------------------------------------------------------------------------------------
on() { # OUT: with dropout in the body and before the adapter
    run finetune "$bert" --data "$tmp/train.tsv" --out "$tmp/$1" --max-steps 9 --save-steps 3 --save-total-limit 9 --threads 1 --quiet \
        --json --learning-rate 5e-3 --batch-size 8 --dropout 0.1 --lora r=4,targets=query,value,dropout=0.1,dora
}
on whole
check a-whole-run works '"steps":9'
cp -R "$tmp/whole" "$tmp/part"
rm -r "$tmp/part/checkpoint-000006" "$tmp/part/checkpoint-000009" "$tmp/part/last"
rm -f "$tmp/part/best" "$tmp/part/adapter_model.safetensors"
ln -s checkpoint-000003 "$tmp/part/last"
on part
check goes-on works '"resumed_from":3'
check goes-on-exactly cmp "$tmp/whole/adapter_model.safetensors" "$tmp/part/adapter_model.safetensors"
check goes-on-with-the-moments cmp "$tmp/whole/last/optimizer.safetensors" "$tmp/part/last/optimizer.safetensors"
run finetune "$bert" --data "$tmp/train.tsv" --out "$tmp/part" --max-steps 9 --save-steps 3 --threads 1 --quiet --learning-rate 5e-3 \
    --batch-size 8 --dropout 0.1 --lora r=8
check goes-on-with-the-same-adapter-alone fails 1 lora

# ---- weights of blocks -----------------------------------------------------------------------------------------------------
run finetune "$bert" --data "$tmp/train.tsv" --eval "$tmp/dev.tsv" --out "$tmp/q" --epochs 14 "$@" --weights q4_0
check over-4-bits works '"accuracy":1'
blocks=$(field state_bytes)
run finetune "$bert" --data "$tmp/train.tsv" --eval "$tmp/dev.tsv" --out "$tmp/q8" --epochs 14 "$@" --weights q8_0
check over-8-bits works '"accuracy":1'
check fewer-bits-take-less-memory [ "$blocks" -lt "$(field state_bytes)" ]
run eval "$tmp/q" --data "$tmp/dev.tsv" --threads 1 --json --weights q4_0
check eval-over-4-bits works '"accuracy":1'
run finetune "$bert" --data "$tmp/train.tsv" --out "$tmp/b" --max-steps 1 --threads 1 --weights q4_0
check blocks-are-not-trained fails 1 'train an adapter'

# ---- other tasks -----------------------------------------------------------------------------------------------------------
i=0
while [ $i -lt 24 ]; do
    printf 'anna B-PER\nlives O\nin O\nberlin B-LOC\n\nthe O\ncat O\nsat O\nin O\nberlin B-LOC\n\n'
    i=$((i + 1))
done >"$tmp/ner.conll"
run finetune "$bert" --task tag --data "$tmp/ner.conll" --eval "$tmp/ner.conll" --out "$tmp/t" --epochs 4 "$@"
check tag works '"f1":1'
run tag "$tmp/t" --threads 1 'anna lives in berlin'
check tag-with-the-folder works 'LOC .*berlin'
sed 's/pos/1.5/; s/neg/-0.5/' "$tmp/train.tsv" >"$tmp/numbers.tsv"
run finetune "$bert" --task regress --data "$tmp/numbers.tsv" --eval "$tmp/numbers.tsv" --out "$tmp/r" --epochs 6 "$@"
check regress atleast "$(field pearson)" 0.9
printf '{"data": [{"paragraphs": [{"context": "the cat sat in berlin", "qas": [{"id": "a", "question": "who sat", "answers": [{"text": "cat", "answer_start": 4}]}]}]}]}\n' >"$tmp/squad.json"
run finetune "$bert" --task qa --data "$tmp/squad.json" --eval "$tmp/squad.json" --out "$tmp/qa" --epochs 30 "$@"
check answer atleast "$(field exact_match)" 99
run answer "$tmp/qa" --threads 1 'who sat' 'the cat sat in berlin'
check answer-with-the-folder works '^cat$'
run finetune "$bert" --task mlm --data "$tmp/text.txt" --eval "$tmp/text.txt" --out "$tmp/mlm" --epochs 10 "$@"
check mlm works '"perplexity":'
run fill "$tmp/mlm" --threads 1 'the ___ sat .'
check fill-with-the-folder works '%'
run finetune "$gpt2" --task lm --data "$tmp/text.txt" --eval "$tmp/text.txt" --out "$tmp/lm" --epochs 10 "$@"
check lm works '"perplexity":'
check lm-knows-conv1d grep -q '"fan_in_fan_out": true' "$tmp/lm/adapter_config.json"
run generate "$tmp/lm" --threads 1 --prompt 'the cat' -n 12 --greedy
check generate-with-the-folder works '^the cat'
cp "$tmp/out" "$tmp/text-with"
run generate "$gpt2" --adapter "$tmp/lm" --threads 1 --prompt 'the cat' -n 12 --greedy
check generate-with-adapter cmp "$tmp/out" "$tmp/text-with"
run convert "$tmp/lm" "$tmp/lm-merged"
run generate "$tmp/lm-merged" --threads 1 --prompt 'the cat' -n 12 --greedy
check merged-writes-the-same cmp "$tmp/out" "$tmp/text-with"
run generate "$gpt2" --threads 1 --prompt 'the cat' -n 12 --greedy
check without-it-another-text [ "$(cksum <"$tmp/out")" != "$(cksum <"$tmp/text-with")" ]
run finetune "$tmp/lm" --task lm --data "$tmp/text.txt" --out "$tmp/lm2" --max-steps 2 --threads 1 --quiet --json
check an-adapter-learns-on works '"steps":2'
check and-stays-one [ -s "$tmp/lm2/adapter_model.safetensors" ]
i=0
while [ $i -lt 20 ]; do
    printf 'the cat sat\tcat\nthe dog ran\tdog\na good film\tfilm\n'
    i=$((i + 1))
done >"$tmp/pairs.tsv"
cut -f 1 "$tmp/pairs.tsv" >"$tmp/pairs.src"
cut -f 2 "$tmp/pairs.tsv" >"$tmp/pairs.tgt"
run train --model t5 --objective translate --data "$tmp/pairs.src" "$tmp/pairs.tgt" --tokenizer bpe:300 --layers 1 --heads 2 --width 32 \
    --context 24 --max-steps 2 --threads 1 --out "$tmp/t5" --quiet
check a-tiny-t5 works model
run finetune "$tmp/t5" --task seq2seq --data "$tmp/pairs.tsv" --eval "$tmp/pairs.tsv" --out "$tmp/s" --max-steps 8 --threads 1 --quiet --json \
    --lora r=4,targets=q,v,wo
check seq2seq works '"steps":8'
check seq2seq-warms-up-for-a-tenth grep -q '"warmup_steps": *1,' "$tmp/s/run.json"
check seq2seq-leaves-an-adapter [ -s "$tmp/s/adapter_model.safetensors" ]
run summarize "$tmp/s" --threads 1 'the cat sat'
check summarize-with-the-folder [ "$rc" -eq 0 ]

# ---- IA3 -------------------------------------------------------------------------------------------------------------------
vectors() { # OUT OPTIONS...
    local out=$1
    shift
    run finetune "$bert" --data "$tmp/train.tsv" --out "$tmp/$out" --threads 1 --quiet --json --batch-size 8 --dropout 0.1 "$@"
}
vectors ia3 --eval "$tmp/dev.tsv" --epochs 14 --ia3 default
check ia3 works '"accuracy":'
# key and value: 32 outputs each; output.dense of attention and of the block: 32 and 64 inputs; pooler and classifier are new: whole
check ia3-trains-the-vectors-alone [ "$(field trained_parameters)" -eq $((2 * (2 * 32 + 32 + 64) + 32 * 32 + 32 + 32 * 2 + 2)) ]
check ia3-leaves-a-config grep -q '"peft_type": "IA3"' "$tmp/ia3/adapter_config.json"
check ia3-leaves-tensors grep -qa 'base_model.model.bert.encoder.layer.0.attention.self.key.ia3_l' "$tmp/ia3/adapter_model.safetensors"
run eval "$bert" --adapter "$tmp/ia3" --data "$tmp/dev.tsv" --threads 1 --json
check ia3-eval works '"accuracy":'
loss=$(field loss)
run convert "$tmp/ia3" "$tmp/ia3-merged"
run eval "$tmp/ia3-merged" --data "$tmp/dev.tsv" --threads 1 --json
check ia3-merged-is-the-same near "$(field loss)" "$loss"
vectors ia3-whole --max-steps 9 --save-steps 3 --save-total-limit 9 --ia3 targets=key,output.dense,feedforward=output.dense
cp -R "$tmp/ia3-whole" "$tmp/ia3-part"
rm -r "$tmp/ia3-part/checkpoint-000006" "$tmp/ia3-part/checkpoint-000009" "$tmp/ia3-part/last"
rm -f "$tmp/ia3-part/best" "$tmp/ia3-part/adapter_model.safetensors"
ln -s checkpoint-000003 "$tmp/ia3-part/last"
vectors ia3-part --max-steps 9 --save-steps 3 --save-total-limit 9 --ia3 targets=key,output.dense,feedforward=output.dense
check ia3-goes-on works '"resumed_from":3'
check ia3-goes-on-exactly cmp "$tmp/ia3-whole/adapter_model.safetensors" "$tmp/ia3-part/adapter_model.safetensors"
vectors ia3-part --max-steps 9 --ia3 default
check ia3-goes-on-with-the-same-alone fails 1 'was started with ia3 targets=key'
vectors ia3-part --max-steps 9 --lora r=4
check ia3-is-not-lora fails 2 'only one adapter'
run train --model gpt2 --data "$tmp/text.txt" --layers 2 --heads 2 --width 32 --context 96 --batch-size 4 --max-steps 150 --threads 1 \
    --out "$tmp/learnt" --quiet
rev "$tmp/text.txt" >"$tmp/backwards.txt"
run eval "$tmp/learnt" --data "$tmp/backwards.txt" --threads 1 --json
loss=$(field loss)
for weights in '' '--weights q4_0'; do
    # shellcheck disable=SC2086 # two words or none
    run finetune "$tmp/learnt" --task lm --data "$tmp/backwards.txt" --eval "$tmp/backwards.txt" --out "$tmp/ia3-lm" --max-steps 60 \
        --batch-size 4 --threads 1 --quiet --json --overwrite --ia3 targets=all-linear $weights
    check "ia3-learns${weights#--weights}" atleast "$loss" "$(awk -v l="$(field loss)" 'BEGIN { print l + 0.5 }')"
done
run generate "$tmp/ia3-lm" --threads 1 --prompt 'the cat' -n 12 --greedy
check ia3-generates works '^the cat'
run inspect gpt2:124m --mode train --seq 16 --ia3 default --json
check ia3-inspect works "\"trained_parameters\":$((12 * (2304 + 3072)))"
run inspect gpt2:124m --mode train --seq 16 --ia3 targets=c_attn,feedforward= --json
check ia3-of-outputs works "\"trained_parameters\":$((12 * 2304))"

# ---- prefixes --------------------------------------------------------------------------------------------------------------
prefix() { # OUT OPTIONS...
    local out=$1
    shift
    run finetune "$tmp/learnt" --task lm --data "$tmp/backwards.txt" --eval "$tmp/backwards.txt" --out "$tmp/$out" --batch-size 4 --threads 1 \
        --quiet --json "$@"
}
# A run that lost all after its first checkpoint goes on to the same adapter.
goes_on() { # OUT OPTION
    prefix "$1-whole" --dropout 0.1 --max-steps 9 --save-steps 3 --save-total-limit 9 "$2" 4
    cp -R "$tmp/$1-whole" "$tmp/$1-part"
    rm -r "$tmp/$1-part/checkpoint-000006" "$tmp/$1-part/checkpoint-000009" "$tmp/$1-part/last"
    rm -f "$tmp/$1-part/best" "$tmp/$1-part/adapter_model.safetensors"
    ln -s checkpoint-000003 "$tmp/$1-part/last"
    prefix "$1-part" --dropout 0.1 --max-steps 9 --save-steps 3 --save-total-limit 9 "$2" 4
    check "${2#--}-goes-on" works '"resumed_from":3'
    check "${2#--}-goes-on-exactly" cmp "$tmp/$1-whole/adapter_model.safetensors" "$tmp/$1-part/adapter_model.safetensors"
}
prefix p --max-steps 200 --dropout 0 --learning-rate 1e-1 --prefix-tuning 6
check prefix-learns atleast "$loss" "$(awk -v l="$(field loss)" 'BEGIN { print l + 0.3 }')"
check prefix-is-all-that-learns [ "$(field trained_parameters)" -eq $((6 * 2 * 2 * 32)) ]
check prefix-leaves-a-config grep -q '"peft_type": "PREFIX_TUNING"' "$tmp/p/adapter_config.json"
run eval "$tmp/learnt" --adapter "$tmp/p" --data "$tmp/backwards.txt" --threads 1 --json
check prefix-of-a-folder [ "$rc" -eq 0 ]
run generate "$tmp/p" --threads 1 --prompt ' tas tac' -n 12 --greedy
check prefix-generates works '^ tas tac'
cp "$tmp/out" "$tmp/text-with"
run generate "$tmp/learnt" --adapter "$tmp/p" --threads 1 --prompt ' tas tac' -n 12 --num-beams 1 --greedy
check prefix-beside-a-model cmp "$tmp/out" "$tmp/text-with"
run generate "$tmp/p" --threads 1 --prompt ' tas tac' -n 12 --num-beams 3
check prefix-with-beams works '^ tas tac'
goes_on p --prefix-tuning
prefix p-part --dropout 0.1 --max-steps 9 --prefix-tuning 5
check prefix-goes-on-with-the-same-alone fails 1 'prefix'
run convert "$tmp/p" "$tmp/p-merged"
check prefix-is-not-merged fails 1 'cannot be merged'
run inspect gpt2:124m --mode train --seq 16 --prefix-tuning 20 --json
check prefix-inspect works "\"trained_parameters\":$((20 * 12 * 2 * 768))"

prefix soft --max-steps 200 --dropout 0 --learning-rate 1e-1 --prompt-tuning 6
check prompt-learns atleast "$loss" "$(awk -v l="$(field loss)" 'BEGIN { print l + 0.05 }')"
check prompt-is-all-that-learns [ "$(field trained_parameters)" -eq $((6 * 32)) ]
check prompt-leaves-a-config grep -q '"peft_type": "PROMPT_TUNING"' "$tmp/soft/adapter_config.json"
run generate "$tmp/soft" --threads 1 --prompt ' tas tac' -n 12 --greedy
check prompt-generates works '^ tas tac'
cp "$tmp/out" "$tmp/text-with"
run generate "$tmp/learnt" --adapter "$tmp/soft" --threads 1 --prompt ' tas tac' -n 12 --num-beams 1 --greedy
check prompt-beside-a-model cmp "$tmp/out" "$tmp/text-with"
goes_on soft --prompt-tuning
prefix soft-part --dropout 0.1 --max-steps 9 --prefix-tuning 4
check prompt-is-no-prefix fails 2 'only one adapter'
run convert "$tmp/soft" "$tmp/soft-merged"
check prompt-is-not-merged fails 1 'a prompt .* cannot be merged'

# ---- what stands beside an adapter -----------------------------------------------------------------------------------------
# Pictures of another size than the model's: eight raw ones of 8 x 8 pixels, prepared with 16.
printf '\0\0\10\3\0\0\0\10\0\0\0\10\0\0\0\10' >"$tmp/p-images-idx3-ubyte"
awk 'BEGIN { for (i = 0; i < 512; i++) printf "%c", 33 + (i * i * 7) % 90 }' >>"$tmp/p-images-idx3-ubyte"
printf '\0\0\10\1\0\0\0\10\0\1\0\1\0\1\0\1' >"$tmp/p-labels-idx1-ubyte"
set -- --data "$tmp/p-images-idx3-ubyte" --threads 1
run train --model vit --layers 1 --heads 2 --width 16 --max-steps 2 --out "$tmp/vit" --quiet "$@"
run finetune "$tmp/vit/last" --eval "$tmp/p-images-idx3-ubyte" --image-size 16 --lora r=4,save=classifier --learning-rate 0.1 --epochs 3 --out "$tmp/v" --quiet "$@"
check an-adapter-of-pictures works '^accuracy'
run eval "$tmp/v" --json "$@"
loss=$(field loss)
check it-has-learned-something atleast "$loss" 0
run eval "$tmp/vit/last" --json "$@"
check without-it-another-loss eval '! near "$(field loss)" "$loss"'
run eval "$tmp/vit/last" --adapter "$tmp/v" --json "$@"
check eval-of-pictures-with-adapter near "$(field loss)" "$loss"
run convert "$tmp/vit/last" "$tmp/v-merged" --merge "$tmp/v"
run eval "$tmp/v-merged" --json "$@"
check merged-with-the-size-of-its-pictures near "$(field loss)" "$loss"
check merged-without-the-record-of-a-run [ "$(ls "$tmp/v-merged" | tr '\n' ' ')" = "config.json model.safetensors preprocessor_config.json " ]
run finetune "$tmp/vit/last" --max-steps 1 --out "$tmp/rate" --quiet "$@"
run finetune "$tmp/vit/last" --max-steps 1 --lora r=2 --out "$tmp/rate10" --quiet "$@"
rate() { sed -n 's/.*"learning_rate": *\([-0-9.e]*\).*/\1/p' "$tmp/$1/run.json" | head -n 1; }
check ten-times-the-rate eval 'near "$(rate rate10)" "$(awk "BEGIN { print 10 * $(rate rate) }")"'
mkdir "$tmp/bare"
cp "$tmp/v/adapter_config.json" "$tmp/v/adapter_model.safetensors" "$tmp/bare"
sed 's/"image_std": *\[[^]]*\]/"image_std": [0.25]/' "$tmp/vit/last/preprocessor_config.json" >"$tmp/std"
cp "$tmp/std" "$tmp/vit/last/preprocessor_config.json"
run classify "$tmp/vit/last" --adapter "$tmp/bare" --threads 1 "$BANYAN_SOURCE/docs/vit-attention.png"
cp "$tmp/out" "$tmp/given"
run classify "$tmp/bare" --threads 1 "$BANYAN_SOURCE/docs/vit-attention.png"
check a-bare-adapter-takes-the-processor-of-its-model cmp "$tmp/out" "$tmp/given"

echo '{"messages": [{"role": "user", "content": "the"}, {"role": "assistant", "content": "cat"}]}' >"$tmp/chat.jsonl"
echo '{% for m in messages %}{{ m.content }} {% endfor %}' >"$tmp/chat.jinja"
run align "$gpt2" --method sft --data "$tmp/chat.jsonl" --chat-template "$tmp/chat.jinja" --lora r=2 --max-steps 1 --threads 1 --out "$tmp/ch" --quiet
check an-adapter-with-a-chat-template works model
run convert "$gpt2" "$tmp/ch-merged" --merge "$tmp/ch" --json
check merged-says-so-in-json works '"model":"GPT2LMHeadModel"'
check merged-with-its-chat-template grep -q 'm.content' "$tmp/ch-merged/tokenizer_config.json"
run convert "$gpt2" "$tmp/none" --merge "$tmp/ch" --rename a=b
check no-names-are-changed-in-merging fails 2 '--rename is for weights that are converted as they are'

# ---- sizes -----------------------------------------------------------------------------------------------------------------
run inspect gpt2:124m --mode train --seq 16 --lora r=16,alpha=32,targets=all-linear --json
check inspect-counts works '"trained_parameters":2359296' # 12 layers of 16 (768 + 2304 + 2 * 768 + 2 * (768 + 3072))
check inspect-gradients [ "$(field gradient_bytes)" -eq $((2359296 * 4)) ]
check inspect-optimiser [ "$(field optimizer_bytes)" -eq $((2359296 * 8)) ]
run inspect gpt2:124m --mode train --seq 16 --lora r=16,targets=all-linear --weights q4_0
check inspect-over-blocks works 'trained'

# ---- what is wrong ---------------------------------------------------------------------------------------------------------
wrong() { # NAME CODE TEXT OPTIONS...
    local name=$1 code=$2 text=$3
    shift 3
    rm -rf "$tmp/b"
    run finetune "$bert" --data "$tmp/train.tsv" --out "$tmp/b" --max-steps 1 --threads 1 "$@"
    check "$name" fails "$code" "$text"
}
wrong an-unknown-key 2 '"rank"' --lora rank=4
wrong a-rank-that-is-none 2 'r=x' --lora r=x
wrong a-part-of-a-rank 2 'r=1.5' --lora r=1.5
wrong a-word-alone 2 'all-linear' --lora all-linear
wrong no-such-layer 1 'no linear layer' --lora targets=conv
wrong nothing-to-save 1 'has no module "nothing" to save' --lora save=pooler,nothing
wrong layers-of-no-number 2 'layers= is empty' --lora r=4,layers=
wrong a-bad-expression 1 'regular expression' --lora 'targets=(query'
wrong ia3-has-no-rank 2 '"r" is not one of default' --ia3 r=4
wrong lora-has-no-default 2 '"default" is not one of r=N' --lora default
wrong ia3-without-targets 2 'targets' --ia3 targets=
wrong ia3-with-others 1 'not among the targets' --ia3 targets=key,feedforward=value
wrong ia3-of-embeddings 1 'is an embedding' --ia3 targets=word_embeddings
wrong prefix-of-an-encoder 1 'a prefix is for decoders' --prefix-tuning 4
wrong prefix-of-nothing 2 'not a number of positions' --prefix-tuning 0
wrong prefix-and-lora 2 'only one adapter' --prefix-tuning 4 --lora r=4
wrong prompt-of-an-encoder 1 'a prompt is for decoders' --prompt-tuning 4
wrong prompt-and-prefix 2 'only one adapter' --prefix-tuning 4 --prompt-tuning 4
wrong both-adapters 2 'only one adapter' --ia3 default --lora r=4
wrong frozen-layers-besides 1 'an adapter freezes the whole model' --lora r=4 --freeze body
run classify "$bert" --adapter "$tmp/nowhere" --threads 1 text
check no-such-adapter fails 1 nowhere
run finetune "$gpt2" --task lm --data "$tmp/text.txt" --lora r=2,targets=c_attn,tokens=5,7 --max-steps 3 --lr 1e-2 --threads 1 --quiet \
    --out "$tmp/tokens"
check tokens works model
check tokens-are-stored grep -qa 'wte.token_adapter.trainable_tokens_delta' "$tmp/tokens/adapter_model.safetensors"
check tokens-are-configured eval 'tr -d "\n " <"$tmp/tokens/adapter_config.json" | grep -q "\"trainable_token_indices\":\[5,7\]"'
run convert "$tmp/tokens" "$tmp/tokens-merged"
check tokens-merge works merged
run eval "$tmp/tokens" --data "$tmp/text.txt" --threads 1 --json
loss=$(field loss)
run eval "$tmp/tokens-merged" --data "$tmp/text.txt" --threads 1 --json
check tokens-merged-compute-the-same near "$(field loss)" "$loss"
run generate "$tmp/tokens" --threads 1 --prompt 'the cat' -n 12 --greedy
cp "$tmp/out" "$tmp/said"
run generate "$tmp/tokens-merged" --threads 1 --prompt 'the cat' -n 12 --greedy
check tokens-write-the-same cmp "$tmp/out" "$tmp/said"
run finetune "$gpt2" --task lm --data "$tmp/text.txt" --lora r=2,tokens=5,99999 --max-steps 1 --threads 1 --quiet --out "$tmp/none"
check no-such-token fails 1 'has no token 99999'
run finetune "$gpt2" --task lm --data "$tmp/text.txt" --lora r=2,tokens=5,5 --max-steps 1 --threads 1 --quiet --out "$tmp/none"
check a-token-twice fails 1 'is named twice'
run finetune "$gpt2" --task lm --data "$tmp/text.txt" --lora r=2,targets=wte,tokens=5 --max-steps 1 --threads 1 --quiet --out "$tmp/none"
check a-table-both-ways fails 1 'choose one'
run finetune "$gpt2" --task lm --data "$tmp/text.txt" --lora r=2,tokens=5 --weights q8_0 --max-steps 1 --threads 1 --quiet --out "$tmp/none"
check tokens-over-blocks fails 1 'stored as q8_0'
run classify "$bert" --adapter "$gpt2" --threads 1 text
check a-model-is-no-adapter fails 1 'has no adapter_config.json'
run classify "$bert" --adapter "$tmp/lm" --threads 1 text
check an-adapter-of-another-family fails 1 'is for GPT-2 .*, and .* is BERT'
sed "s#\"base_model_name_or_path\": \"[^\"]*\"#\"base_model_name_or_path\": \"org/model\"#" "$tmp/c/adapter_config.json" >"$tmp/config"
cp -R "$tmp/c" "$tmp/lost"
cp "$tmp/config" "$tmp/lost/adapter_config.json"
run classify "$tmp/lost" --threads 1 text
check a-model-that-is-not-here fails 1 'org/model'
run classify "$bert" --adapter "$tmp/lost" --threads 1 'the good book'
check but-can-be-given works pos
head -c 300 "$tmp/c/adapter_model.safetensors" >"$tmp/lost/adapter_model.safetensors"
run classify "$bert" --adapter "$tmp/lost" --threads 1 text
check a-truncated-adapter fails 1 adapter_model.safetensors
exit $failed
