/* model.c - builds an opened model into graphs, and accesses its properties. */
#include <stdio.h>

#include "model/adapter.h"

/* ---- build ----------------------------------------------------------------------------------- */

int by_model_first_position(const by_model *m)
{
    return m->arch->first_position ? m->arch->first_position(m->config) : 0;
}

bool model_pads_apart(const by_model *m)
{
    return m->arch->first_position && !m->arch->extra_rows;
}

void by_model_positions(const by_model *m, const int32_t *tokens, int batch, int seq, int32_t *out)
{
    const int first = by_model_first_position(m), pad = by_model_pad(m),
              prefix = model_adapter_prefix(m->adapter);
    for (int b = 0; b < batch; b++)
        for (int t = 0, next = first; t < seq; t++) {
            size_t i = (size_t)b * (size_t)seq + (size_t)t;
            out[i] = first == 0 ? prefix + t : tokens[i] == pad ? pad : next++;
        }
}

bool by_model_mask(const by_model *m, const int32_t *tokens, int batch, int seq, int32_t *out)
{
    if (!m->arch->masks_padding)
        return false;
    for (int b = 0; b < batch; b++) {
        int32_t *row = out + (size_t)b * (size_t)seq;
        int count = 0;
        for (int t = 0; t < seq; t++)
            count += tokens[(size_t)b * (size_t)seq + (size_t)t] != by_model_pad(m);
        for (int t = 0; t < seq; t++)
            row[t] = t < count;
    }
    return true;
}

by_status by_model_check_mask(const by_model *m, const int32_t *mask, int batch, int seq)
{
    for (int b = 0; m->arch->looks_ahead && mask && b < batch; b++)
        if (!mask[(size_t)b * (size_t)seq])
            return base_fail(BY_ERR_UNSUPPORTED,
                             "row %d: the first token is masked, and in %s it would attend to later tokens; "
                             "move the padding to the end",
                             b, m->arch->title);
    return BY_OK;
}

/* Returns the token that starts the decoder for these targets. */
static int32_t start_of(const by_model *m, const int32_t *row, int seq)
{
    if (!m->arch->starts_with_last)
        return m->start;
    int count = 0;
    for (int t = 0; t < seq; t++)
        count += row[t] >= 0 && row[t] != m->pad;
    const int32_t last = row[count > 0 ? count - 1 : seq - 1];
    return last < 0 ? m->pad : last;
}

by_status by_model_shift(const by_model *m, const int32_t *targets, int batch, int seq, int32_t *out)
{
    if (!m || !targets || !out)
        return base_fail_missing(m ? "targets or output array" : "model");
    if ((m->start < 0 && !m->arch->starts_with_last) || m->pad < 0)
        return base_fail(BY_ERR_FORMAT, "the model configuration does not define the %s",
                         m->pad < 0 ? "pad_token_id" : "decoder_start_token_id");
    for (int b = 0; b < batch; b++)
        for (int t = 0; t < seq; t++) {
            size_t i = (size_t)b * (size_t)seq + (size_t)t;
            out[i] = t == 0 ? start_of(m, targets + i, seq) : targets[i - 1] < 0 ? m->pad : targets[i - 1];
        }
    return BY_OK;
}

/* Fails the graph if positions exceed the context. Encoder-decoders compute their positions themselves. */
static void check_lengths(const by_model *m, by_graph *g, const by_model_io *io)
{
    const by_tensor *texts[] = {io->cache ? NULL : by_io_input(io, "tokens"), by_io_input(io, "source")};
    for (int i = 0; i < BY_COUNT(texts); i++)
        if (texts[i] && by_dim(texts[i], 1) > by_model_context(m) && !m->arch->unlimited)
            by_graph_fail(g, "%lld positions exceed the model's context of %d",
                          (long long)by_dim(texts[i], 1), by_model_context(m));
}

const by_input_info *by_model_input(const by_model *m, int i)
{
    static const by_input_info text[] = {{"tokens", BY_I32, "BT", BY_PART_WHOLE, true},
                                         {"segments", BY_I32, "BT", BY_PART_WHOLE, false},
                                         {"positions", BY_I32, "BT", BY_PART_WHOLE, false},
                                         {"mask", BY_I32, "BT", BY_PART_WHOLE, false},
                                         {"pick", BY_I32, "N", BY_PART_WHOLE, false},
                                         {"documents", BY_I32, "BT", BY_PART_WHOLE, false},
                                         {0}};
    static const by_input_info pair[] = {
        {"source", BY_I32, "BS", BY_PART_ENCODER, true}, {"source_mask", BY_I32, "BS", BY_PART_WHOLE, false},
        {"tokens", BY_I32, "BT", BY_PART_DECODER, true}, {"positions", BY_I32, "BT", BY_PART_DECODER, false},
        {"pick", BY_I32, "N", BY_PART_DECODER, false},   {0}};
    const by_input_info *list = m->arch->inputs ? m->arch->inputs : by_model_is_pair(m) ? pair : text;
    for (int k = 0; list[k].name && (list != text || m->arch->documents || strcmp(list[k].name, "documents"));
         k++)
        if (k == i)
            return &list[k];
    return NULL;
}

