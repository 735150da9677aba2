/* inspect_model.c - shape, parameters, memory, FLOP and graph of a model. Nothing is computed and almost
 * nothing is read: programs are compiled for the null device. */
#include <stdlib.h>

#include "banyan/inspect.h"
#include "base/file.h"
#include "cli/common.h"
#include "cli/inspect.h"
#include "cli/lora.h"
#include "graph/null_device.h"
#include "cli/report.h"
#include "cli/format.h"
#include "io/weights.h"

static const char *const mode_names[] = {"forward", "train", "decode"};

/* Parameters whose names differ in numbers only. */
typedef struct group {
    char *name; /* "transformer.h.*.attn.c_attn" */
    int tensors;
    int64_t elements;
} group;

typedef struct inspection {
    inspect_options o;
    const char *what; /* as given */
    char *dir;        /* NULL for a preset */
    by_dtype stored;  /* in the file */
    by_device device;
    by_model *model;
    cli_lora lora;
    by_plan plans[BY_PLAN_MODES], recomputed; /* the last: of training */
    bool has[BY_PLAN_MODES];
    group *groups;
    int n_groups;
} inspection;

/* ---- opening --------------------------------------------------------------------------------- */

/* The type of most elements of the model's file. */
static by_status find_stored(inspection *in)
{
    char *config = base_path_join(in->dir, "adapter_config.json");
    char *base = config && base_file_exists(config) ? by_adapter_base(in->dir) : base_strdup(in->dir);
    by_weights *file = base ? by_weights_open(base) : NULL;
    base_free(config);
    base_free(base);
    size_t bytes[BY_DTYPE_COUNT] = {0};
    if (!file)
        return base_error_status();
    for (int i = 0; i < by_weights_count(file); i++)
        bytes[by_weights_at(file, i)->dtype] += by_weights_at(file, i)->bytes;
    by_weights_free(file);
    for (int t = 0; t < BY_DTYPE_COUNT; t++)
        if (bytes[t] > bytes[in->stored] && by_dtype_is_float((by_dtype)t))
            in->stored = (by_dtype)t;
    return BY_OK;
}

/* For training, which needs the most buffers: a look at the others takes nothing more. Weights of other types
 * are trained only where they are frozen. */
static by_model_spec spec_of(const inspection *in)
{
    by_model_spec s = {.dtype = in->o.dtype,
                       .training = !in->o.weights || in->o.freeze || in->lora.words,
                       .freeze = in->o.freeze,
                       .weights = cli_weights(in->o.weights),
                       .adapter = in->lora.words ? &in->lora.spec : NULL,
                       .exact = !in->o.task};
    if (in->o.task && by_task_find(in->o.task, &s.task)) {
        s.new_head = true;
        s.labels = 2;
    }
    return s;
}

/* "family:preset" */
static by_status open_preset(inspection *in, const char *colon)
{
    char *family = base_sprintf("%.*s", (int)(colon - in->what), in->what);
    if (!family)
        return BY_ERR_MEMORY;
    by_model_spec spec = spec_of(in);
    spec.blank = true;
    in->model =
        by_model_new(&in->device, family, &(by_model_shape){.preset = colon + 1, .dropout = -1}, &spec);
    base_free(family);
    return in->model ? BY_OK : base_error_status();
}

static by_status open_model(inspection *in)
{
    const char *colon = strchr(in->what, ':');
    in->device.backend = &gr_null_backend;
    BY_TRY(cli_lora_parse(&in->o.adapters, &in->lora));
    in->lora.spec.blank = true;
    if (colon && !base_dir_exists(in->what))
        return open_preset(in, colon);
    in->dir = cli_model_dir(in->what);
    if (!in->dir)
        return base_error_status();
    BY_TRY(find_stored(in));
    if (!in->o.dtype_given)
        in->o.dtype = in->stored;
    const by_model_spec spec = spec_of(in);
    in->model = by_model_open(&in->device, in->dir, &spec);
    return in->model ? BY_OK : base_error_status();
}

