#!/bin/bash
# Options that would change nothing: those of other families, objectives, tasks, methods and models are refused by name, before anything
# is written. What a run that goes on has recorded is not asked for again.
. "$(dirname "$0")/lib/common.sh"
own_folder
cd "$tmp" || exit 1

awk 'BEGIN { for (i = 0; i < 400; i++) print "the number", (i * 7919) % 100, "comes after", (i * 31) % 50 }' >text
awk 'BEGIN { print "text\tlabel"; for (i = 0; i < 40; i++) printf "number %d\t%s\n", i, i % 2 ? "odd" : "even" }' >table.tsv
awk 'BEGIN { for (i = 0; i < 20; i++) printf "{\"prompt\": \"%d=\", \"answer\": \"%d\", \"completion\": \"%d\"}\n", i, i % 10, i % 10 }' >prompts.jsonl
awk 'BEGIN { for (i = 0; i < 20; i++) printf "{\"prompt\": \"%d=\", \"chosen\": \"%d\", \"rejected\": \"x\"}\n", i, i % 10 }' >preferences.jsonl
awk 'BEGIN { for (i = 0; i < 20; i++) printf "{\"text\": \"the number %d\"}\n", i }' >texts.jsonl
mkdir pictures
for class in dark light; do # grey PNGs of 8 x 8 pixels, made by a pixel model of 8 x 8 raw ones
    printf '\0\0\10\3\0\0\0\10\0\0\0\10\0\0\0\10' >pictures/$class-images-idx3-ubyte
    printf '\0\0\10\1\0\0\0\10' >pictures/$class-labels-idx1-ubyte
    awk -v class=$class 'BEGIN { for (i = 0; i < 512; i++) printf "%c", 65 + (i * 7) % 26 + (class == "light" ? 32 : 0) }' >>pictures/$class-images-idx3-ubyte
    awk -v class=$class 'BEGIN { for (i = 0; i < 8; i++) printf "%c", i % 2 + 1 }' | tr '\1\2' '\0\1' >>pictures/$class-labels-idx1-ubyte
done
tiny="--layers 1 --width 16 --max-steps 2 --threads 1 --quiet"

# shellcheck disable=SC2086 # several options
make() { run train --out "$@" $tiny; }
make gpt --data text --heads 2 --context 16
check "a language model" works model
make vit --model vit --heads 2 --data pictures/dark-images-idx3-ubyte pictures/light-images-idx3-ubyte --eval-data pictures/dark-images-idx3-ubyte
check "a classifier of pictures" works model
make lstm --model lstm --data text --context 16
check "a recurrent model" works model
make pixels --model image-transformer --heads 2 --data pictures/dark-images-idx3-ubyte
check "a pixel model" works model
make colours --model imagegpt --heads 2 --colours 4 --data pictures/dark-images-idx3-ubyte
check "a model of colours" works model
run generate pixels --samples 1 --seed 1 --scale 1 -o drawn.png --threads 1
check "a picture" [ -s drawn.png ]
mkdir folder folder/a folder/b
cp drawn.png folder/a && cp drawn.png folder/b
printf 'file\tcaption\ndrawn.png\tone\nfolder/a/drawn.png\ttwo\nfolder/b/drawn.png\tthree\n' >pairs.tsv
make translator --model transformer --heads 2 --tokenizer bpe:300 --data text text
check "a translator" works model
run finetune gpt --data table.tsv --max-steps 1 --out labels --threads 1 --quiet
check "a classifier of texts" works model

# shellcheck disable=SC2086 # several options
no() { # CODE MESSAGE VERB OPTIONS...: nothing is written
    local code=$1 message=$2 verb=$3
    shift 3
    case $verb in train | finetune | distill | align) set -- "$@" --out none --max-steps 1 ;; esac
    run $verb "$@" --threads 1
    check "$verb: $message" fails "$code" "$message"
    check "$verb: nothing is written" [ ! -e none/last ]
}

