#!/bin/sh
# pixels.sh - pixel models from the command line: training on pictures of several kinds of files, resuming bit for bit, likelihoods,
# samples and completed pictures, what does not fit.
# shellcheck disable=SC2317 # check evaluates what it is given
. "$(dirname "$0")/lib/common.sh"
own_folder

# idx FILE COUNT SIDE: that many grey pictures, whose pixels are the bytes of sources
word() { printf '\000\000'; printf "\\$(printf %03o $(($1 >> 8)))\\$(printf %03o $(($1 & 255)))"; } # shellcheck disable=SC2059
idx() {
    { printf '\000\000\010\003'; word "$2"; word "$3"; word "$3"
      cat "$BANYAN_SOURCE"/src/graph/*.c | head -c $(($2 * $3 * $3)); } >"$tmp/$1"
}
idx train-images-idx3-ubyte 60 8
idx t10k-images-idx3-ubyte 9 8

# train OUT STEPS OPTIONS...
train() {
    out=$1 steps=$2
    shift 2
    run train --data "$tmp/train-images-idx3-ubyte" --out "$tmp/$out" --layers 2 --heads 2 --width 32 --batch-size 4 \
        --max-steps "$steps" --eval-steps 6 --save-steps 6 --warmup-steps 3 --lr-scheduler constant --threads 1 --quiet "$@"
}
same() { # A B: the runs ended alike
    for file in model.safetensors optimizer.safetensors trainer_state.json config.json preprocessor_config.json; do
        cmp "$tmp/$1/last/$file" "$tmp/$2/last/$file" || return 1
    done
}
less() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a != "" && b != "" && a < b) }'; }
near() { awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; exit !(a != "" && b != "" && d < 1e-3 && d > -1e-3) }'; }
loss() { sed -n "$2s/.*\"loss\": \\([0-9.]*\\).*/\\1/p" "$tmp/$1/metrics.jsonl"; }
has() { grep -q "$2" "$tmp/$1"; }
is_png() { [ "$(head -c 4 "$tmp/$1" | tail -c 3)" = PNG ]; }

# ---- training, and going on ----------------------------------------------------------------------------------------------
it() { # NAME OPTIONS...: a kind of model trains, is continued, measured and draws
    name=$1
    shift
    train "$name" 18 "$@"
    check "$name trains" less "$(loss "$name" 18)" "$(loss "$name" 1)"
    train "$name-again" 6 "$@"
    train "$name-again" 18 "$@"
    check "$name: a resumed run ends with the same bytes" same "$name" "$name-again"
    run eval "$tmp/$name" --data "$tmp/t10k-images-idx3-ubyte" --batch-size 4 --threads 1 --quiet --json
    check "$name is measured" works '"pictures":9'
    whole=$(sed -n 's/.*"loss":\([0-9.]*\).*/\1/p' "$tmp/out")
    run eval "$tmp/$name" --data "$tmp/t10k-images-idx3-ubyte" --batch-size 9 --threads 1 --quiet --json
    check "$name: batches do not matter" near "$whole" "$(sed -n 's/.*"loss":\([0-9.]*\).*/\1/p' "$tmp/out")"
    run inspect "$tmp/$name"
    check "the memory of $name is planned" works '^  decode '
    run generate "$tmp/$name" --samples 5 --seed 3 -o "$tmp/$name.png" --threads 1
    check "$name draws" works "5 pictures"
    check "$name draws a PNG" is_png "$name.png"
    drawn=$(sed -n 's/.* s, \([0-9.]*\) nats.*/\1/p' "$tmp/out")
    check "$name: values that are drawn are as likely as can be" less "$drawn" 5.6
    run generate "$tmp/$name" --samples 5 --seed 3 --batch-size 2 -o "$tmp/again.png" --threads 1
    check "$name draws the same in other batches" cmp "$tmp/$name.png" "$tmp/again.png"
    run generate "$tmp/$name" --samples 2 --seed 3 --complete "$tmp/t10k-images-idx3-ubyte" --limit 3 --keep 0.25 \
        -o "$tmp/half.png" --threads 1 --json
    check "$name completes pictures" works '"pictures":6,"tokens":48'
}
it imagegpt --model imagegpt --colours 12
check "the palette is saved" has imagegpt/best/preprocessor_config.json '"clusters"'
check "with a start token" has imagegpt/best/config.json '"vocab_size": 13'
check "and a position for each pixel" has imagegpt/best/config.json '"n_positions": 64'
it lines --model image-transformer --query-block 24 --local-memory 12
check "the blocks are in the configuration" has lines/best/config.json '"query_block_length": 24'
check "bits per dimension are logged" has lines/metrics.jsonl '"eval_bits_per_dim"'
it rectangles --model image-transformer --attention 2d --query-block 4x2 --local-memory 2x3 --coordinates learned --dropout 0.1
it mixture --model image-transformer --distribution dmol --mixtures 4 --query-block 24 --local-memory 12
check "the mixture is in the configuration" has mixture/best/config.json '"output_distribution": "dmol"'
it both --model image-transformer --distribution dmol --attention 2d --query-block 4x4 --local-memory 4x2 --bf16

train lines 24 --local-memory 13
check "another memory does not continue a run" fails 1 local_memory
train imagegpt 24 --colours 20
check "another palette does not continue a run" fails 1 "started with colours 12"

# ---- larger pictures -------------------------------------------------------------------------------------------------------
# squares FILE COUNT SIDE: grey pictures of squares of 2 x 2 pixels, each of one of four greys, which say nothing about each other
squares() {
    { printf '\000\000\010\003'; word "$2"; word "$3"; word "$3"
      # shellcheck disable=SC2059 # the escapes are the data
      printf "$(awk -v n="$2" -v s="$3" 'BEGIN {
          srand(n)
          for (i = 0; i < n; i++)
              for (y = 0; y < s; y++)
                  for (x = 0; x < s; x++) {
                      if (y % 2 == 0 && x % 2 == 0)
                          grey[x] = int(4 * rand()) * 80
                      printf "\\%03o", grey[x - x % 2]
                  }
      }')"; } >"$tmp/$1"
}
squares squares-idx3-ubyte 300 8
squares other-idx3-ubyte 40 8
larger() { # OUT STEPS OPTIONS...
    out=$1 steps=$2
    shift 2
    run train --model image-transformer --data "$tmp/squares-idx3-ubyte" --eval-data "$tmp/other-idx3-ubyte" --out "$tmp/$out" --layers 2 \
        --heads 2 --width 32 --query-block 16 --local-memory 16 --batch-size 8 --learning-rate 5e-3 --lr-scheduler constant --warmup-steps 20 \
        --max-steps "$steps" --eval-steps 500 --save-steps 500 --threads 1 --quiet --json "$@"
}
bits() { sed -n 's/.*"bits_per_dim":\([0-9.]*\).*/\1/p' "$tmp/out"; }
larger larger 1000 --upscale 2
check "the factor is in the configuration" has larger/best/config.json '"upscale_factor": 2'
larger larger-again 500 --upscale 2
run train --resume "$tmp/larger-again" --max-steps 1000 --threads 1 --quiet
check "a resumed run that enlarges ends with the same bytes" same larger larger-again
larger larger 1000 --upscale 4
check "a run keeps its factor" fails 1 upscale
# From nothing, a square costs two bits, which is half a bit for each of its pixels.
run eval "$tmp/larger" --data "$tmp/other-idx3-ubyte" --threads 1 --quiet --json
check "the small picture says what is in the squares" less "$(bits)" 0.1
squares small-idx3-ubyte 2 4
run generate "$tmp/larger" --upscale "$tmp/other-idx3-ubyte" --limit 2 --samples 3 --seed 1 --scale 1 -o "$tmp/larger.png" --threads 1
check "pictures are enlarged" works "6 pictures"
check "to a grid" is_png larger.png
run generate "$tmp/larger" --upscale "$tmp/other-idx3-ubyte" --limit 2 --samples 3 --seed 1 --scale 1 --batch-size 4 -o "$tmp/larger-again.png" \
    --threads 1
check "the same in other batches" cmp "$tmp/larger.png" "$tmp/larger-again.png"
run generate "$tmp/larger" --upscale "$tmp/small-idx3-ubyte" --samples 2 --seed 1 -o "$tmp/small.png" --threads 1
check "small pictures are read as they are" works "4 pictures"
run generate "$tmp/larger" --complete "$tmp/other-idx3-ubyte" --limit 2 --seed 1 -o "$tmp/half.png" --threads 1 --json
check "enlarged pictures are completed" works '"pictures":2,"tokens":32'
run inspect "$tmp/larger"
check "the memory of a model that enlarges is planned" works '^  decode '
run attention "$tmp/larger" "$tmp/larger.png" --pixel 3,3 -o "$tmp/look.png" --threads 1
check "where a pixel of a large picture looked" works 'pixel 3,3 looked'
run generate "$tmp/larger" --samples 2 -o "$tmp/x.png" --threads 1
check "no input picture" fails 2 'give pictures with --upscale'
run generate "$tmp/lines" --upscale "$tmp/other-idx3-ubyte" -o "$tmp/x.png" --threads 1
check "a model that enlarges nothing" fails 2 'trained with --upscale'
larger bad 2 --upscale 3
check "squares that do not fit" fails 1 'squares of 3'
train bad 2 --model imagegpt --upscale 2
check "a family that enlarges nothing" fails 1 'does not support super-resolution'

# ---- other data ------------------------------------------------------------------------------------------------------------
run train --model imagegpt --palette "$tmp/imagegpt" --data "$tmp/train-images-idx3-ubyte" --image-size 4 --out "$tmp/small" \
    --layers 1 --heads 1 --width 16 --batch-size 4 --max-steps 2 --threads 1 --quiet
check "a palette of another model, pictures of another size" has small/last/config.json '"n_positions": 16'
check "has the colours of that model" eval '[ "$(grep -c , "$tmp/small/last/preprocessor_config.json")" -gt 12 ]'
run train --init-from "$tmp/imagegpt/best" --data "$tmp/train-images-idx3-ubyte" --out "$tmp/more" --batch-size 4 --max-steps 2 \
    --threads 1 --quiet
check "training goes on from a model with its palette" cmp "$tmp/more/last/preprocessor_config.json" "$tmp/imagegpt/best/preprocessor_config.json"
if [ -d "$BANYAN_SHARED/data/images" ]; then
    mkdir "$tmp/folder"
    cp "$BANYAN_SHARED"/data/images/*.png "$tmp/folder"
    for model in "imagegpt --colours 20" "image-transformer --query-block 8x12 --local-memory 4x6 --attention 2d"; do
        rm -rf "$tmp/colour"
        # shellcheck disable=SC2086 # several options
        run train --model $model --data "$tmp/folder" --image-size 8 --out "$tmp/colour" --layers 1 --heads 1 --width 16 \
            --batch-size 2 --max-steps 2 --threads 1 --quiet
        check "a folder of pictures in colour: ${model%% *}" works "steps"
        run generate "$tmp/colour" --samples 2 --seed 1 -o "$tmp/colour.png" --threads 1
        check "drawn in colour: ${model%% *}" works "2 pictures"
    done
else
    echo "not run a folder of pictures: $BANYAN_SHARED/data/images is not there"
fi

# ---- what does not fit --------------------------------------------------------------------------------------------------------
rm -rf "$tmp/bad"
train bad 2 --model image-transformer --attention 2d --query-block 3x4
check "blocks that do not divide the picture" fails 1 "whole number of query blocks"
train bad 2 --model image-transformer --attention fixed
check "a pattern of another family" fails 1 1d
train bad 2 --model image-transformer --query-block 7x
check "half a block" fails 2 query-block
train bad 2 --model image-transformer --query-block 3x4
check "rows of a line" fails 1 1d
train bad 2 --model imagegpt --mixup 0.5
check "pictures that are tokens cannot be mixed" fails 1 "mixup and cutmix: only models that read pictures in patches"
train bad 2 --model image-transformer --flip 0.5
check "nor flipped" fails 1 "flips: only models"
train bad 2 --model imagegpt --objective lm
check "an objective for text" fails 1 pixels
echo "some text" >"$tmp/text.txt"
run train --model imagegpt --data "$tmp/text.txt" --out "$tmp/bad" --max-steps 2 --quiet
check "text as pictures" fails 1 text.txt
check "nothing is left of it" [ ! -e "$tmp/bad/last" ]
run generate "$tmp/lines" --samples 2 --threads 1
check "no file for the pictures" fails 2 out
run generate "$tmp/lines" "a prompt" -o "$tmp/x.png" --threads 1
check "a prompt" fails 2 prompt
run generate "$tmp/lines" --beams 3 -o "$tmp/x.png" --threads 1
check "a beam search" fails 2 beams
run generate "$tmp/lines" --complete "$tmp/missing.png" -o "$tmp/x.png" --threads 1
check "a picture that is missing" fails 1 missing.png
run generate "$tmp/lines" --complete "$tmp/text.txt" -o "$tmp/x.png" --threads 1
check "a text to complete" fails 1 text.txt
run eval "$tmp/lines" --data "$tmp/missing" --threads 1 --quiet
check "data that are missing" fails 1 missing
# ---- looking -------------------------------------------------------------------------------------------------------------------
for name in imagegpt lines rectangles mixture; do
    run attention "$tmp/$name" "$tmp/$name.png" --pixel 6,3 -o "$tmp/look.png" --threads 1
    check "$name: where a pixel looked" eval 'works "pixel 6,3 looked, 2 layers of 2 heads"'
    check "$name: drawn as a PNG" is_png look.png
done
run attention "$tmp/lines" "$tmp/lines.png" --pixel 8,0 -o "$tmp/look.png" --threads 1
check "a pixel outside of the picture" fails 1 8,0
run attention "$tmp/lines" "$tmp/lines.png" -o "$tmp/look.svg" --threads 1
check "an SVG of pixels" fails 2 PNG

cp -rL "$tmp/lines/last" "$tmp/none"
rm "$tmp/none/preprocessor_config.json"
run generate "$tmp/none" -o "$tmp/x.png" --threads 1
check "a model without a processor" fails 1 preprocessor_config.json
exit $failed