/* ---- programs -------------------------------------------------------------------------------- */

static bool is_pair(const by_model *m)
{
    return by_model_is_pair(m) && by_model_task(m) != BY_TASK_ENCODER;
}

static bool reads_texts(const by_model *m)
{
    return by_model_vocab(m) > 0;
}

static by_plan_spec plan_spec(const inspection *in, by_plan_mode m)
{
    return (by_plan_spec){.mode = m, .batch = in->o.batch, .seq = in->o.seq, .dtype = in->o.dtype};
}

static by_status make_plan(inspection *in, by_plan_mode m)
{
    by_plan_spec spec = plan_spec(in, m);
    BY_TRY(by_model_plan(in->model, &spec, &in->plans[m]));
    in->has[m] = true;
    if (m != BY_PLAN_TRAIN)
        return BY_OK;
    spec.recompute = true;
    return by_model_plan(in->model, &spec, &in->recomputed);
}

static by_status make_plans(inspection *in)
{
    for (by_plan_mode m = 0; m < BY_PLAN_MODES; m++) {
        const bool asked = in->o.mode && strcmp(in->o.mode, mode_names[m]) == 0;
        const bool stored = m == BY_PLAN_TRAIN && in->o.weights && !in->o.freeze && !in->lora.words;
        if (asked && stored && by_model_plans(in->model, m))
            return base_fail(BY_ERR_ARGUMENT,
                             "weights of type %s cannot be trained: use --freeze, --lora or --ia3",
                             in->o.weights);
        if (asked || (!in->o.mode && !stored && by_model_plans(in->model, m)))
            BY_TRY(make_plan(in, m));
    }
    return BY_OK;
}

static by_status print_graph(const inspection *in)
{
    by_plan_mode m = BY_PLAN_FORWARD;
    by_plan plan;
    while (in->o.mode && strcmp(in->o.mode, mode_names[m]) != 0)
        m++;
    by_plan_spec spec = plan_spec(in, m);
    spec.recompute = in->o.recompute;
    spec.text = strcmp(in->o.graph, "dot") == 0 ? BY_PLAN_DOT : BY_PLAN_LISTING;
    BY_TRY(by_model_plan(in->model, &spec, &plan));
    fputs(plan.text, stdout);
    by_string_free(plan.text);
    return BY_OK;
}

/* ---- groups of parameters -------------------------------------------------------------------- */

/* "transformer.h.3.attn.c_attn.weight" -> "transformer.h.*.attn.c_attn". Heap string. */
static char *group_name(const char *name)
{
    base_buf b = {0};
    const char *end = strrchr(name, '.');
    for (const char *at = name; end && at < end;) {
        size_t n = strcspn(at, ".");
        bool number = n > 0 && strspn(at, "0123456789") == n;
        base_buf_printf(&b, "%s%.*s", at == name ? "" : ".", number ? 1 : (int)n, number ? "*" : at);
        at += n + 1;
    }
    if (!end)
        base_buf_puts(&b, name);
    if (b.failed) {
        base_buf_free(&b);
        base_fail(BY_ERR_MEMORY, "out of memory");
    }
    return b.data;
}

static by_status make_groups(inspection *in)
{
    const by_params *p = by_model_params(in->model);
    in->groups = base_alloc_zero((size_t)by_params_count(p) + 1, sizeof *in->groups);
    if (!in->groups)
        return BY_ERR_MEMORY;
    for (int i = 0; i < by_params_count(p); i++) {
        char *name = group_name(by_params_name(p, i));
        if (!name)
            return base_error_status();
        int k = 0;
        while (k < in->n_groups && strcmp(in->groups[k].name, name) != 0)
            k++;
        if (k == in->n_groups)
            in->groups[in->n_groups++].name = name;
        else
            base_free(name);
        int64_t n = 1;
        for (int d = 0; d < by_params_rank(p, i); d++)
            n *= by_params_shape(p, i)[d];
        in->groups[k].tensors++;
        in->groups[k].elements += n;
    }
    return BY_OK;
}

