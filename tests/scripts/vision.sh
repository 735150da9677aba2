#!/bin/bash
# vision.sh - looking into models of pictures, a teacher for DeiT, captions from the command line.
. "$(dirname "$0")/lib/common.sh"
own_folder
cd "$tmp" || exit 1

octal() { printf '\\%03o' "$@"; }

# idx NAME COUNT: IDX files of 8 x 8 pictures that are bright on the left or at the top, and their labels.
idx() {
    local pixels labels
    pixels=$(awk -v n="$2" 'BEGIN {
        srand(3)
        for (i = 0; i < n; i++)
            for (y = 0; y < 8; y++)
                for (x = 0; x < 8; x++)
                    printf "\\%03o", int(((i % 2 ? y < 4 : x < 4) ? 140 : 20) + 90 * rand())
    }')
    labels=$(awk -v n="$2" 'BEGIN { for (i = 0; i < n; i++) printf "\\%03o", i % 2 }')
    # shellcheck disable=SC2059 # the escapes are the data
    {
        printf "$(octal 0 0 8 3 0 0 0 "$2" 0 0 0 8 0 0 0 8)$pixels" >"$1-images-idx3-ubyte"
        printf "$(octal 0 0 8 1 0 0 0 "$2")$labels" >"$1-labels-idx1-ubyte"
    }
}
idx train 240
idx test 60

# train OUT OPTIONS...
train() {
    local out=$1
    shift
    run train --data train-images-idx3-ubyte --eval-data test-images-idx3-ubyte --classes left,top --layers 2 --heads 2 --width 32 \
        --patch 2 --batch-size 24 --learning-rate 3e-3 --threads 1 --quiet --json --out "$out" "$@"
}
accurate() { awk -F'"accuracy":' '{ split($2, a, ","); exit !(a[1] >= 0.95) }' out; }

# ---- a teacher ---------------------------------------------------------------------------------------------------------------
train teacher --model vit --max-steps 60
check teacher-learns accurate
student="--model deit --preset tiny-distilled --teacher teacher --save-steps 20 --flip 0.1 --lr-scheduler constant --warmup-steps 5"
# shellcheck disable=SC2086 # several options
{
    train student $student --max-steps 60
    check student-learns accurate
    check two-heads grep -q DeiTForImageClassificationWithTeacher student/best/config.json
    train torn $student --max-steps 20
    train torn $student --max-steps 60
    check student-continues cmp student/last/model.safetensors torn/last/model.safetensors
    train soft $student --max-steps 60 --distillation soft
    check soft-student-learns accurate
    check soft-is-not-hard eval '! cmp -s student/last/model.safetensors soft/last/model.safetensors'
    train soft $student --max-steps 80 --distillation hard
    check another-teaching-is-another-run fails 1 distillation
}
train none --model vit --teacher teacher --max-steps 2
check no-head-for-a-teacher fails 1 tiny-distilled
train none --model deit --preset tiny-distilled --teacher nowhere --max-steps 2
check no-such-teacher fails 2 nowhere
train none --model deit --preset tiny-distilled --teacher teacher --classes a,b --max-steps 2
check teacher-of-other-classes fails 1 'class 0'
train none --model deit --preset tiny-distilled --teacher teacher --image-size 12 --max-steps 2
check teacher-of-other-pictures fails 1 "preprocesses pictures differently"

# ---- a linear probe ----------------------------------------------------------------------------------------------------------
run train --model imagegpt --data train-images-idx3-ubyte --colours 8 --layers 2 --heads 2 --width 32 --batch-size 8 --max-steps 20 \
    --threads 1 --quiet --out igpt
check pixels-are-learned works steps
run finetune igpt --task image-classify --data train-images-idx3-ubyte --eval test-images-idx3-ubyte --freeze body --max-steps 60 \
    --learning-rate 0.05 --batch-size 24 --flip 0.1 --workers 2 --threads 1 --quiet --json --out probe
check probe-learns accurate
check probe-trains-the-head-alone eval 'grep -q "\"trained_parameters\":96," out'
check probe-is-a-classifier grep -q ImageGPTForImageClassification probe/config.json
run eval probe test-images-idx3-ubyte --threads 1
check probe-evaluates works '^accuracy '
run classify probe test-images-idx3-ubyte --threads 1
check probe-classifies [ "$(wc -l <out)" -eq 60 ]
run embed igpt test-images-idx3-ubyte --threads 1
check features-of-pixels [ "$(awk 'NF == 32' out | wc -l)" -eq 60 ]
run finetune igpt --task image-classify --data train-images-idx3-ubyte --mixup 1 --max-steps 2 --threads 1 --quiet --out blend
check colours-do-not-blend fails 1 mixup

