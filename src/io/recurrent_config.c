/* recurrent_config.c - the configuration of a recurrent network, inferred from the names and shapes of its
 * weights: state dictionaries of PyTorch's nn.RNN, nn.LSTM and nn.GRU, and of language models around them,
 * come without one. */
#include <stdio.h>

#include "base/json.h"
#include "io/weights.h"

typedef struct network {
    const by_weights *file;
    char prefix[128]; /* of weight_hh_l0 */
    int64_t gates, width, input;
    int layers;
    bool both, bias;
    const by_weight *encoder, *decoder;
} network;

static const by_weight *find(const network *n, const char *stem, int layer, const char *direction)
{
    char name[256];
    base_format(name, sizeof name, "%s%s_l%d%s", n->prefix, stem, layer, direction);
    return by_weights_find(n->file, name);
}

/* The beginning of the names of the layers. False: there are none, or several networks. */
static bool find_prefix(network *n)
{
    static const char first[] = "weight_hh_l0";
    int found = 0;
    for (int i = 0; i < by_weights_count(n->file); i++) {
        const char *name = by_weights_at(n->file, i)->name;
        const size_t length = strlen(name), tail = strlen(first);
        if (length < tail || strcmp(name + length - tail, first) != 0 || length - tail >= sizeof n->prefix)
            continue;
        memcpy(n->prefix, name, length - tail);
        found++;
    }
    return found == 1;
}

static bool is_matrix(const by_weight *w, int64_t rows, int64_t cols)
{
    return w && w->rank == 2 && w->dim[0] == rows && w->dim[1] == cols;
}

/* Layer i reads `input` columns. */
static by_status check_layer(const network *n, int i, int64_t input)
{
    const int64_t rows = n->gates * n->width;
    for (int d = 0; d < (n->both ? 2 : 1); d++) {
        const char *direction = d ? "_reverse" : "";
        if (!is_matrix(find(n, "weight_hh", i, direction), rows, n->width) ||
            !is_matrix(find(n, "weight_ih", i, direction), rows, input))
            return base_fail(BY_ERR_FORMAT,
                             "the weights of layer %d%s are missing or do not have the shapes of a recurrent "
                             "network with %lld units and %lld inputs",
                             i, direction, (long long)n->width, (long long)input);
    }
    return BY_OK;
}

static by_status measure(network *n)
{
    const by_weight *hh = find(n, "weight_hh", 0, ""), *ih = find(n, "weight_ih", 0, "");
    if (!hh || hh->rank != 2 || !ih || ih->rank != 2 || hh->dim[1] < 1)
        return base_fail(BY_ERR_FORMAT, "%sweight_hh_l0 and weight_ih_l0 are not matrices",
                         io_show(n->prefix).text);
    n->width = hh->dim[1];
    n->gates = hh->dim[0] / n->width;
    n->input = ih->dim[1];
    n->both = find(n, "weight_hh", 0, "_reverse") != NULL;
    n->bias = find(n, "bias_hh", 0, "") != NULL;
    n->encoder = by_weights_find(n->file, "encoder.weight");
    n->decoder = by_weights_find(n->file, "decoder.weight");
    if (find(n, "weight_hr", 0, ""))
        return base_fail(BY_ERR_UNSUPPORTED, "an LSTM with projections (proj_size) is not supported");
    if (hh->dim[0] != n->gates * n->width || (n->gates != 1 && n->gates != 3 && n->gates != 4))
        return base_fail(BY_ERR_FORMAT, "weight_hh_l0 (%lld, %lld) belongs to no RNN, GRU or LSTM",
                         (long long)hh->dim[0], (long long)hh->dim[1]);
    while (n->layers < 64 && (find(n, "weight_hh", n->layers, "") || find(n, "weight_ih", n->layers, ""))) {
        BY_TRY(check_layer(n, n->layers, n->layers ? n->width * (n->both ? 2 : 1) : n->input));
        n->layers++;
    }
    return BY_OK;
}

static bool put_model(cJSON *json, const network *n)
{
    const char *family = n->gates == 4 ? "lstm" : n->gates == 3 ? "gru" : "rnn";
    const bool tied = !n->decoder || (n->encoder && io_weight_same(n->encoder, n->decoder));
    bool ok = base_json_put(json, "model_type", cJSON_CreateString(family)) &&
              base_json_put(json, "hidden_size", cJSON_CreateNumber((double)n->width)) &&
              base_json_put(json, "num_layers", cJSON_CreateNumber(n->layers)) &&
              base_json_put(json, "bidirectional", cJSON_CreateBool(n->both)) &&
              base_json_put(json, "bias", cJSON_CreateBool(n->bias)) &&
              base_json_put(json, "input_size", cJSON_CreateNumber((double)n->input));
    char class[32];
    base_format(class, sizeof class, "%s%s",
                n->gates == 4   ? "LSTM"
                : n->gates == 3 ? "GRU"
                                : "RNN",
                n->encoder ? "ForCausalLM" : "Model");
    const char *const classes[] = {class};
    ok = ok && base_json_put(json, "architectures", cJSON_CreateStringArray(classes, 1));
    if (!n->encoder)
        return ok;
    return ok && base_json_put(json, "embedding_size", cJSON_CreateNumber((double)n->input)) &&
           base_json_put(json, "vocab_size", cJSON_CreateNumber((double)n->encoder->dim[0])) &&
           base_json_put(json, "tie_word_embeddings", cJSON_CreateBool(tied));
}

by_status io_recurrent_config(const by_weights *file, const char *path)
{
    network n = {.file = file};
    if (!find_prefix(&n))
        return BY_OK;
    BY_TRY(measure(&n));
    if (n.encoder && (n.encoder->rank != 2 || n.encoder->dim[1] != n.input))
        return base_fail(BY_ERR_FORMAT, "encoder.weight is not a table of rows of %lld", (long long)n.input);
    cJSON *json = cJSON_CreateObject();
    by_status s =
        json && put_model(json, &n) ? base_json_write(path, json) : base_fail(BY_ERR_MEMORY, "out of memory");
    cJSON_Delete(json);
    return s;
}