/* ---- the model in text ----------------------------------------------------------------------- */

static void print_plan(const char *name, const by_plan *p)
{
    size_t all = p->weights + p->gradients + p->optimizer + p->activations + p->cache;
    printf("  %-16s %11s %11s %11s %12s %11s %11s   %s\n", name, cli_bytes_text(p->weights).s,
           cli_bytes_text(p->gradients).s, cli_bytes_text(p->optimizer).s, cli_bytes_text(p->activations).s,
           cli_bytes_text(p->cache).s, cli_bytes_text(all).s, cli_flops_text(p->flops).s);
}

static void print_plans(const inspection *in)
{
    const char *unit = reads_texts(in->model) ? "token" : "position";
    printf("\nmemory in %s for %d x %d %ss%s, and work per %s\n", by_dtype_name(in->o.dtype), in->o.batch,
           in->o.seq, unit, is_pair(in->model) ? " of sources and as many of texts" : "", unit);
    printf("  %-16s %11s %11s %11s %12s %11s %11s   per %s\n", "", "weights", "gradients", "optimiser",
           "activations", "cache", "all", unit);
    for (by_plan_mode m = 0; m < BY_PLAN_MODES; m++) {
        if (in->has[m])
            print_plan(mode_names[m], &in->plans[m]);
        if (in->has[m] && m == BY_PLAN_TRAIN)
            print_plan("train, recompute", &in->recomputed);
    }
    const size_t cache = in->plans[BY_PLAN_DECODE].cache / (size_t)in->o.batch;
    if (in->has[BY_PLAN_DECODE] && by_model_is_recurrent(in->model) && !is_pair(in->model))
        printf("  cache: a state of %s per sequence, whatever its length\n", cli_bytes_text(cache).s);
    else if (in->has[BY_PLAN_DECODE])
        printf("  cache: %s per token of a %s; decoding counted with it full\n",
               cli_bytes_text(cache / (size_t)in->o.seq).s,
               is_pair(in->model) ? "text and its source" : "sequence");
}

/* Columns for the longest group name. */
static int name_width(const inspection *in)
{
    int wide = 38;
    for (int i = 0; i < in->n_groups; i++)
        wide = BY_MAX(wide, (int)strlen(in->groups[i].name));
    return wide;
}

static void print_params(const by_params *p)
{
    printf("\n%-48s %s\n", "parameter", "shape");
    for (int i = 0; i < by_params_count(p); i++)
        printf("%-48s %s\n", by_params_name(p, i),
               cli_shape_text(by_params_rank(p, i), by_params_shape(p, i)).s);
}

static void print_model(const inspection *in)
{
    const by_model *m = in->model;
    const by_params *p = by_model_params(m);
    double all = (double)by_params_elements(p);
    printf("%s, %s\n", by_model_title(m), by_model_class(m));
    by_pictures pictures;
    printf("  %s, %s, width %d", cli_counted(by_model_layers(m), "layer").s,
           cli_counted(by_model_heads(m), "head").s, by_model_width(m));
    if (reads_texts(m))
        printf(", context %d, vocabulary %d", by_model_context(m), by_model_vocab(m));
    printf("\n");
    if (by_model_pictures(m, &pictures))
        printf("  pictures of %d x %d x %d in patches of %d x %d: %d positions\n", pictures.channels,
               pictures.height, pictures.width, pictures.patch, pictures.patch,
               by_pictures_positions(&pictures, pictures.height, pictures.width));
    if (by_model_task(m) == BY_TASK_CLASSIFY)
        printf("  %s\n", cli_counted(by_model_labels(m), "label").s);
    if (in->dir) {
        printf("  stored as %s in %s", by_dtype_name(in->stored), in->dir);
        cli_inspect_stored(in->dir, by_params_count(p), by_params_elements(p));
        cli_inspect_companions(in->dir);
    }
    const int wide = name_width(in);
    printf("\n%-*s %8s %16s\n", wide + 2, "parameters", "tensors", "elements");
    for (int i = 0; i < in->n_groups; i++)
        printf("  %-*s %8d %16s  %5.1f%%\n", wide, in->groups[i].name, in->groups[i].tensors,
               cli_count_text(in->groups[i].elements).s, 100 * (double)in->groups[i].elements / all);
    printf("  %-*s %8d %16s\n", wide, "all", by_params_count(p), cli_count_text(by_params_elements(p)).s);
    const by_params *own = by_adapter_params(by_model_adapter(m)), *trained = by_model_trained(m);
    if (own)
        printf("  %-*s %8d %16s  %5.1f%%\n", wide, "adapter", by_params_count(own),
               cli_count_text(by_params_elements(own)).s, 100 * (double)by_params_elements(own) / all);
    if (in->o.freeze || own)
        printf("  %-*s %8s %16s  %5.1f%%\n", wide, "trained", "",
               cli_count_text(by_params_trained(trained)).s, 100 * (double)by_params_trained(trained) / all);
    print_plans(in);
    if (in->o.params)
        print_params(p);
    if (in->o.params && own)
        print_params(own);
}