# ---- looking -----------------------------------------------------------------------------------------------------------------
is_png() { [ "$(head -c 4 "$1" | tail -c 3)" = PNG ]; }
for what in positions filters; do
    run attention teacher --show $what -o $what.png --threads 1
    check draws-$what is_png $what.png
    run attention teacher --show $what -o $what.svg --threads 1
    check draws-$what-as-svg grep -q 'data:image/png' $what.svg
    run attention teacher --show $what --json --threads 1
    check prints-$what works '\['
done
cp positions.png one.png
run attention teacher one.png -o look.png --threads 1
check looks works '2 layers of 2 heads over 4 x 4 patches'
run attention student one.png --pixel 3,5 --layer 1 -o look.svg --threads 1
check looks-from-a-patch works '4 x 4 patches'
check names-the-heads grep -q 'layer 1, head 1' look.svg
run attention teacher one.png --json --threads 1
check prints-the-rollout works '"rollout":\['
run attention teacher one.png --pixel 8,0 --threads 1 -o look.png
check no-such-pixel fails 1 8,0
run attention teacher one.png --layer 2 --threads 1 -o look.png
check no-such-layer fails 1 '2 layers'
run attention teacher --threads 1 -o look.png
check needs-a-picture fails 2 picture
run attention teacher missing.png --threads 1 -o look.png
check missing-picture fails 1 missing.png
run attention teacher one.png --threads 1 -o look.gif
check pages-end-in-svg-or-png fails 1 look.gif

# ---- captions ----------------------------------------------------------------------------------------------------------------
printf 'file\tcaption\npositions.png\tmany small squares\nfilters.png\ta few filters\nlook.svg.png\tan orange map\n' >pairs.tsv
"$BANYAN" attention teacher one.png -o look.svg.png --threads 1 >/dev/null
# captions OUT OPTIONS...
captions() {
    local out=$1
    shift
    run train --model vision-encoder-decoder --data pairs.tsv --eval-data pairs.tsv --image-size 16 --patch 4 --layers 1 \
        --decoder-layers 1 --heads 2 --width 32 --batch-size 3 --learning-rate 5e-3 --lr-scheduler constant --warmup-steps 5 --save-steps 40 \
        --flip 0.1 --threads 1 --workers 2 --quiet --json --out "$out" "$@"
}
captions told --max-steps 80
check captions-are-learned works '"exact":1'
captions broken --max-steps 40
captions broken --max-steps 80
check captions-continue cmp told/last/model.safetensors broken/last/model.safetensors
run caption told filters.png positions.png --threads 1
check captions-are-written works 'a few filters'
run caption told filters.png --beams 3 --threads 1
check captions-by-beams works 'a few filters'
captions patches --max-steps 80 --image-size 36 --context 8 # 82 positions of a picture, 8 of a text
run caption patches filters.png --threads 1
check captions-of-more-patches-than-context works 'a few filters'
run attention told filters.png -o words.svg --threads 1
check where-words-looked works '4 tokens over 4 x 4 patches'
check words-are-titles grep -q '>filters<' words.svg
run attention told filters.png --target "many small filters" --layer 0 --head 1 -o words.png --threads 1
check words-that-are-given is_png words.png
run attention told filters.png --json --threads 1
check words-as-numbers works '"tokens":\["a","few","filters","</s>"\]'

# ---- captions by other decoders ----------------------------------------------------------------------------------------------------
for decoder in bert roberta; do
    captions $decoder --decoder $decoder --max-steps 80
    check "captions by $decoder are learned" works '"exact":1'
    captions $decoder-broken --decoder $decoder --max-steps 40
    run train --resume $decoder-broken --max-steps 80 --quiet --threads 1
    check "captions by $decoder continue" cmp $decoder/last/model.safetensors $decoder-broken/last/model.safetensors
    run caption $decoder filters.png positions.png --threads 1
    check "captions by $decoder are written" works 'a few filters'
    run caption $decoder look.svg.png --beams 3 --threads 1
    check "captions by $decoder, by beams" works 'an orange map'
    run attention $decoder filters.png -o words.svg --threads 1
    check "where words of $decoder looked" works '4 tokens over 4 x 4 patches'
    run inspect $decoder
    check "$decoder looks at pictures" works 'ViT and BERT\|ViT and RoBERTa'
    check "$decoder is named" grep -q "\"model_type\":[[:space:]]*\"$decoder\"" $decoder/best/config.json
    captions told --decoder $decoder --max-steps 80
    check "a run keeps its decoder, which is not $decoder" fails 1 "decoder gpt2, but this command asks for $decoder"
done
run train --model vit --decoder bert --data train-images-idx3-ubyte --max-steps 1 --quiet --out wrong
check decoder-of-a-classifier fails 1 'no choice of decoders'

