#!/bin/bash
# images.sh - pictures from the command line: a Vision Transformer learns three patterns from IDX files, is killed and continues bit by bit with
# any number of threads, is evaluated and fine-tuned; and what is said when something is wrong.
. "$(dirname "$0")/lib/common.sh"
own_folder
cd "$tmp" || exit 1

# octal BYTES...: numbers as the escapes of printf.
octal() { printf '\\%03o' "$@"; }

# patterns NAME COUNT SEED: IDX files of noisy 8 x 8 pictures, bright on the left, at the top or in the middle, and their labels.
patterns() {
    local pixels labels
    pixels=$(awk -v n="$2" -v seed="$3" 'BEGIN {
        srand(seed)
        for (i = 0; i < n; i++)
            for (y = 0; y < 8; y++)
                for (x = 0; x < 8; x++) {
                    k = i % 3
                    lit = k == 0 ? x < 4 : k == 1 ? y < 4 : x > 1 && x < 6 && y > 1 && y < 6
                    printf "\\%03o", int((lit ? 140 : 20) + 90 * rand())
                }
    }')
    labels=$(awk -v n="$2" 'BEGIN { for (i = 0; i < n; i++) printf "\\%03o", i % 3 }')
    # shellcheck disable=SC2059 # the escapes are the data
    {
        printf "$(octal 0 0 8 3 0 0 $(($2 / 256)) $(($2 % 256)) 0 0 0 8 0 0 0 8)$pixels" >"$1-images-idx3-ubyte"
        printf "$(octal 0 0 8 1 0 0 $(($2 / 256)) $(($2 % 256)))$labels" >"$1-labels-idx1-ubyte"
    }
}
patterns train 360 1
patterns test 90 2
gzip -c train-images-idx3-ubyte >packed-images-idx3-ubyte.gz
cp train-labels-idx1-ubyte packed-labels-idx1-ubyte

steps=40
# run_train OUT OPTIONS...: become a run with all that augmentation has, averaged weights, label smoothing and stochastic depth. train: the same
# in a process of its own. What it says goes to ./log.
run_train() {
    local out=$1
    shift
    exec "$BANYAN" train --model vit --data train-images-idx3-ubyte --eval-data test-images-idx3-ubyte --classes left,top,middle \
        --layers 2 --heads 2 --width 32 --patch 2 --batch-size 24 --learning-rate 3e-3 --max-steps $steps --eval-steps 20 \
        --save-steps 10 --crop-padding 1 --randaugment rand-m3-mstd0.5-inc1 --color-jitter 0.2 --erase 0.1 --mixup 0.2 --cutmix 1 \
        --label-smoothing 0.1 --drop-path 0.1 --dropout 0.1 --average-decay 0.9 --threads 1 --quiet --out "$out" "$@" >log 2>&1
}
train() { (run_train "$@"); }

# same A B: two runs ended alike.
same() {
    local file
    for file in model averaging optimizer; do
        cmp "$1/last/$file.safetensors" "$2/last/$file.safetensors" || return 1
    done
    cmp "$1/last/preprocessor_config.json" "$2/last/preprocessor_config.json"
}

# ---- training ----------------------------------------------------------------------------------------------------------
check trains train whole --workers 2 --json
check prints-the-wait grep -q '"data_wait":' log
check logs-the-wait grep -q '"data_wait"' whole/metrics.jsonl
check leaves-a-processor grep -q '"image_mean"' whole/best/preprocessor_config.json
check names-classes grep -q '"middle"' whole/best/config.json

run train --model vit --data packed-images-idx3-ubyte.gz --eval-data test-images-idx3-ubyte --layers 2 --heads 2 --width 32 --patch 2 \
    --batch-size 24 --learning-rate 5e-3 --max-steps 150 --crop-padding 1 --average-decay 0.9 --threads 1 --quiet --json --out plain
check learns awk -F'"accuracy":' '{ split($2, a, ","); exit !(a[1] >= 0.95) }' out

# killed OUT: a run of one worker dies by kill -9 after its second checkpoint, and continues with four.
killed() {
    run_train "$1" --workers 1 &
    local child=$!
    while kill -0 $child 2>/dev/null && [ ! -e "$1/checkpoint-000020" ]; do sleep 0.02; done
    kill -9 $child 2>/dev/null
    wait $child 2>/dev/null
    [ -e "$1/checkpoint-000020" ] || return 1
    train "$1" --workers 4
}
check killed-run-continues killed torn 2>/dev/null
check killed-run-ends-alike same whole torn
check threads-do-not-matter train threads --workers 3
check same-with-other-threads same whole threads
train seed --workers 2 --seed 7
check seeds-do-matter eval '! cmp -s whole/last/model.safetensors seed/last/model.safetensors'
check another-augmentation-is-another-run eval '! train whole --flip 0.5 && grep -q flip log'

# ---- evaluation --------------------------------------------------------------------------------------------------------
run eval whole test-images-idx3-ubyte --per-class --confusion matrix.svg --predictions guesses.jsonl --threads 1
check evaluates works '^accuracy '
check each-class works '^middle '
check matrix-is-drawn grep -q '</svg>' matrix.svg
check predictions-of-all [ "$(grep -c '"actual"' guesses.jsonl)" -eq 90 ]
run eval whole test-images-idx3-ubyte --confusion matrix.png --json --threads 1
check evaluates-json works '"confusion":\[\['
check matrix-as-png eval 'head -c 4 matrix.png | grep -q PNG'
run eval whole test-images-idx3-ubyte --confusion matrix.gif --threads 1
check matrix-needs-an-ending fails 1 matrix.gif