/* ---- the model as JSON ----------------------------------------------------------------------- */

static void add_plans(const inspection *in, cJSON *j)
{
    cJSON *modes = cJSON_AddObjectToObject(j, "modes");
    for (by_plan_mode m = 0; m < BY_PLAN_MODES; m++) {
        const by_plan *p = &in->plans[m];
        if (!in->has[m])
            continue;
        cJSON *o = cJSON_AddObjectToObject(modes, mode_names[m]);
        cJSON_AddNumberToObject(o, "weight_bytes", (double)p->weights);
        if (m == BY_PLAN_TRAIN) {
            cJSON_AddNumberToObject(o, "gradient_bytes", (double)p->gradients);
            cJSON_AddNumberToObject(o, "optimizer_bytes", (double)p->optimizer);
            cJSON_AddNumberToObject(o, "activation_bytes_recompute", (double)in->recomputed.activations);
            cJSON_AddNumberToObject(o, "flops_per_token_recompute", in->recomputed.flops);
        }
        cJSON_AddNumberToObject(o, "activation_bytes", (double)p->activations);
        if (m == BY_PLAN_DECODE) {
            cJSON_AddNumberToObject(o, "cache_bytes", (double)p->cache);
            cJSON_AddNumberToObject(o, "cache_bytes_per_token", (double)p->cache / in->o.batch / in->o.seq);
        }
        cJSON_AddNumberToObject(o, "flops_per_token", p->flops);
    }
}

static void add_params(const inspection *in, cJSON *j)
{
    const by_params *p = by_model_params(in->model);
    cJSON *groups = cJSON_AddArrayToObject(j, "groups");
    for (int i = 0; i < in->n_groups; i++) {
        cJSON *o = cJSON_CreateObject();
        cJSON_AddStringToObject(o, "name", in->groups[i].name);
        cJSON_AddNumberToObject(o, "tensors", in->groups[i].tensors);
        cJSON_AddNumberToObject(o, "elements", (double)in->groups[i].elements);
        cJSON_AddItemToArray(groups, o);
    }
    cJSON *list = in->o.params ? cJSON_AddArrayToObject(j, "tensors") : NULL;
    for (int i = 0; list && i < by_params_count(p); i++) {
        cJSON *o = cJSON_CreateObject();
        cJSON_AddStringToObject(o, "name", by_params_name(p, i));
        cJSON_AddItemToObject(o, "shape", cli_shape_json(by_params_rank(p, i), by_params_shape(p, i)));
        cJSON_AddItemToArray(list, o);
    }
}