/* 1 where query and key belong to the same document, otherwise 0: (B, 1, T, T) from (B, T). */
static by_tensor *same_document(by_graph *g, by_tensor *documents)
{
    const int64_t b = by_dim(documents, 0), t = by_dim(documents, 1);
    by_tensor *ids = by_cast(g, documents, BY_F32), *one = by_fill(g, BY_F32, 0, NULL, 1);
    by_tensor *d = by_sub(g, by_reshape(g, ids, 4, (int64_t[]){b, 1, t, 1}),
                          by_reshape(g, ids, 4, (int64_t[]){b, 1, 1, t}));
    return by_cast(g, by_clamp(g, by_sub(g, one, by_mul(g, d, d)), 0, 1), BY_I32);
}

/* Adds inputs that are computed from others. */
static void complete_inputs(const by_model *m, by_graph *g, by_model_io *io, const by_adapter *a)
{
    by_tensor *tokens = by_io_input(io, "tokens");
    if (tokens && !by_io_input(io, "positions") && !by_model_is_pair(m) && by_graph_status(g) == BY_OK)
        by_io_feed(io, "positions",
                   by_range_from(g, 2, (int64_t[]){by_dim(tokens, 0), by_dim(tokens, 1)},
                                 by_model_first_position(m) + model_adapter_prefix(a)));
    if (by_io_input(io, "documents") && m->arch->documents && by_graph_status(g) == BY_OK)
        by_io_feed(io, "pair_mask", same_document(g, by_io_input(io, "documents")));
    if (m->task == BY_TASK_ENCODER) {
        io->part = BY_PART_ENCODER;
        by_io_feed(io, "source", tokens);
        by_io_feed(io, "source_mask", by_io_input(io, "mask"));
    }
}

/* Checks that all inputs of the part to build are present. */
static bool check_inputs(const by_model *m, by_graph *g, const by_model_io *io)
{
    const by_input_info *in;
    for (int i = 0; (in = by_model_input(m, i)); i++) {
        const bool read = io->part == BY_PART_WHOLE || in->part == BY_PART_WHOLE || in->part == io->part;
        if (in->required && read && !by_io_input(io, in->name)) {
            by_graph_fail(g, "%s requires the input \"%s\"", m->arch->title, in->name);
            return false;
        }
    }
    if (by_io_input(io, "segments") && !by_model_segments(m))
        by_graph_fail(g, "%s has no segments", m->arch->title);
    return true;
}

/* Calls the architecture's build function, and returns attention scores if requested. */
static void build_body(const by_model *m, by_graph *g, by_model_io *io)
{
    nn_scores kept = {0};
    if (io->want_scores)
        nn_scores_begin(&kept);
    m->arch->build(g, m->config, io);
    nn_scores_end();
    for (int i = 0; i < kept.count; i++) {
        by_io_return(io, "scores", kept.scores[i]);
        by_io_return(io, "values", kept.values[i]);
    }
}

static void build(const by_model *m, by_graph *g, by_model_io *io, by_adapter *a)
{
    io->task = m->task;
    io->labels = m->labels;
    io->problem = by_model_problem(m);
    io->outputs = (by_ports){0};
    complete_inputs(m, g, io, a);
    check_lengths(m, g, io);
    if (!check_inputs(m, g, io))
        return;
    g->hook = a ? &a->hook : NULL;
    model_prompt_begin(a, g, io);
    void *noise = model_noise_begin(m, g, io);
    build_body(m, g, io);
    model_noise_end(noise, g);
    if (m->task == BY_TASK_ENCODER)
        by_io_return(io, "features", by_io_output(io, "memory"));
    static const char *const weights[] = {"attention", "source_attention", "cross_attention",
                                          "global_attention"};
    for (int k = 0; k < BY_COUNT(weights); k++)
        for (int i = 0; i < by_io_output_count(io, weights[k]) && by_graph_status(g) == BY_OK; i++)
            by_output(g, NULL, by_io_output_at(io, weights[k], i));
}

