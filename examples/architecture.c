/* architecture.c - a new architecture in the graph API: a neural probabilistic language model
 * (Bengio et al. 2003). The embeddings of the last N characters pass through one hidden layer and predict
 * the next character. It is trained here on one sentence. */
#include <banyan/banyan.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { N = 4, V = 128, E = 16, HIDDEN = 64, STEPS = 120 };

/* ids (B, N) -> logits (B, V). Parameters are declared where they are used; nothing is computed yet. */
static by_tensor *model(by_graph *g, by_tensor *ids)
{
    by_init normal = {BY_INIT_NORMAL, 0.1f}, zero = {BY_INIT_ZERO, 0};
    by_tensor *table = by_param(g, "embed.weight", 2, (int64_t[]){V, E}, normal);
    by_tensor *x = by_reshape(g, by_gather(g, table, ids), 2, (int64_t[]){-1, N * E});
    by_tensor *w1 = by_param(g, "hidden.weight", 2, (int64_t[]){HIDDEN, N * E}, normal);
    by_tensor *b1 = by_param(g, "hidden.bias", 1, (int64_t[]){HIDDEN}, zero);
    by_tensor *h = by_linear(g, x, w1, b1, &(by_linear_spec){.act = BY_TANH});
    by_tensor *w2 = by_param(g, "out.weight", 2, (int64_t[]){V, HIDDEN}, normal);
    by_tensor *b2 = by_param(g, "out.bias", 1, (int64_t[]){V}, zero);
    return by_linear(g, h, w2, b2, NULL);
}

int main(void)
{
    const char *text = "the banyan is one tree that stands on many trunks, and every trunk was once a root. ";
    int rows = (int)strlen(text) - N;
    int32_t ids[128][N], next[128];
    for (int r = 0; r < rows; r++) {
        for (int i = 0; i < N; i++)
            ids[r][i] = text[r + i];
        next[r] = text[r + N];
    }

    by_device *device = by_device_open("cpu", 1);
    by_params *params = by_params_new(device, BY_F32);
    by_graph *g = by_graph_new(&(by_graph_spec){.params = params, .training = true});
    by_tensor *in = by_input(g, "ids", BY_I32, 2, (int64_t[]){rows, N});
    by_tensor *out = by_input(g, "next", BY_I32, 1, (int64_t[]){rows});
    by_tensor *loss = by_cross_entropy(g, model(g, in), out, NULL);
    if (by_params_freeze(params, true) || by_params_init(params, 7))
        return fprintf(stderr, "%s\n", by_error_message()), 1;
    by_program *step = by_compile(g, &(by_compile_spec){.loss = loss, .grads = BY_GRAD_STORE});
    by_update *update = step ? by_update_new(params, &(by_optimizer_spec){.max_grad_norm = 1}) : NULL;
    if (!update || by_write(step, in, ids, sizeof ids[0] * (size_t)rows) ||
        by_write(step, out, next, sizeof *next * (size_t)rows))
        return fprintf(stderr, "%s\n", by_error_message()), 1;

    float value = NAN;
    for (int i = 1; i <= STEPS; i++) {
        if (by_run(step) || by_read_f32(step, loss, &value) || by_update_run(update, 1e-2, i, NULL))
            return fprintf(stderr, "%s\n", by_error_message()), 1;
        if (i == 1 || i % 20 == 0)
            printf("step %3d  loss %.4f\n", i, (double)value);
    }
    by_update_free(update);
    by_program_free(step);
    by_params_free(params);
    by_device_free(device);
    return value < 0.1f ? 0 : 1;
}