# ---- texts and pictures in one space ---------------------------------------------------------------------------------------------
run train --model clip --data pairs.tsv --eval-data pairs.tsv --image-size 16 --patch 4 --layers 1 --heads 2 --width 32 --batch-size 3 \
    --learning-rate 3e-3 --max-steps 60 --threads 1 --quiet --json --out both
check pairs-are-learned works '"accuracy":1'
check no-tokens-of-published-models eval '! grep -q 4940 both/best/config.json && ! grep -q 50256 told/best/config.json'
run eval both --data pairs.tsv --batch-size 2 --threads 1
check pairs-beyond-whole-batches-are-counted works '^not evaluated: 1 of 3, which do not fill a batch'
run train --model clip --data pairs.tsv --image-size 16 --patch 4 --layers 1 --heads 2 --width 32 --batch-size 3 --max-steps 1 \
    --tokenizer both --threads 1 --quiet --out borrowed
check tokenizer-of-a-run cmp both/best/tokenizer.json borrowed/last/tokenizer.json
printf 'file\tcaption\nlook.svg.png\tmany small squares\npositions.png\ta few filters\nfilters.png\tan orange map\n' >wrong.tsv
run classify both look.svg.png --labels "many small squares,an orange map,a few filters" --template "{}" --top 1 --threads 1
check labels-in-words works '^an orange map'
run embed both positions.png filters.png look.svg.png --search "an orange map" --top 1 --threads 1
check search-by-words works 'look.svg.png'
run embed both "many small squares" "an orange map" --search positions.png --top 1 --threads 1
check search-by-a-picture works 'many small squares'
run attention both filters.png -o look.png --threads 1
check looks-of-the-picture-tower works '1 layer of 2 heads'
run attention both "an orange map" -o look.png --threads 1
check looks-of-the-text-tower works 'tokens'
run attention both . -o look.png --threads 1
check a-directory-has-pictures works 'patches'
for verb in attention embed; do
    run $verb both "no such picture.png" --threads 1
    check $verb-of-a-missing-picture fails 1 'no such picture.png: no such file'
done
run embed both positions.png --search . --threads 1
check search-by-one-picture fails 1 'expected one picture or text, not'
# An adapter that has learned that all is different.
run finetune both --data wrong.tsv --lora r=4,targets=all-linear --max-steps 60 --learning-rate 3e-2 --batch-size 3 --threads 1 --quiet --out other
run classify both look.svg.png --labels "many small squares,an orange map,a few filters" --template "{}" --adapter other --threads 1 --top 1
check labels-in-words-with-an-adapter works '^many small squares'
run classify both look.svg.png --threads 1
check no-labels-in-words fails 1 'a CLIPModel has no labels of its own; give some'
run classify both look.svg.png --labels "a,,b" --threads 1
check empty-label fails 1 'label 2'
run classify both look.svg.png --labels " a, b,a" --threads 1
check a-label-twice fails 1 '"a" is listed twice'
run embed both look.svg.png "an orange map" --similarity --json --threads 1
check similarities-tell-pictures-from-texts eval 'sed -n 1p out | grep -q "^{\"picture\":\"look" && sed -n 2p out | grep -q "^{\"text\":\"an"'

# ---- a tower alone, and a classifier ----------------------------------------------------------------------------------------------
run finetune both --task image-classify --data train-images-idx3-ubyte --eval test-images-idx3-ubyte --max-steps 3 --threads 1 --quiet \
    --out kinds
