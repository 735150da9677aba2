/* finetune.c - open a trained model, train it further on one text in a hand-written loop, and save it.
 *
 *   finetune MODEL TEXT OUT [STEPS] */
#include <banyan/banyan.h>
#include <stdio.h>
#include <stdlib.h>

enum { BATCH = 8 };

static int fail(void)
{
    fprintf(stderr, "finetune: %s\n", by_error_message());
    return 1;
}

/* The file's tokens, or NULL. */
static int32_t *read_tokens(const by_tokenizer *t, const char *path, size_t *count)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return NULL;
    fseek(f, 0, SEEK_END);
    long size = ftell(f);
    rewind(f);
    char *text = malloc((size_t)size + 1);
    int32_t *ids = NULL;
    if (text && fread(text, 1, (size_t)size, f) == (size_t)size)
        ids = by_encode(t, text, (size_t)size, count);
    free(text);
    fclose(f);
    return ids;
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fprintf(stderr, "usage: finetune MODEL TEXT OUT [STEPS]\n");
        return 2;
    }
    by_device *device = by_device_open("cpu", 0);
    by_model *model = device ? by_model_open(device, argv[1], &(by_model_spec){.training = true}) : NULL;
    by_tokenizer *tokenizer = model ? by_tokenizer_load(argv[1]) : NULL;
    size_t count = 0;
    int32_t *ids = tokenizer ? read_tokens(tokenizer, argv[2], &count) : NULL;
    if (!ids)
        return fail();
    int seq = by_model_context(model), steps = argc > 4 ? atoi(argv[4]) : 50;
    if (count < (size_t)seq + 2) {
        fprintf(stderr, "finetune: %s is too short: %zu tokens for a context of %d\n", argv[2], count, seq);
        return 1;
    }

    by_trainer *trainer =
        by_trainer_new(model, &(by_trainer_spec){.optimizer = {.weight_decay = 0.1, .max_grad_norm = 1}});
    int32_t *inputs = malloc(sizeof *inputs * BATCH * (size_t)seq),
            *targets = malloc(sizeof *targets * BATCH * (size_t)seq);
    if (!trainer || !inputs || !targets)
        return fail();
    for (int step = 0; step < steps; step++) {
        double loss, norm;
        for (int r = 0; r < BATCH; r++) {
            size_t start = (size_t)(step * BATCH + r) * 7919 % (count - (size_t)seq - 1);
            for (int t = 0; t < seq; t++) {
                inputs[r * seq + t] = ids[start + (size_t)t];
                targets[r * seq + t] = ids[start + (size_t)t + 1];
            }
        }
        by_batch batch = by_batch_of(BATCH, seq, inputs);
        by_batch_put_tokens(&batch, "targets", targets);
        if (by_trainer_backward(trainer, &batch, true, &loss) || by_trainer_update(trainer, 3e-4, &norm))
            return fail();
        printf("step %d  loss %.4f  norm %.3f\n", step + 1, loss, norm);
    }
    if (by_model_save(model, argv[3], BY_F32) != BY_OK)
        return fail();
    printf("saved %s\n", argv[3]);

    free(inputs);
    free(targets);
    by_release(ids);
    by_trainer_free(trainer);
    by_tokenizer_free(tokenizer);
    by_model_free(model);
    by_device_free(device);
    return 0;
}