# ---- fine-tuning -------------------------------------------------------------------------------------------------------
run finetune whole --task image-classify --data packed-images-idx3-ubyte.gz --eval test-images-idx3-ubyte --image-size 12 \
    --layer-decay 0.8 --max-steps 12 --out tuned --threads 1 --quiet
check tunes-at-another-size works '^accuracy '
run finetune whole --task image-classify --data packed-images-idx3-ubyte.gz --eval test-images-idx3-ubyte --image-size 12 \
    --layer-decay 0.8 --max-steps 12 --out tuned --threads 1 --quiet --dropout 0.3
check tuning-refuses-another-dropout fails 1 'started with dropout 0.1, but this command asks for 0.3'
check new-head grep -q '"2": "2"' tuned/config.json
check new-size grep -q '"height": 12' tuned/preprocessor_config.json
run eval tuned test-images-idx3-ubyte --threads 1
check tuned-model-evaluates works '^accuracy '
run finetune whole --task image-classify --data train-images-idx3-ubyte --freeze body --max-steps 3 --out frozen --threads 1 --quiet --json
# the head has 3 x 32 weights and 3 biases, the norm before it 2 x 32
check frozen-body eval 'grep -q "\"trained_parameters\":163," out'

run finetune whole --data train-images-idx3-ubyte --max-steps 2 --out guessed --threads 1 --quiet
check a-model-of-pictures-says-its-task works '^2 steps'
# a body with another head: that of masked image modelling
mkdir -p masked && cp guessed/model.safetensors guessed/preprocessor_config.json masked
sed 's/ViTForImageClassification/ViTForMaskedImageModeling/' guessed/config.json >masked/config.json
run finetune masked --data train-images-idx3-ubyte --max-steps 2 --out unmasked --threads 1 --quiet
check a-masked-model-begins works '^2 steps'
run finetune whole --task caption --data list.tsv --out other
check no-captions-from-a-classifier fails 1 'a ViTForImageClassification learns the classes of pictures, not captions'
run finetune "$BANYAN_SOURCE/tests/data/verify/caption" --task image-classify --data train-images-idx3-ubyte --out other
check no-classes-from-captions fails 1 'a VisionEncoderDecoderModel learns captions, not the classes of pictures'
mkdir -p clip && echo '{"model_type": "clip", "architectures": ["CLIPForImageSegmentation"]}' >clip/config.json
cp whole/best/model.safetensors clip
run eval clip --data list.tsv
check names-each-class-once fails 1 'clip supports: CLIPModel, CLIPForImageClassification$'
run distill whole --data train-images-idx3-ubyte --max-steps 2 --out none --threads 1 --quiet
check no-distillation-of-pictures fails 1 'a ViTForImageClassification reads pictures, and distillation runs on text'
run tokenize whole text
check no-tokenizer-of-pictures fails 1 'no tokenizer: tokenizer.json is missing'

# ---- errors ------------------------------------------------------------------------------------------------------------
# refuse TEXT OPTIONS...: a run that cannot begin says why and leaves nothing.
refuse() {
    local text=$1
    shift
    "$BANYAN" train --model vit --width 32 --heads 2 --layers 1 --max-steps 2 --threads 1 --out none "$@" >log 2>&1
    [ $? -ne 0 ] && grep -q -e "$text" log && [ ! -e none ]
}
check no-labels refuse 'no label file' --data "$(cp train-images-idx3-ubyte lone-images-idx3-ubyte; echo lone-images-idx3-ubyte)"
head -c 1000 train-images-idx3-ubyte >cut-images-idx3-ubyte
check truncated refuse 'cut-images-idx3-ubyte: the file is truncated' --data cut-images-idx3-ubyte
check patches-do-not-fit refuse 'whole number of patches' --data train-images-idx3-ubyte --patch 3
check no-such-augmentation refuse 'not a RandAugment setting' --data train-images-idx3-ubyte --randaugment rand-x9
check no-objective refuse 'the objective "mlm" is for text' --data train-images-idx3-ubyte --objective mlm
check no-tokenizer refuse 'a classifier of pictures needs no other tokenizer' --data train-images-idx3-ubyte --tokenizer char
printf 'file\tkind\na.png\t1\n' >list.tsv
check names-the-option-of-a-column refuse 'name the column with --label-column' --data list.tsv
printf '{"file_name": 5, "label": "a"}\n' >number.jsonl
check a-file-that-is-a-number refuse 'line 1: no key "file_name" with a string' --data number.jsonl
check no-names-file refuse '^banyan train: cannot open nowhere' --data train-images-idx3-ubyte --classes nowhere
mkdir -p named/x named/y
# shellcheck disable=SC2059 # the escapes are the data
printf "GIF89a$(octal 1 0 1 0 128 0 0 10 20 30 40 50 60 44 0 0 0 0 1 0 1 0 0 2 2 76 1 0 59)" | tee named/x/1.gif >named/y/1.gif
check no-names-of-a-folder refuse 'class names are for IDX and CIFAR files' --classes a,b --data named
check no-superclasses-of-a-folder refuse 'only CIFAR-100 has superclasses' --coarse --data named
check no-pictures refuse 'no PNG, JPEG, WebP or GIF' --data "$(mkdir -p empty && echo empty)"
run eval whole "$BANYAN_SOURCE/README.md" --threads 1
check not-pictures fails 1 README.md
exit $failed
