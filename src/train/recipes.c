/* recipes.c - published set-ups by name, as options of `banyan train` (banyan/train.h, docs/RECIPES.md). */
#include "banyan/train.h"

#include "base/base.h"

static const by_recipe recipes[] = {
    {"multi30k", "English to German on 29,000 captions, about ten minutes on two cores",
     "--model transformer --pre-norm --layers 3 --width 256 --heads 4 --inner 512 --dropout 0.15 --tokenizer "
     "bpe:6000 --batch-tokens 2048 --label-smoothing 0.1 --learning-rate 2e-3 --warmup-steps 500 "
     "--adam-beta2 0.98 --weight-decay 0.0001 --epochs 10"},
    {"multi30k-gru", "the same captions with recurrent layers and additive attention",
     "--model rnn-seq2seq --preset small --cell gru --attention additive --dropout 0.3 --tokenizer bpe:6000 "
     "--batch-tokens 2048 --label-smoothing 0.1 --learning-rate 2e-3 --warmup-steps 500 --epochs 8 --average "
     "3 --bf16"},
    {"transformer-base", "Vaswani et al. 2017, the base model of WMT",
     "--model transformer --no-pre-norm --layers 6 --width 512 --heads 8 --inner 2048 --dropout 0.1 "
     "--tokenizer bpe:37000 --batch-tokens 25000 --label-smoothing 0.1 --learning-rate 7e-4 --lr-scheduler "
     "inverse-sqrt --warmup-steps 4000 --adam-beta2 0.98 --adam-epsilon 1e-9 --weight-decay 0 "
     "--max-grad-norm 0 --max-steps 100000 --average 5"},
    {"transformer-big", "Vaswani et al. 2017, the big model",
     "--model transformer --no-pre-norm --layers 6 --width 1024 --heads 16 --inner 4096 --dropout 0.3 "
     "--tokenizer bpe:37000 --batch-tokens 25000 --label-smoothing 0.1 --learning-rate 5e-4 --lr-scheduler "
     "inverse-sqrt --warmup-steps 4000 --adam-beta2 0.98 --adam-epsilon 1e-9 --weight-decay 0 "
     "--max-grad-norm 0 --max-steps 300000 --average 20"},
    {"shakespeare-char", "nanoGPT's character model of Shakespeare, for a GPU",
     "--model gpt2 --tokenizer char --layers 6 --heads 6 --width 384 --context 256 --init-std 0.02 "
     "--dropout 0.2 --batch-size 64 --learning-rate 1e-3 --min-learning-rate 1e-4 --warmup-steps 100 "
     "--adam-beta2 0.99 --weight-decay 0.1 --max-steps 5000"},
    {"shakespeare-char-cpu", "the same, small enough for a laptop",
     "--model gpt2 --tokenizer char --layers 4 --heads 4 --width 128 --context 64 --init-std 0.02 "
     "--dropout 0 --batch-size 12 --learning-rate 1e-3 --min-learning-rate 1e-4 --warmup-steps 100 "
     "--adam-beta2 0.99 --weight-decay 0.1 --max-steps 2000"},
    {"gpt2-124m", "nanoGPT's reproduction of GPT-2 124M, half a million tokens per step",
     "--model gpt2 --preset 124m --dropout 0 --batch-size 12 --gradient-accumulation-steps 40 "
     "--learning-rate 6e-4 --min-learning-rate 6e-5 --warmup-steps 2000 --adam-beta2 0.95 --weight-decay 0.1 "
     "--max-steps 600000 --bf16"},
    {"bert-base", "Devlin et al. 2019: masked words and next sentences",
     "--model bert --preset base --objective nsp --dropout 0.1 --batch-size 256 --learning-rate 1e-4 "
     "--min-learning-rate 0 --lr-scheduler linear --warmup-steps 10000 --adam-beta2 0.999 --weight-decay "
     "0.01 --max-steps 1000000"},
    {"roberta-base", "Liu et al. 2019: full sentences, dynamic masks, batches of 8,192",
     "--model roberta --preset base --dropout 0.1 --batch-size 64 --gradient-accumulation-steps 128 "
     "--learning-rate 6e-4 --min-learning-rate 0 --lr-scheduler linear --warmup-steps 24000 --adam-beta2 "
     "0.98 --adam-epsilon 1e-6 --weight-decay 0.01 --max-grad-norm 0 --max-steps 500000"},
    {"t5-base", "Raffel et al. 2020: corrupted spans, Adafactor",
     "--model t5 --preset base --objective spans --dropout 0.1 --batch-size 128 --seq 512 --optimizer "
     "adafactor --learning-rate 0.01 --lr-scheduler inverse-sqrt --warmup-steps 10000 --max-steps 524288"},
};

const by_recipe *by_recipe_at(int i)
{
    return i >= 0 && i < BY_COUNT(recipes) ? &recipes[i] : NULL;
}

const by_recipe *by_recipe_find(const char *name)
{
    base_buf known = {0};
    for (int i = 0; i < BY_COUNT(recipes); i++) {
        if (name && strcmp(recipes[i].name, name) == 0) {
            base_buf_free(&known);
            return &recipes[i];
        }
        base_buf_printf(&known, "%s%s", i ? ", " : "", recipes[i].name);
    }
    base_fail(BY_ERR_ARGUMENT, "unknown recipe \"%s\"; available: %s", name ? name : "",
              known.data ? known.data : "none");
    base_buf_free(&known);
    return NULL;
}