static int print_model_json(const inspection *in)
{
    const by_model *m = in->model;
    cJSON *j = cJSON_CreateObject();
    cJSON_AddStringToObject(j, "model", in->what);
    cJSON_AddStringToObject(j, "family", by_model_family(m));
    cJSON_AddStringToObject(j, "class", by_model_class(m));
    cJSON_AddNumberToObject(j, "layers", by_model_layers(m));
    cJSON_AddNumberToObject(j, "heads", by_model_heads(m));
    cJSON_AddNumberToObject(j, "width", by_model_width(m));
    cJSON_AddNumberToObject(j, "context", by_model_context(m));
    cJSON_AddNumberToObject(j, "vocab", by_model_vocab(m));
    by_pictures pictures;
    if (by_model_pictures(m, &pictures)) {
        cJSON *o = cJSON_AddObjectToObject(j, "pictures");
        cJSON_AddNumberToObject(o, "channels", pictures.channels);
        cJSON_AddNumberToObject(o, "height", pictures.height);
        cJSON_AddNumberToObject(o, "width", pictures.width);
        cJSON_AddNumberToObject(o, "patch", pictures.patch);
        cJSON_AddNumberToObject(o, "tokens", pictures.tokens);
    }
    if (by_model_task(m) == BY_TASK_CLASSIFY)
        cJSON_AddNumberToObject(j, "labels", by_model_labels(m));
    cJSON_AddNumberToObject(j, "parameters", (double)by_params_elements(by_model_params(m)));
    cJSON_AddNumberToObject(j, "trained_parameters", (double)by_params_trained(by_model_trained(m)));
    if (by_model_adapter(m))
        cJSON_AddNumberToObject(j, "adapter_parameters",
                                (double)by_params_elements(by_adapter_params(by_model_adapter(m))));
    if (in->dir) {
        cJSON_AddStringToObject(j, "stored_dtype", by_dtype_name(in->stored));
        cli_inspect_companions_json(in->dir, j);
    }
    cJSON_AddStringToObject(j, "dtype", by_dtype_name(in->o.dtype));
    cJSON_AddNumberToObject(j, "batch", in->o.batch);
    cJSON_AddNumberToObject(j, "seq", in->o.seq);
    add_params(in, j);
    add_plans(in, j);
    return cli_print_json(j);
}

/* ---- all of it ------------------------------------------------------------------------------- */

static by_status inspect(inspection *in)
{
    BY_TRY(open_model(in));
    int context = by_model_context(in->model);
    if (in->o.seq_given && !reads_texts(in->model))
        return base_fail(BY_ERR_ARGUMENT, "--seq: %s reads pictures, not sequences of a given length",
                         base_a(by_model_class(in->model)).text);
    if (!in->o.seq_given)
        in->o.seq = context;
    if (in->o.seq > context && by_model_is_limited(in->model))
        return base_fail(BY_ERR_ARGUMENT, "--seq %d: the model's context is %d", in->o.seq, context);
    if (in->o.graph)
        return print_graph(in);
    BY_TRY(make_groups(in));
    return make_plans(in);
}

static void close_inspection(inspection *in)
{
    for (int i = 0; i < in->n_groups; i++)
        base_free(in->groups[i].name);
    base_free(in->groups);
    by_model_free(in->model);
    cli_lora_free(&in->lora);
    base_free(in->dir);
}

/* The model cannot be built here, but its files can be shown. */
static int show_folder(inspection *in)
{
    char *why = base_strdup(by_error_message());
    cli_note("%s", why ? why : "");
    base_free(why);
    return cli_inspect_folder(in->dir, &in->o);
}

int cli_inspect_model(const char *what, const inspect_options *o)
{
    inspection in = {.what = what, .o = *o};
    int code = CLI_OK;
    by_status s = inspect(&in);
    if (s == BY_ERR_UNSUPPORTED && in.dir && !in.model)
        code = show_folder(&in);
    else if (s != BY_OK)
        code = cli_fail(in.dir || in.model
                            ? NULL
                            : "name a model without a directory FAMILY:PRESET, for example gpt2:124m");
    else if (in.o.json && !in.o.graph)
        code = print_model_json(&in);
    else if (!in.o.graph)
        print_model(&in);
    close_inspection(&in);
    return code;
}
