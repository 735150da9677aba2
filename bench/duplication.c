/* duplication.c - the task of Kitaev et al. 2020, section 5: texts 0w0w of random symbols, whose second half a Reformer of
 * one layer learns to predict. The layer hashes; it is trained with some rounds and evaluated with others.
 *   cc -O2 -Iinclude bench/duplication.c -o duplication -L build -lbanyan -lm
 *   ./duplication [DEVICE [LENGTH [STEPS [BATCH [ROUNDS [RATE [WIDTH]]]]]]] */
#include <banyan/banyan.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { SYMBOLS = 127, VOCAB = SYMBOLS + 1, MOST_ROUNDS = 8, TEXTS = 16 };

static uint64_t seed = 1;

static uint32_t draw(void) /* splitmix64 (Steele et al. 2014) */
{
    uint64_t z = seed += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)((z ^ z >> 31) >> 32);
}

/* Targets count where the next token is one of the second w. */
static void make_texts(int batch, int length, int32_t *tokens, int32_t *targets)
{
    for (int b = 0; b < batch; b++, tokens += length, targets += length) {
        for (int t = 0; t < length / 2; t++)
            tokens[t] = tokens[t + length / 2] = t ? 1 + (int32_t)(draw() % SYMBOLS) : 0;
        for (int t = 0; t < length; t++)
            targets[t] = t >= length / 2 && t + 1 < length ? tokens[t + 1] : -100;
    }
}

static by_batch batch_of(int batch, int length, const int32_t *tokens, const int32_t *targets)
{
    const int64_t count = (int64_t)batch * length;
    by_batch b = by_batch_of(batch, length, tokens);
    by_batch_put(&b, "targets", BY_I32, 1, &count, targets);
    return b;
}

static int fail(void)
{
    fprintf(stderr, "%s\n", by_error_message());
    return 1;
}

/* The share of the second halves that the model predicts; negative on failure. */
static double accuracy(by_model *m, int length, int rounds)
{
    const size_t all = (size_t)TEXTS * (size_t)length;
    int32_t *tokens = malloc(sizeof *tokens * all), *targets = malloc(sizeof *targets * all);
    float *logits = malloc(sizeof *logits * all * VOCAB);
    double right = 0, count = 0;
    by_pass *p = NULL;
    if (tokens && targets && logits && by_model_set_hash_rounds(m, rounds) == BY_OK) {
        make_texts(TEXTS, length, tokens, targets);
        const by_batch b = batch_of(TEXTS, length, tokens, targets);
        p = by_pass_new(m, &b, &(by_pass_spec){.grads = BY_GRAD_NONE});
        if (p && (by_pass_run(p, &b) || by_pass_read(p, by_io_output(by_pass_io(p), "logits"), logits))) {
            by_pass_free(p);
            p = NULL;
        }
    }
    for (size_t i = 0; p && i < all; i++) {
        int best = 0;
        for (int v = 1; v < VOCAB; v++)
            best = logits[i * VOCAB + (size_t)v] > logits[i * VOCAB + (size_t)best] ? v : best;
        count += targets[i] >= 0;
        right += targets[i] >= 0 && best == targets[i];
    }
    by_pass_free(p);
    free(tokens);
    free(targets);
    free(logits);
    return count > 0 ? right / count : -1;
}

static int train(by_model *m, int length, int steps, int batch, double rate)
{
    const size_t all = (size_t)batch * (size_t)length;
    int32_t *tokens = malloc(sizeof *tokens * all), *targets = malloc(sizeof *targets * all);
    by_trainer *t = by_trainer_new(m, &(by_trainer_spec){.optimizer = {.max_grad_norm = 1}, .seed = 1});
    const by_schedule_spec schedule = {
        .kind = BY_SCHEDULE_COSINE, .rate = rate, .min_rate = rate / 20, .warmup = 100, .steps = steps};
    const time_t start = time(NULL);
    int bad = !t || !tokens || !targets;
    for (int i = 0; i < steps && !bad; i++) {
        double loss;
        make_texts(batch, length, tokens, targets);
        const by_batch b = batch_of(batch, length, tokens, targets);
        bad = by_trainer_backward(t, &b, true, NULL) ||
              by_trainer_update(t, by_schedule_rate(&schedule, i), NULL);
        if (!bad && (i + 1) % 100 == 0 && !(bad = by_trainer_loss(t, &loss) != BY_OK))
            printf("step %5d  loss %.4f  %ld s\n", i + 1, loss, (long)(time(NULL) - start));
        fflush(stdout);
    }
    by_trainer_free(t);
    free(tokens);
    free(targets);
    return bad;
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "auto";
    const int length = argc > 2 ? atoi(argv[2]) : 1024, steps = argc > 3 ? atoi(argv[3]) : 4000;
    const int batch = argc > 4 ? atoi(argv[4]) : 32, rounds = argc > 5 ? atoi(argv[5]) : 4;
    const double rate = argc > 6 ? atof(argv[6]) : 1e-3;
    const int width = argc > 7 ? atoi(argv[7]) : 0;
    by_device *device = by_device_open(name, 0);
    by_model *m = device ? by_model_new(device, "reformer",
                                        &(by_model_shape){.preset = "duplication",
                                                          .context = length,
                                                          .width = width,
                                                          .vocab = VOCAB,
                                                          .hash_rounds = rounds,
                                                          .dropout = 0},
                                        &(by_model_spec){.training = true, .task = BY_TASK_LM, .seed = 1})
                         : NULL;
    if (!m || train(m, length, steps, batch, rate))
        return fail();
    double best = 0;
    for (int r = MOST_ROUNDS; r > 0; r /= 2) {
        const double share = accuracy(m, length, r);
        if (share < 0)
            return fail();
        printf("%d rounds: %.2f %% of the second half\n", r, 100 * share);
        best = r == MOST_ROUNDS ? share : best;
    }
    by_model_free(m);
    by_device_free(device);
    return best >= 0.99 ? 0 : 2;
}