void by_model_build(const by_model *m, by_graph *g, by_model_io *io)
{
    if (!m || !g || !io)
        by_graph_fail(g, "by_model_build: the model or by_model_io is NULL");
    else
        build(m, g, io, m->adapter);
}

void by_model_build_frozen(const by_model *m, by_graph *g, by_model_io *io)
{
    if (!m || !g || !io) {
        by_graph_fail(g, "by_model_build_frozen: the model or by_model_io is NULL");
        return;
    }
    if (m->device != g->device) {
        by_graph_fail(g, "%s is on another device than the graph", m->arch->title);
        return;
    }
    by_params *params = g->params;
    const gr_hook *hook = g->hook;
    const bool training = g->training;
    g->params = m->params;
    g->training = false;
    build(m, g, io, m->params == params ? NULL : m->adapter);
    for (by_port *p = io->outputs.first; p; p = p->next)
        p->tensor = p->tensor ? by_detach(g, p->tensor) : NULL;
    g->params = params;
    g->hook = hook;
    g->training = training;
}

by_tensor *by_model_loss(const by_model *m, by_graph *g, by_model_io *io, by_tensor *targets,
                         by_tensor *second)
{
    by_tensor *loss = m->arch->loss ? m->arch->loss(g, m->config, io, targets) : NULL, *more;
    if (!loss)
        loss = arch_task_loss(g, io, targets, second);
    for (int i = 0; (more = by_io_output_at(io, "loss", i)); i++)
        loss = by_add(g, loss, more);
    return loss;
}

/* ---- properties ------------------------------------------------------------------------------ */

by_params *by_model_params(const by_model *m)
{
    return m ? m->params : NULL;
}

by_device *by_model_device(const by_model *m)
{
    return m ? m->device : NULL;
}

const char *by_model_family(const by_model *m)
{
    return m ? m->arch->family : "?";
}

const char *by_model_title(const by_model *m)
{
    return m ? m->arch->title : "?";
}

const char *by_model_class(const by_model *m)
{
    if (!m)
        return "?";
    const bool other = m->arch->other.name && m->task == m->arch->other.task &&
                       *(const bool *)((const char *)m->config + m->arch->other.offset);
    return other ? m->arch->other.name : m->arch->classes[m->task];
}

by_task by_model_task(const by_model *m)
{
    return m ? m->task : BY_TASK_DEFAULT;
}

int by_model_labels(const by_model *m)
{
    return m ? m->labels : 0;
}

by_problem by_model_problem(const by_model *m)
{
    return m->problem != BY_PROBLEM_DEFAULT ? m->problem
           : m->labels == 1                 ? BY_PROBLEM_REGRESSION
                                            : BY_PROBLEM_ONE_LABEL;
}

const char *by_model_label_name(const by_model *m, int i)
{
    static _Thread_local char fallback[24];
    base_format(fallback, sizeof fallback, "LABEL_%d", i);
    return m && m->label_names && i >= 0 && i < m->labels ? m->label_names[i] : fallback;
}

void model_strings_free(char **names, int count)
{
    for (int i = 0; names && i < count; i++)
        base_free(names[i]);
    base_free(names);
}

by_status by_model_name_labels(by_model *m, const char *const *names, int count)
{
    if (!m || (count > 0 && !names))
        return base_fail_missing(m ? "name" : "model");
    if (count != m->labels)
        return base_fail(BY_ERR_ARGUMENT, "%d names given for %d labels", count, m->labels);
    char **copies = base_alloc_zero((size_t)count, sizeof *copies);
    bool ok = copies != NULL;
    for (int i = 0; ok && i < count; i++)
        ok = (copies[i] = base_strdup(names[i])) != NULL;
    model_strings_free(ok ? m->label_names : copies, count);
    if (ok)
        m->label_names = copies;
    return ok ? BY_OK : BY_ERR_MEMORY;
}

bool by_model_labels_in_place(const by_model *m)
{
    return m && m->arch->labels_in_place;
}

bool by_model_has_cache(const by_model *m)
{
    return m && !m->arch->no_cache && !m->arch->rereads;
}

bool by_model_is_recurrent(const by_model *m)
{
    return m && m->arch->recurrent;
}

bool by_model_is_pair(const by_model *m)
{
    return m && m->arch->pretrained == BY_TASK_SEQ2SEQ;
}

bool by_model_reads_last(const by_model *m)
{
    return m && m->arch->pretrained == BY_TASK_LM && !m->arch->pads_left && !m->arch->labels_by_mean;
}