no 2 "--heads: LSTM .* has no attention heads" train --model lstm --data text --heads 2
no 2 "--inner: .* has no feed-forward width of its own" train --model gru --data text --inner 8
no 2 "--memory: .* has no memory of earlier segments" train --model rnn --data text --memory 0
no 2 "--pre-norm: GPT-2 .* has its norms in one place" train --data text --no-pre-norm
no 2 "--batch-tokens is for translate, not for the objective \"lm\"" train --data text --batch-tokens 100
no 2 "--mask-share is for objectives that mask or cut" train --data text --mask-share 0.2
no 2 "--workers is for pictures" train --data text --workers 2
no 2 "--classes is for classes of pictures" train --data text --classes a,b
no 2 "--colours is for pixel models" train --data text --colours 4
no 2 "--distillation needs --teacher" train --data text --distillation soft
no 2 "--momentum is for --optimizer sgd" train --data text --momentum 0.5
no 2 "--adam-beta2 is for --optimizer adamw" train --data text --optimizer sgd --adam-beta2 0.9
no 2 "--min-learning-rate is for --lr-scheduler" train --data text --lr-scheduler constant --min-learning-rate 0
no 2 "--seq is for texts" train --model vit --data pictures --seq 4
no 2 "--average is for texts" train --model vit --data pictures --average 2
no 2 "--show-batch is for texts" train --model vit --data pictures --show-batch 1
no 2 "--workers is for pictures" train --model imagegpt --data pictures --workers 2
no 2 "--tokenizer is for texts and captions" train --model imagegpt --data pictures --tokenizer byte
no 1 "predicts channel values, not colours" train --model image-transformer --data pictures/dark-images-idx3-ubyte --colours 4
no 2 "--decoder-layers: GPT-2 .* has no decoder" train --data text --decoder-layers 2
no 2 "--context: ViT .* has no context" train --model vit --data pictures --context 9
no 1 "the context is a picture of 64 tokens, not 99" train --model imagegpt --data pictures/dark-images-idx3-ubyte --context 99
no 2 "--eval-fraction and --eval-data exclude each other" train --data text --eval-data text --eval-fraction 0.2
no 2 "--eval-fraction and --eval exclude each other" align gpt --method sft --data prompts.jsonl --eval prompts.jsonl --eval-fraction 0.2
no 2 "--layers is for new models" train --init-from gpt --data text --layers 2
no 2 "--init-std is for new models" train --init-from gpt --data text --init-std 0.1
no 1 "T5 .* has no single standard deviation" train --model t5 --data text --tokenizer byte --init-std 0.1
no 2 "is of the family gpt2" train --init-from gpt --model bert --data text

# Data and models of pictures that have no use for an option.
dark="--data pictures/dark-images-idx3-ubyte"
# shellcheck disable=SC2086 # several options
{
    no 1 "only CIFAR-100 has superclasses" train --model vit $dark --coarse
    no 1 "only CIFAR-100 has superclasses" eval vit $dark --coarse
    no 1 "columns and headers are for lists" train --model vit $dark --label-column x
    no 1 "columns and headers are for lists" train --model imagegpt $dark --file-column x
    no 1 "columns and headers are for lists" finetune vit $dark --header no
    no 1 "class names are for IDX and CIFAR files" train --model vit --data folder --classes a,b
    no 1 "grey pictures have no hue" train --model vit $dark --hue 0.1
    no 1 "has no variant \"dot\"" train --model vit $dark --attention dot
    no 1 "reads no patches of pictures" train --model imagegpt $dark --patch 2
    no 1 "reads no channels of pictures" train --model imagegpt $dark --channels 1
    no 1 "CLIP .* has no stochastic depth" train --model clip --data pairs.tsv --image-size 8 --drop-path 0.1
    no 1 "ImageGPT .* has no stochastic depth" finetune colours --task image-classify $dark --drop-path 0.1
    no 1 "pairs have no targets to smooth" train --model clip --data pairs.tsv --image-size 8 --label-smoothing 0.1
    no 1 "patience requires evaluation data" finetune vit $dark --patience 2
}
no 2 "--batch-size is for rows of one length (translate: --batch-tokens)" train --model transformer --data text text --batch-size 3

no 2 "--workers is for pictures, not for the task classify" finetune gpt --data table.tsv --workers 2
no 2 "--batch-tokens is for seq2seq" finetune gpt --data table.tsv --batch-tokens 99
no 2 "--pair is for classify" finetune vit --data pictures --pair x
no 2 "--max-length is for texts" finetune vit --data pictures --max-length 9
no 1 "predictions need evaluation data" finetune vit --data pictures/dark-images-idx3-ubyte --predictions p

no 2 "are for a new student" distill gpt --data text --width 8
no 2 "--heads: GRU" distill gpt --data text --student gru --heads 2
no 2 "--layers and --student-layers exclude each other" distill gpt --data text --layers 1 --student-layers 0
no 2 "--prefix is for translate, not for text" distill gpt --data text --prefix a
no 2 "--text is for examples, not for text" distill gpt --data text --text a
no 2 "--beams needs --sequence" distill gpt --data text --beams 3
no 2 "--store-top needs --store-logits" distill gpt --data text --store-top 3
no 2 "--choices is for choice, not for the task classify" distill labels --data table.tsv --choices a,b
no 2 "--null-threshold is for answer" distill labels --data table.tsv --null-threshold 1
no 1 "the model has one label per text" distill labels --data table.tsv --label-separator ,
no 2 "--batch-size is for text, examples and vectors" distill translator --data text,text --batch-size 3
no 1 "no masked positions" distill gpt --data text --layers 1 --soft-at-masked
no 1 "a layer map is for terms of all layers" distill gpt --data text --layers 1 --layer-map 1
no 1 "sentence vectors are compared in runs of" distill gpt --data text --layers 1 --vector-cosine 1
no 1 "sentence vectors have no distributions" distill gpt --data text --layers 1 --task vectors --soft 1
no 2 "--temperature is for text, examples and translate, not for vectors" distill gpt --data text --task vectors --temperature 3
no 1 "has no head that \"translate\" could learn from" distill gpt --data text --layers 1 --task translate

