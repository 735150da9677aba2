/* check_recurrent.c - cases that are one layer: recurrent networks of PyTorch (classes RNN, LSTM and GRU) and additive
 * attention. model.safetensors has the weights; the loss is sum(y * cotangent). */
#include "base/file.h"
#include "base/json.h"
#include "nn/recurrent_layers.h"
#include "verify/check.h"

enum { MOST_STATES = 8 };

typedef struct layer_case {
    verify_case *c;
    verify_graph v;
    cJSON *config;
} layer_case;

static by_status open_layer(layer_case *l)
{
    char *config = base_path_join(l->c->dir, "config.json"),
         *weights = base_path_join(l->c->dir, "model.safetensors");
    l->config = config ? base_json_load(config) : NULL;
    l->v.weights = l->config && weights ? by_weights_open(weights) : NULL;
    base_free(config);
    base_free(weights);
    return l->v.weights ? verify_graph_open(l->c, &l->v) : base_error_status();
}

static by_status close_layer(layer_case *l, by_status s)
{
    verify_graph_close(&l->v);
    by_weights_free(l->v.weights);
    cJSON_Delete(l->config);
    return s;
}

/* sum(y * cotangent) in f32, and everything that follows. */
static by_status finish(layer_case *l, by_tensor *y)
{
    by_graph *g = l->v.graph;
    by_tensor *cotangent = verify_graph_operand(l->c, &l->v, "cotangent");
    by_tensor *product = by_mul(g, by_cast(g, y, BY_F32), by_cast(g, cotangent, BY_F32));
    by_tensor *loss = by_sum(g, by_reshape(g, product, 1, (int64_t[]){-1}), 0);
    verify_graph_output(&l->v, "loss", loss);
    BY_TRY(verify_graph_compile(&l->v, loss));
    return verify_graph_compare(l->c, &l->v);
}

/* ---- recurrent networks ---------------------------------------------------------------------------- */

static by_status read_cell(const layer_case *l, by_cell *out)
{
    const char *class, *act;
    BY_TRY(base_json_string(l->c->settings, "class", "", &class));
    BY_TRY(base_json_string(l->config, "nonlinearity", "tanh", &act));
    *out = strcmp(class, "LSTM") == 0  ? BY_CELL_LSTM
           : strcmp(class, "GRU") == 0 ? BY_CELL_GRU
           : strcmp(act, "relu") == 0  ? BY_CELL_RELU
                                       : BY_CELL_TANH;
    return BY_OK;
}

static by_status read_layers(const layer_case *l, nn_recurrent_spec *s)
{
    int64_t layers;
    BY_TRY(read_cell(l, &s->cell));
    BY_TRY(base_json_int(l->config, "hidden_size", 0, 1, 1 << 20, &s->width));
    BY_TRY(base_json_int(l->config, "num_layers", 1, 1, MOST_STATES / 2, &layers));
    BY_TRY(base_json_bool(l->config, "bidirectional", false, &s->both));
    s->layers = (int)layers;
    s->no_bias = !by_weights_find(l->v.weights, "bias_hh_l0");
    return BY_OK;
}

/* (layers D, B, H), as PyTorch returns them. */
static by_tensor *stacked(by_graph *g, by_tensor **states, int count)
{
    by_tensor *list[MOST_STATES];
    for (int i = 0; i < count; i++)
        list[i] = by_reshape(g, states[i], 3, (int64_t[]){1, by_dim(states[i], 0), by_dim(states[i], 1)});
    return by_concat(g, list, count, 0);
}

static by_status run_layers(layer_case *l)
{
    nn_recurrent_spec s = {0};
    by_tensor *h[MOST_STATES], *c[MOST_STATES];
    BY_TRY(open_layer(l));
    BY_TRY(read_layers(l, &s));
    const bool lstm = s.cell == BY_CELL_LSTM;
    const int count = s.layers * (s.both ? 2 : 1);
    s.last_h = h;
    s.last_c = lstm ? c : NULL;
    by_graph *g = l->v.graph;
    by_tensor *y = nn_recurrent(g, NULL, verify_graph_operand(l->c, &l->v, "x"), &s);
    verify_graph_output(&l->v, "y", y);
    verify_graph_output(&l->v, "state.0", stacked(g, h, count));
    if (lstm)
        verify_graph_output(&l->v, "state.1", stacked(g, c, count));
    return finish(l, y);
}

by_status verify_recurrent(verify_case *c)
{
    layer_case l = {.c = c};
    return close_layer(&l, run_layers(&l));
}

/* ---- additive attention ---------------------------------------------------------------------------- */

/* x (B, T, C) times a weight (A, C) of the file. */
static by_tensor *project(layer_case *l, const char *name, by_tensor *x)
{
    const by_weight *e = by_weights_find(l->v.weights, name);
    if (!e)
        return by_graph_fail(l->v.graph, "model.safetensors has no %s", name);
    by_tensor *w = by_param(l->v.graph, name, e->rank, e->dim, (by_init){BY_INIT_ZERO, 0});
    return x ? by_linear(l->v.graph, x, w, NULL, NULL) : w;
}

static by_status run_attention(layer_case *l)
{
    BY_TRY(open_layer(l));
    by_graph *g = l->v.graph;
    by_tensor *q = verify_graph_operand(l->c, &l->v, "q"), *k = verify_graph_operand(l->c, &l->v, "k");
    by_tensor *scores =
        by_additive_scores(g, project(l, "Wq", q), project(l, "Wk", k), project(l, "v", NULL));
    by_tensor *weights = by_softmax(g, scores); /* (B, T, S) */
    by_tensor *context = by_matmul(g, weights, k, false, false);
    verify_graph_output(&l->v, "weights", weights);
    verify_graph_output(&l->v, "context", context);
    return finish(l, context);
}

by_status verify_additive_attention(verify_case *c)
{
    layer_case l = {.c = c};
    return close_layer(&l, run_attention(&l));
}
