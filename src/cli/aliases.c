/* aliases.c - option names of other programs: transformers (run_clm.py, TrainingArguments, generate),
 * llama.cpp and nanoGPT. One table serves all verbs; an entry applies to verbs that have one of its
 * options. */
#include "cli/options.h"

typedef struct synonym {
    const char *typed;
    const char *names; /* the first of them that the verb has */
} synonym;

static const synonym synonyms[] = {
    /* transformers */
    {"num-train-epochs", "epochs"},
    {"max-train-steps", "max-steps"},
    {"per-device-train-batch-size", "batch-size"},
    {"train-batch-size", "batch-size"},
    {"per-device-eval-batch-size", "eval-batch-size|batch-size"},
    {"block-size", "seq|max-length|context"},
    {"max-seq-length", "max-length|seq|context"},
    {"max-source-length", "max-source|max-length"},
    {"output-dir", "out"},
    {"overwrite-output-dir", "overwrite"},
    {"train-file", "data"},
    {"validation-file", "eval-data|eval"},
    {"test-file", "data"},
    {"model-type", "model"},
    {"tokenizer-name", "tokenizer"},
    {"torch-dtype", "dtype"},
    {"lr-scheduler-type", "lr-scheduler"},
    {"num-warmup-steps", "warmup-steps"},
    {"label-smoothing-factor", "label-smoothing"},
    {"early-stopping-patience", "patience"},
    {"optim", "optimizer"},
    {"source-prefix", "prefix"},
    {"doc-stride", "stride"},
    {"max-answer-length", "max-answer"},
    {"null-score-diff-threshold", "null-threshold"},
    {"num-beams", "beams"},
    {"num-return-sequences", "return|samples"},
    {"no-repeat-ngram-size", "no-repeat-ngram"},
    {"num-hidden-layers", "layers"},
    {"num-attention-heads", "heads"},
    {"hidden-size", "width"},
    {"d-model", "width"},
    {"intermediate-size", "inner"},
    /* nanoGPT */
    {"n-layer", "layers"},
    {"n-head", "heads"},
    {"n-embd", "width"},
    {"max-iters", "max-steps"},
    {"warmup-iters", "warmup-steps"},
    {"eval-interval", "eval-steps"},
    {"eval-iters", "eval-batches"},
    {"log-interval", "logging-steps"},
    {"grad-clip", "max-grad-norm"},
    {"out-dir", "out"},
    {"num-samples", "samples"},
    /* llama.cpp */
    {"num-threads", "threads"},
};

const char *cli_synonym(const char *typed, size_t n)
{
    for (int i = 0; i < BY_COUNT(synonyms); i++)
        if (cli_name_equal(typed, n, synonyms[i].typed))
            return synonyms[i].names;
    return NULL;
}

void cli_synonyms_write(FILE *out)
{
    for (int i = 0; i < BY_COUNT(synonyms); i++) {
        const char *cursor = synonyms[i].names;
        cli_word w;
        fprintf(out, "--%-30s", synonyms[i].typed);
        for (bool first = true; cli_word_next(&cursor, '|', &w); first = false)
            fprintf(out, "%s--%.*s", first ? "" : ", or ", w.length, w.text);
        fputc('\n', out);
    }
}