no 2 "--reference counts only with --beta above 0" align gpt --method grpo --data prompts.jsonl --reward exact --reference gpt
no 1 "a context of 16 tokens has no room for a prompt and an answer of 16" align gpt --method rloo --data prompts.jsonl --reward exact --max-new-tokens 16
no 2 "--kl-target adapts --beta" align gpt --method ppo --data prompts.jsonl --reward exact --beta 0 --kl-target 1
no 2 "--kl-horizon needs --kl-target" align gpt --method ppo --data prompts.jsonl --reward exact --kl-horizon 10
no 1 "patience requires evaluation data" align gpt --method sft --data texts.jsonl --patience 2
no 1 "label smoothing is for the losses sigmoid, robust, exo_pair, aot and aot_unpaired, not for hinge" align gpt --method dpo --loss hinge \
    --label-smoothing 0.1 --data preferences.jsonl
no 2 "--greedy-eval needs --eval" align gpt --method rloo --data prompts.jsonl --reward exact --greedy-eval
no 1 "alignment is for decoders of texts, not for ViT" align vit --method sft --data prompts.jsonl
no 1 "alignment is for decoders of texts, not for Image" align pixels --method grpo --reward exact --data prompts.jsonl

no 2 "--per-class is for models that classify pictures" eval gpt text --per-class
no 2 "--pair is for labelled texts" eval gpt text --pair x
no 2 "--metric is for encoder-decoders" eval gpt text --metric bleu
no 1 "columns and headers are for lists" eval vit pictures/dark-images-idx3-ubyte --label x
no 1 "columns and headers are for lists" eval pixels pictures/dark-images-idx3-ubyte --header no
no 2 "--beams is for encoder-decoders" eval vit pictures/dark-images-idx3-ubyte --beams 2
no 2 "--seq is for language models" eval pixels pictures/dark-images-idx3-ubyte --seq 5
no 2 "--keep is for pixel models" generate gpt -p a --keep 0.5
no 1 "a ViTForImageClassification writes no texts" generate vit -p a
no 2 "--show is for models of patches" attention gpt "the number" --show filters
no 2 "--target is for encoder-decoders" attention vit pictures/x.png --target a
no 1 "--template needs --labels" classify vit pictures/dark-images-idx3-ubyte --template "a {}"
no 1 "--threshold is for multi-label models" classify vit pictures/dark-images-idx3-ubyte --threshold 0.4
no 1 "the name of a picture must end in .svg or .png" eval vit pictures/dark-images-idx3-ubyte --confusion x.bmp
no 2 "--top needs --search" embed gpt --top 3 a
no 2 "exclude each other" embed gpt --search a --similarity b

for verb in classify embed tag fill answer caption translate; do
    run $verb gpt a b -f text
    check "$verb: inputs from one place" fails 2 "--file and inputs on the command line exclude each other"
done
no 2 "--pair is for texts that are read together" attention vit drawn.png --pair a
no 2 "--keep needs --complete" generate pixels --keep 0.3 -o x.png
no 2 "--limit needs --complete or --upscale" generate pixels --limit 3 -o x.png
no 1 "--max-length is for texts" embed vit drawn.png --max-length 3
make both --model clip --heads 2 --image-size 8 --data pairs.tsv
check "a model of texts and pictures" works model
no 1 "--pooling is not for models of texts and pictures" embed both drawn.png --pooling max

# An empty name is not the directory that one is in.
run train --data text --out "" --max-steps 1
check "an empty run folder" fails 2 "--out is empty; it needs a value (DIR)"
run align gpt --method sft --data "" --out none
check "empty data" fails 2 "--data is empty"
cp -r gpt/best/. .
run generate "" -p "the number"
check "an empty model" fails 1 "the model name is empty"
rm config.json

# What is recorded does not count as asked for.
for name in gpt lstm vit pixels; do
    run train --out $name --max-steps 3 --threads 1 --quiet
    check "a run goes on: $name" works model
done
run train --model vit --data pictures/dark-images-idx3-ubyte --out gpt --threads 1
check "a run of another family" fails 1 "started with family gpt2, but this command asks for vit"
run train --recipe shakespeare-char-cpu --optimizer sgd --data text --out recipe --max-steps 1 --threads 1 --quiet
check "options of a recipe do not count either" works model

exit $failed