bool by_model_pads_left(const by_model *m)
{
    return m && m->arch->pads_left;
}

bool by_model_rereads(const by_model *m)
{
    return m && m->arch->rereads;
}

bool by_model_pictures(const by_model *m, by_pictures *out)
{
    const bool any = m && m->arch->pictures;
    *out = any ? m->arch->pictures(m->config) : (by_pictures){0};
    return any;
}

bool by_model_canvas(const by_model *m, by_canvas *out)
{
    const bool any = m && m->arch->canvas;
    *out = any ? m->arch->canvas(m->config) : (by_canvas){0};
    return any;
}

/* Returns a number of the configuration, or 0 if it has none. */
static int fact(const by_model *m, arch_role role)
{
    return m ? (int)arch_config_get(m->arch, m->config, role) : 0;
}

int by_model_source_vocab(const by_model *m)
{
    by_canvas c;
    return by_model_canvas(m, &c) && !c.palette ? c.values : fact(m, ARCH_ROLE_VOCAB);
}

int by_model_vocab(const by_model *m)
{
    int target = fact(m, ARCH_ROLE_TARGET_VOCAB);
    return target ? target : by_model_source_vocab(m) - (m && m->arch->start_row);
}

int by_model_context(const by_model *m)
{
    by_pictures p;
    by_canvas c;
    int rows = fact(m, ARCH_ROLE_CONTEXT);
    if (rows == 0 && by_model_canvas(m, &c))
        return c.height * c.width * c.channels;
    if (rows == 0 && by_model_pictures(m, &p))
        return by_pictures_positions(&p, p.height, p.width);
    if (m && !m->arch->extra_rows)
        rows -= by_model_first_position(m);
    return rows - (m ? model_adapter_prefix(m->adapter) : 0);
}

bool by_model_is_limited(const by_model *m)
{
    return m && !m->arch->unlimited;
}

int by_model_layers(const by_model *m)
{
    return fact(m, ARCH_ROLE_LAYERS);
}

int by_model_heads(const by_model *m)
{
    return fact(m, ARCH_ROLE_HEADS);
}

int by_model_width(const by_model *m)
{
    return fact(m, ARCH_ROLE_WIDTH);
}

int by_model_segments(const by_model *m)
{
    const int segments = fact(m, ARCH_ROLE_SEGMENTS);
    return segments                     ? segments
           : m && m->arch->segments > 0 ? m->arch->segments
                                        : fact(m, ARCH_ROLE_LANGUAGES);
}

int by_model_vector_width(const by_model *m)
{
    return m && m->arch->vector_width ? m->arch->vector_width(m->config) : 0;
}

int by_model_languages(const by_model *m)
{
    return fact(m, ARCH_ROLE_LANGUAGES);
}

int by_model_eos(const by_model *m)
{
    return m ? m->eos : -1;
}

int by_model_pad(const by_model *m)
{
    return m ? m->pad : -1;
}

int by_model_start(const by_model *m)
{
    return m ? m->start : -1;
}

void by_model_set_start(by_model *m, int token)
{
    m->start = token;
}

void by_model_set_eos(by_model *m, int token)
{
    m->eos = token;
    arch_config_set(m->arch, m->config, ARCH_ROLE_EOS, token);
}

void by_model_set_dropout(by_model *m, double p)
{
    arch_config_set(m->arch, m->config, ARCH_ROLE_DROPOUT, p);
    if (p == 0)
        arch_config_set(m->arch, m->config, ARCH_ROLE_DROP_PATH, 0);
}

void by_model_set_noise(by_model *m, double alpha)
{
    if (m)
        m->noise = alpha;
}

int by_model_hash_rounds(const by_model *m)
{
    return fact(m, ARCH_ROLE_HASHES);
}

by_status by_model_set_hash_rounds(by_model *m, int rounds)
{
    enum { MOST = 64 };
    if (!m)
        return base_fail_missing("model");
    if (rounds < 1 || rounds > MOST)
        return base_fail(BY_ERR_ARGUMENT, "invalid number of hash rounds: %d; expected 1 to %d", rounds,
                         MOST);
    return arch_config_set(m->arch, m->config, ARCH_ROLE_HASHES, rounds)
               ? BY_OK
               : base_fail(BY_ERR_UNSUPPORTED, "%s does not use LSH attention", m->arch->title);
}

void by_model_set_pad(by_model *m, int token)
{
    m->pad = token;
    arch_config_set(m->arch, m->config, ARCH_ROLE_PAD, token);
}
