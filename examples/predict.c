/* predict.c - open a fine-tuned model and print its predictions: labels of texts, words for ___, entities in
 * texts, or, if the model answers questions, the answer to the first text in each of the others.
 *
 *   predict MODEL TEXT... */
#include <banyan/banyan.h>
#include <stdio.h>
#include <stdlib.h>

static by_status print_labels(by_predictor *p, const by_model *m, const char *const *texts, int count)
{
    const int labels = by_model_labels(m);
    float *scores = malloc((size_t)count * (size_t)labels * sizeof *scores);
    by_status status = scores ? by_predictor_classify(p, texts, NULL, count, scores) : BY_ERR_MEMORY;
    for (int i = 0; status == BY_OK && i < count; i++) {
        printf("%s\n", texts[i]);
        for (int k = 0; k < labels; k++)
            printf("  %s %.4f\n", by_model_label_name(m, k), (double)scores[i * labels + k]);
    }
    free(scores);
    return status;
}

static by_status print_words(by_predictor *p, const by_tokenizer *t, const char *const *texts, int count)
{
    by_guesses g;
    by_status status = by_predictor_fill(p, texts, count, 3, &g);
    for (int i = 0; i < g.count; i++) {
        printf("%s\n", texts[i]);
        for (int k = g.first[i] * g.top; k < g.first[i + 1] * g.top; k++) {
            size_t size;
            char *word = by_decode(t, &g.list[k].token, 1, &size);
            printf("  %s %.4f\n", word ? word : "?", (double)g.list[k].score);
            by_release(word);
        }
    }
    by_guesses_free(&g);
    return status;
}

static by_status print_names(by_predictor *p, const char *const *texts, int count)
{
    by_tags t;
    by_status status = by_predictor_tag(p, texts, count, &t);
    for (int i = 0; i < t.count; i++) {
        printf("%s\n", texts[i]);
        for (size_t k = t.first_entity[i]; k < t.first_entity[i + 1]; k++) {
            const by_entity *e = &t.entities[k];
            printf("  %s %.4f %.*s\n", e->name, (double)e->score, (int)(e->at.end - e->at.start),
                   texts[i] + e->at.start);
        }
    }
    by_tags_free(&t);
    return status;
}

static by_status print_answers(by_predictor *p, const char *question, const char *const *texts, int count)
{
    by_status status = BY_OK;
    for (int i = 0; status == BY_OK && i < count; i++) {
        by_answer_found a;
        status = by_predictor_answer(p, &question, &texts[i], 1, &(by_answer_spec){0}, &a);
        if (status == BY_OK && a.found)
            printf("%.*s\n", (int)(a.at.end - a.at.start), texts[i] + a.at.start);
    }
    return status;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: predict MODEL TEXT...\n");
        return 2;
    }
    const char *const *texts = (const char *const *)argv + 2;
    by_device *device = by_device_open("cpu", 0);
    by_model *model = device ? by_model_open(device, argv[1], &(by_model_spec){0}) : NULL;
    by_tokenizer *tokenizer = model ? by_tokenizer_load(argv[1]) : NULL;
    by_predictor *predictor = tokenizer ? by_predictor_new(model, tokenizer, &(by_predictor_spec){0}) : NULL;
    by_status status = BY_ERR_ARGUMENT;
    if (predictor)
        switch (by_model_task(model)) {
        case BY_TASK_TAG:
            status = print_names(predictor, texts, argc - 2);
            break;
        case BY_TASK_ANSWER:
            status = print_answers(predictor, texts[0], texts + 1, argc - 3);
            break;
        case BY_TASK_MLM:
        case BY_TASK_PRETRAIN:
            status = print_words(predictor, tokenizer, texts, argc - 2);
            break;
        default: /* fails with a message if the model has no labels either */
            status = print_labels(predictor, model, texts, argc - 2);
        }
    if (status != BY_OK)
        fprintf(stderr, "predict: %s\n", by_error_message());
    by_predictor_free(predictor);
    by_tokenizer_free(tokenizer);
    by_model_free(model);
    by_device_free(device);
    return status == BY_OK ? 0 : 1;
}