check a-picture-tower-learns-classes works '^accuracy '
check a-classifier-is-one grep -q '"CLIPForImageClassification"' kinds/config.json
run finetune kinds --data train-images-idx3-ubyte --max-steps 2 --threads 1 --quiet --out kinds-on
check a-classifier-of-clip-learns-on works '^2 steps'
run finetune --resume kinds --max-steps 5 --quiet --threads 1
check a-classifier-of-clip-continues works '^2 steps'
mkdir unnamed && cp kinds/*.json kinds/model.safetensors unnamed
sed '/^  "model_type"/d' kinds/config.json >unnamed/config.json
run classify unnamed filters.png --threads 1
cp out unnamed.out
run classify kinds filters.png --threads 1
check a-classifier-of-clip-is-found-by-its-class cmp out unnamed.out
run finetune both --data train-images-idx3-ubyte --task image-classify --lora r=2 --max-steps 2 --threads 1 --quiet --out kinds-lora
check an-adapter-of-a-picture-tower works '^2 steps'
# PEFT's class for SEQ_CLS would pass inputs of texts to a model of pictures
check pictures-are-no-task-of-texts grep -q '"task_type":[[:space:]]*null' kinds-lora/adapter_config.json
run embed kinds filters.png --threads 1
check vector-of-a-classifier eval '[ $rc -eq 0 ] && [ "$(wc -w <out)" -eq 32 ]'
run embed "$BANYAN_SOURCE/tests/data/cases/clip-vision" filters.png --threads 1
check vector-of-a-picture-tower eval '[ $rc -eq 0 ] && [ "$(wc -w <out)" -eq 8 ]'
cp out class-token
run embed "$BANYAN_SOURCE/tests/data/cases/clip-vision" filters.png --pooling mean --threads 1
check mean-of-a-picture-tower eval '[ $rc -eq 0 ] && [ "$(wc -w <out)" -eq 8 ] && ! cmp -s out class-token'
mkdir text-tower && cp "$BANYAN_SOURCE"/tests/data/cases/clip-text/* text-tower && cp both/best/tokenizer* text-tower
run embed text-tower "many small squares" --threads 1
check vector-of-a-text-tower eval '[ $rc -eq 0 ] && [ "$(wc -w <out)" -eq 6 ]'
run attention "$BANYAN_SOURCE/tests/data/cases/clip-vision" filters.png -o look.png --threads 1
check looks-of-a-tower-alone works '2 layers of 2 heads over 2 x 2 patches'
run eval text-tower --data pairs.tsv --threads 1
check no-head-to-measure fails 1 'a CLIPTextModelWithProjection has no head that eval measures'
run finetune "$BANYAN_SOURCE/tests/data/cases/clip-vision" --task image-classify --data train-images-idx3-ubyte --out none
check no-head-of-a-tower fails 1 'CLIP picture encoder .* has no head for "classify"'
run train --model clip_text_model --data pairs.tsv --max-steps 1 --out none
check no-new-tower fails 1 'unknown model family "clip_text_model"'

# ---- an encoder and a decoder ---------------------------------------------------------------------------------------------------
printf 'many small squares\na few filters\nan orange map\n' >captions.txt
run train --model gpt2 --data captions.txt --eval-data captions.txt --tokenizer bpe:300 --layers 2 --heads 2 --width 24 --context 32 \
    --batch-size 2 --max-steps 3 --threads 1 --quiet --out writer
head -n 2 pairs.tsv >two.tsv
tail -n 1 pairs.tsv >>two.tsv
run convert teacher joined --decoder writer
check parts-are-joined works 'Vision encoder-decoder'
run inspect joined
check widths-are-joined works 'enc_to_dec_proj'
run finetune joined --task caption --data two.tsv --eval two.tsv --max-steps 100 --learning-rate 1e-2 --batch-size 2 --threads 1 \
    --quiet --json --out joined-told
check joined-model-learns works '"exact":1'
run caption joined-told look.svg.png --threads 1
check joined-model-writes works 'an orange map'
# Encoders of texts become decoders. BERT's configuration names no tokens; the tokenizer does.
for decoder in bert roberta; do
    kind=wordpiece
    [ $decoder = bert ] || kind=bpe
    run train --model $decoder --objective mlm --data captions.txt --eval-data captions.txt --tokenizer $kind:300 --layers 2 --heads 2 \
        --width 24 --context 32 --seq 8 --batch-size 2 --max-steps 3 --threads 1 --quiet --out reads-$decoder
    run convert teacher joined-$decoder --decoder reads-$decoder
    check "parts are joined, $decoder" works 'Vision encoder-decoder'
    run finetune joined-$decoder --task caption --data two.tsv --eval two.tsv --max-steps 200 --learning-rate 1e-2 --batch-size 2 --threads 1 \
        --quiet --json --out $decoder-told
    check "a joined model learns, $decoder" works '"exact":1'
    run caption $decoder-told look.svg.png --threads 1
    check "a joined model writes, $decoder" works 'an orange map'
done
run convert teacher wrong --decoder both
check decoder-of-pictures-and-texts fails 1 'not a language model'
# A model that learns wrong captions is best at first. Memory that is freed is overwritten, so that nobody can still read it.
awk -F'\t' 'NR > 1 { file[NR] = $1; text[NR] = $2 } END { print "file\tcaption"; print file[2] "\t" text[3]; print file[3] "\t" text[2] }' two.tsv >wrong.tsv
MALLOC_PERTURB_=191 run finetune joined-told --task caption --data wrong.tsv --eval two.tsv --max-steps 30 --eval-steps 2 --learning-rate 3e-3 \
    --lr-scheduler constant --warmup-steps 0 --batch-size 2 --threads 1 --quiet --json --out spoilt
check best-captions-are-not-the-last works '"best_step":[2468],.*"exact":\(1\|0.5\),' # of two captions
run convert teacher wrong --decoder teacher
check decoder-of-no-texts fails 1 'not a language model'
run convert writer wrong --decoder writer
check encoder-of-no-pictures fails 1 'does not read pictures'
check nothing-is-left [ ! -e wrong ]
exit $failed
