/* pixel_attention.c - attention of a pixel (banyan/pixels.h). */
#include "banyan/pass.h"
#include "banyan/pixels.h"
#include "model/model.h"

typedef struct look {
    by_model *model;
    by_canvas size;
    int pixels, per; /* of a picture; positions of a pixel: its channels, or 1 */
    int *place;      /* (positions) the pixel of each position, in generation order */
    by_pass *pass;
} look;

/* The pixel of every position, in generation order. */
static by_status find_places(look *k)
{
    const arch_family *a = k->model->arch;
    k->pixels = k->size.height * k->size.width;
    k->per = k->size.positions / k->pixels;
    k->place = base_alloc_zero((size_t)k->size.positions, sizeof *k->place);
    for (int t = 0; k->place && t < k->size.positions; t++)
        k->place[t] = (a->place ? a->place(k->model->config, t) : t) / k->per;
    return k->place ? BY_OK : BY_ERR_MEMORY;
}

static by_status run(look *k, const int32_t *tokens)
{
    const int count = by_model_context(k->model);
    int32_t *read = base_alloc_zero((size_t)count, sizeof *read);
    if (!read)
        return BY_ERR_MEMORY;
    for (int i = 0; i < count; i++)
        read[i] = k->model->arch->predicts_itself ? tokens[i]
                  : i                             ? tokens[i - 1]
                                                  : by_model_source_vocab(k->model) - 1;
    const by_batch b = by_batch_of(1, count, read);
    k->pass = by_pass_new(k->model, &b, &(by_pass_spec){.grads = BY_GRAD_NONE, .attention = true});
    by_status s = k->pass ? by_pass_run(k->pass, &b) : base_error_status();
    base_free(read);
    return s;
}

/* Adds the weights of one query to pixels. Key s represents the pixel generated just before it. */
static void add_row(const look *k, const float *row, int turn, float *out)
{
    for (int s = 1; s <= turn; s++)
        out[k->place[s - 1]] += row[s] / (float)k->per;
}

static by_status read_layer(const look *k, int layer, int pixel, float *out)
{
    const by_tensor *t = by_io_output_at(by_pass_io(k->pass), "attention", layer);
    const int length = k->size.positions, heads = t ? (int)by_dim(t, 1) : 0;
    float *weights = t ? base_alloc_zero((size_t)by_elements(t), sizeof *weights) : NULL;
    by_status s = weights ? by_pass_read(k->pass, t, weights)
                  : t     ? BY_ERR_MEMORY
                          : base_fail(BY_ERR_UNSUPPORTED, "%s has no attention weights to return",
                                      base_a(by_model_class(k->model)).text);
    for (int h = 0; h < heads && s == BY_OK; h++)
        for (int turn = 0; turn < length; turn++)
            if (k->place[turn] == pixel)
                add_row(k, weights + ((ptrdiff_t)h * length + turn) * length, turn,
                        out + (ptrdiff_t)h * k->pixels);
    base_free(weights);
    return s;
}

by_status by_pixels_attention(by_model *m, const int32_t *tokens, int row, int column, float *out)
{
    look k = {.model = m};
    if (!m || !tokens || !out)
        return base_fail_missing(!m ? "model" : !tokens ? "picture" : "memory for the weights");
    if (!by_model_canvas(m, &k.size))
        return base_fail(BY_ERR_ARGUMENT, "%s is not a pixel model", base_a(by_model_class(m)).text);
    if (row < 0 || column < 0 || row >= k.size.height || column >= k.size.width)
        return base_fail(BY_ERR_ARGUMENT, "no pixel %d,%d: pictures have %d rows of %d", row, column,
                         k.size.height, k.size.width);
    by_status s = find_places(&k);
    if (s == BY_OK)
        s = run(&k, tokens);
    const int layers = by_model_layers(m), heads = by_model_heads(m);
    memset(out, 0, (size_t)layers * (size_t)heads * (size_t)k.pixels * sizeof *out);
    for (int i = 0; i < layers && s == BY_OK; i++)
        s = read_layer(&k, i, row * k.size.width + column, out + (ptrdiff_t)i * heads * k.pixels);
    by_pass_free(k.pass);
    base_free(k.place);
    return s;
}
