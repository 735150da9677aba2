/* verb_distill.c - `banyan distill`: a student learns from a teacher. */
#include <math.h>
#include <stdlib.h>

#include "align/distill_run.h"
#include "banyan/distill.h"
#include "base/file.h"
#include "cli/common.h"
#include "cli/config_file.h"
#include "cli/learning.h"
#include "cli/run_screen.h"
#include "cli/show.h"
#include "cli/task_options.h"
#include "cli/train_scope.h"
#include "cli/verbs.h"

typedef struct distill_options {
    by_distill_run_spec run;
    cli_learning l;
    cli_task_options t;
    cli_list data, eval_data, prefixes;
    cli_list files, eval_files; /* of data and eval_data */
    const char *student, *student_layers, *layer_map;
    cli_args own; /* the options of this call */
    int layers, layer_list[BY_MAX_LAYERS], map_list[BY_MAX_LAYERS];
} distill_options;

static const cli_option options[] = {
    {CLI_AT(distill_options, student), .name = "student", .letter = 's', .value = "DIR|FAMILY",
     .help = "model directory or run folder, or the family of a new student (default: layers of the teacher)",
     .group = "Student"},
    {CLI_AT(distill_options, student_layers), .name = "student-layers", .value = "I,J,...",
     .help = "layers of the teacher that form the student, counted from 0"},
    {CLI_AT(distill_options, layers), .name = "layers", CLI_RANGE(1, BY_MAX_LAYERS),
     .help = "use N evenly spaced layers of the teacher, including the first and the last (default: half); "
             "with --student FAMILY: layers of the new student"},
    {CLI_AT(distill_options, run.student.shape.preset), .name = "preset", .value = "NAME",
     .help = "new student: shape by name (default: the family's smallest)"},
    {CLI_AT(distill_options, run.student.shape.width), .name = "width", CLI_MIN(1),
     .help = "new student: model width (default: the preset's)"},
    {CLI_AT(distill_options, run.student.shape.heads), .name = "heads", CLI_MIN(1),
     .help = "new student: attention heads (default: the preset's)"},
    {CLI_AT(distill_options, run.student.shape.inner), .name = "inner", CLI_MIN(1),
     .help = "new student: feed-forward width (default: four times the width)"},
    {CLI_AT(distill_options, run.student.shape.decoder_layers), .name = "decoder-layers", CLI_MIN(1),
     .help = "new student: decoder layers of an encoder-decoder (default: --layers)"},
    {CLI_AT(distill_options, run.dropout), .name = "dropout", CLI_RANGE(0, 0.99),
     .help = "dropout probability of the student (default: its own)"},

    {CLI_AT(distill_options, run.kind), .name = "task", .choices = "auto|text|examples|vectors|translate",
     .preset = "auto",
     .help = "training data: plain text, labelled examples, sentences and their vectors, pairs of texts; "
             "auto decides by the teacher's head",
     .group = "Data"},
    {CLI_AT(distill_options, data), .name = "data", .letter = 'd', .value = "FILE",
     .help = "training data, as for train (text, translate) and finetune (examples); vectors: one sentence "
             "per line"},
    {CLI_AT(distill_options, eval_data), .name = "eval", .letter = 'e', .value = "FILE",
     .help = "data to evaluate on; the best student is kept"},
    {CLI_AT(distill_options, run.eval_fraction), .name = "eval-fraction", CLI_RANGE(0, 0.9), .preset = "0.1",
     .help = "text, vectors, translate: without --eval, hold out this share at the end of the data"},
    CLI_TASK_ROWS(distill_options, t),
    {CLI_AT(distill_options, t.limit), .name = "max-length", .alias = "seq", CLI_MIN(1), .suffix = true,
     .help = "maximum tokens per row (default: the student's context)"},
    {CLI_AT(distill_options, t.overlap), .name = "stride", CLI_MIN(1),
     .help = "questions, tags: tokens shared by consecutive windows of a long text (default: 128)"},
    {CLI_AT(distill_options, run.objective.name), .name = "objective",
     .choices = "lm|mlm|translate|spans|infill|fim",
     .help = "text, translate: training objective (default: by the teacher's head)"},
    {CLI_AT(distill_options, prefixes), .name = "prefix", .value = "TEXT",
     .help = "translate: put TEXT before the source"},

    {CLI_AT(distill_options, run.recipe), .name = "recipe", .value = "NAME",
     .help = "weights of the terms below: distilbert, tinybert, minilm (default: soft 1, task loss 1, "
             "temperature 2; vectors: vector cosine 1)",
     .group = "Loss"},
    {CLI_AT(distill_options, run.terms.temperature), .name = "temperature", CLI_RANGE(0.01, 1000),
     .help = "temperature of both distributions (default: the recipe's)"},
    {CLI_AT(distill_options, run.terms.soft), .name = "soft", CLI_RANGE(0, 1e6),
     .help = "weight of the divergence from the teacher's distribution (default: the recipe's)"},
    {CLI_AT(distill_options, run.terms.task), .name = "task-loss", CLI_RANGE(0, 1e6),
     .help = "weight of the loss of the targets themselves (default: the recipe's)"},
    {CLI_AT(distill_options, run.terms.cosine), .name = "cosine", CLI_RANGE(0, 1e6),
     .help = "weight of 1 - cos of the last hidden states (default: the recipe's)"},
    {CLI_AT(distill_options, run.terms.hidden), .name = "hidden", CLI_RANGE(0, 1e6),
     .help = "weight of the squared error of the last hidden states (default: 0)"},
    {CLI_AT(distill_options, run.terms.layers), .name = "hidden-layers", CLI_RANGE(0, 1e6),
     .help = "weight of the squared error of the embeddings and of every layer (default: the recipe's)"},
    {CLI_AT(distill_options, run.terms.attention), .name = "attention", CLI_RANGE(0, 1e6),
     .help = "weight of the squared error of every layer's attention scores (default: the recipe's)"},
    {CLI_AT(distill_options, run.terms.relations), .name = "relations", CLI_RANGE(0, 1e6),
     .help = "weight of the divergences of the last layer's attention and value relations (default: the "
             "recipe's)"},
    {CLI_AT(distill_options, run.terms.vector_cosine), .name = "vector-cosine", CLI_RANGE(0, 1e6),
     .help = "vectors: weight of 1 - cos of student and teacher (default: 1)"},
    {CLI_AT(distill_options, run.terms.vector_error), .name = "vector-error", CLI_RANGE(0, 1e6),
     .help = "vectors: weight of their squared error (default: 0)"},
    {CLI_AT(distill_options, run.terms.vector_similarity), .name = "vector-similarity", CLI_RANGE(0, 1e6),
     .help = "vectors: weight of the squared error of the cosines of all pairs of a batch (default: 0)"},
    {CLI_AT(distill_options, layer_map), .name = "layer-map", .value = "I,J,...",
     .help = "the teacher's layer, from 1, that each layer of the student learns from (default: evenly)"},
    {CLI_AT(distill_options, run.soft_at_masked), .name = "soft-at-masked",
     .help = "masked language models: compare distributions only at masked positions"},
    {CLI_AT(distill_options, run.sequence), .name = "sequence",
     .help = "translate: train on the teacher's translations, which are generated once and stored in "
             "DIR/teacher"},
    {CLI_AT(distill_options, run.beams), .name = "beams", CLI_RANGE(1, BY_BEAMS_MAX),
     .help = "--sequence: beams of that search (default: those of the teacher's directory, otherwise 5)"},
    {CLI_AT(distill_options, run.store), .name = "store-logits",
     .help = "store the teacher's logits in DIR/teacher, so that each row is computed once instead of once "
             "per epoch"},
    {CLI_AT(distill_options, run.store_top), .name = "store-top", CLI_RANGE(0, 1024), .preset = "0",
     .help = "--store-logits: store the N highest of each position and the sum of the others; 0 stores all"},

    {CLI_AT(distill_options, run.batch), .name = "batch-size", .alias = "batch", .letter = 'b',
     CLI_RANGE(1, 1e6), .help = "rows per step (default: 32)", .group = "Steps"},
    {CLI_AT(distill_options, run.batch_tokens), .name = "batch-tokens", CLI_RANGE(8, 1e8), .preset = "2048",
     .suffix = true, .help = "translate: tokens per step instead, in rows of similar length"},
    {CLI_AT(distill_options, run.label_smoothing), .name = "label-smoothing", CLI_RANGE(0, 0.99),
     .preset = "0", .help = "translate: share of each target spread over all tokens"},
    {CLI_AT(distill_options, run.work.batch), .name = "eval-batch-size", CLI_RANGE(1, 1e6), .preset = "32",
     .help = "examples, vectors: rows per batch in evaluation"},
    CLI_ACCUMULATE_ROW(distill_options, run),
    {CLI_AT(distill_options, run.epochs), .name = "epochs", CLI_MIN(1e-6),
     .help = "length in epochs (default: as train and finetune choose; vectors: 3)"},
    {CLI_AT(distill_options, run.steps), .name = "max-steps", .alias = "steps", .letter = 'n', CLI_MIN(1),
     .suffix = true, .help = "length in steps instead"},
    CLI_PATIENCE_ROW(distill_options, run),

    {CLI_AT(distill_options, run.optimizer.kind), .name = "optimizer", .choices = "adamw|sgd|adafactor",
     .preset = "adamw", .help = "optimiser", .group = "Optimiser"},
    {CLI_AT(distill_options, run.schedule.rate), .name = "learning-rate", .alias = "lr", CLI_RANGE(0, 100),
     .help = "peak learning rate (default: text, translate: as train; examples: as finetune; vectors: 3e-4)"},
    {CLI_AT(distill_options, run.schedule.kind), .name = "lr-scheduler",
     .choices = "constant|linear|cosine|inverse-sqrt", .preset = "linear",
     .help = "learning-rate schedule, ending at 0"},
    {CLI_AT(distill_options, run.warmup_share), .name = "warmup-ratio", CLI_RANGE(0, 1), .preset = "0.1",
     .help = "share of the run for linear warm-up"},
    {CLI_AT(distill_options, run.schedule.warmup), .name = "warmup-steps", .alias = "warmup", CLI_MIN(0),
     .help = "steps of linear warm-up instead"},
    CLI_DECAY_ROW(distill_options, run, "0.01"),
    CLI_ADAM_ROWS(distill_options, run, "0.999"),
    CLI_CLIP_ROW(distill_options, run),

    CLI_RUN_ROWS(distill_options, run,
                 "output directory, also the run folder; the same command continues a run in it",
                 "each epoch; text, translate: a tenth of the run"),
    {CLI_AT(distill_options, run.eval_batches), .name = "eval-batches", CLI_MIN(0),
     .help = "text, translate: batches per evaluation; 0 takes all (default: as many as there are steps "
             "between two)"},
    CLI_SAVE_ROWS(distill_options, run),
    CLI_LOG_ROWS(distill_options, run, "seed of a new student, the data order and dropout"),

    CLI_MACHINE_ROWS(distill_options, run),

    CLI_JSON_ROW(distill_options),
    CLI_CURVE_ROWS(distill_options),
};

/* ---- options ----------------------------------------------------------------------------------- */

/* Parses "0,2,4". Returns the count, or -1 after reporting an error. */
static int read_list(const char *option, const char *text, int *out)
{
    int n = 0;
    for (const char *at = text; at; n++) {
        char *end;
        const long value = strtol(at, &end, 10);
        if (end == at || (*end && *end != ',') || value < 0 || value > BY_MAX_LAYERS || n == BY_MAX_LAYERS) {
            cli_usage_fail("--%s: \"%s\" is not a list of layers such as 0,2,4", option, text);
            return -1;
        }
        out[n] = (int)value;
        at = *end ? end + 1 : NULL;
    }
    return n;
}

/* Weights that were not given are NaN here. The library reads 0 as the default and a negative number as 0. */
static void mark_weights(by_distill_spec *t, bool read)
{
    double *all[] = {
        &t->soft,      &t->task,      &t->cosine,        &t->hidden,       &t->layers,
        &t->attention, &t->relations, &t->vector_cosine, &t->vector_error, &t->vector_similarity};
    for (int i = 0; i < BY_COUNT(all); i++)
        *all[i] = !read ? (double)NAN : isnan(*all[i]) ? 0 : cli_or_none(*all[i]);
}

static bool read_student(distill_options *o, char **dir)
{
    by_student *s = &o->run.student;
    s->layer_count = s->shape.layers = o->layers;
    s->shape.dropout = -1;
    if (o->student && o->student_layers) {
        cli_usage_fail("--student and --student-layers exclude each other");
        return false;
    }
    if (o->student_layers) {
        s->layer_count = read_list("student-layers", o->student_layers, o->layer_list);
        s->layers = o->layer_list;
        return s->layer_count > 0;
    }
    if (!o->student)
        return true;
    for (int i = 0; by_family_at(i); i++)
        if (strcmp(by_family_at(i), o->student) == 0 && !base_dir_exists(o->student)) {
            s->family = o->student;
            return true;
        }
    s->model = *dir = cli_model_dir(o->student);
    return *dir != NULL;
}

/* Why the options conflict, or NULL. */
static const char *conflict(const distill_options *o)
{
    static const char *const shape[] = {"preset", "width", "heads", "inner", "decoder-layers", NULL};
    const bool takes = !o->run.student.family;
    if (takes && cli_given_among(&o->own, shape))
        return "--preset, --width, --heads, --inner and --decoder-layers are for a new student: --student "
               "FAMILY";
    if (o->run.student.model && cli_given(&o->own, &o->layers))
        return "--layers does not go with a student that exists: it keeps its layers";
    if (o->student_layers && cli_given(&o->own, &o->layers))
        return "--layers and --student-layers exclude each other";
    if (o->eval_data.count && cli_given(&o->own, &o->run.eval_fraction))
        return "--eval-fraction and --eval exclude each other";
    if (!o->run.sequence && cli_given(&o->own, &o->run.beams))
        return "--beams needs --sequence";
    if (!o->run.store && o->run.store_top)
        return "--store-top needs --store-logits";
    return NULL;
}

/* Names of the tasks of labelled examples. */
static const char *const example_names[] = {[BY_EXAMPLE_CLASSIFY] = "classify",
                                            [BY_EXAMPLE_REGRESS] = "regress",
                                            [BY_EXAMPLE_TAG] = "tag",
                                            [BY_EXAMPLE_ANSWER] = "answer",
                                            [BY_EXAMPLE_CHOICE] = "choice"};

/* False: an option of another kind of teacher was given, which has been said. A teacher that cannot be opened
 * is left to the run. */
static bool fits_kind(const distill_options *o, by_device *d)
{
    enum {
        TEXT = 1 << BY_DISTILL_TEXT,
        EXAMPLES = 1 << BY_DISTILL_EXAMPLES,
        VECTORS = 1 << BY_DISTILL_VECTORS,
        TRANSLATE = 1 << BY_DISTILL_TRANSLATE
    };
    static const cli_scope scopes[] = {
        {"eval-fraction", TEXT | VECTORS | TRANSLATE, "text, vectors and translate"},
        {"objective", TEXT | TRANSLATE, "text and translate"},
        {"eval-batches", TEXT | TRANSLATE, "text and translate"},
        {"eval-batch-size", EXAMPLES | VECTORS, "examples and vectors"},
        {"prefix", TRANSLATE, "translate"},
        {"temperature", TEXT | EXAMPLES | TRANSLATE, "text, examples and translate"},
        {"batch-tokens", TRANSLATE, "translate"},
        {"batch-size", TEXT | EXAMPLES | VECTORS, "text, examples and vectors (translate: --batch-tokens)"},
        {"label-smoothing", TRANSLATE, "translate"},
        {"format", EXAMPLES, "examples"},
        {"header", EXAMPLES, "examples"},
        {"text", EXAMPLES, "examples"},
        {"pair", EXAMPLES, "examples"},
        {"label", EXAMPLES, "examples"},
        {"choices", EXAMPLES, "examples"},
        {"label-separator", EXAMPLES, "examples"},
        {"max-answer-length", EXAMPLES, "examples"},
        {"null-threshold", EXAMPLES, "examples"},
        {"stride", EXAMPLES, "examples"},
        {"predictions", EXAMPLES, "examples"}};
    by_model *m = by_model_open(d, o->run.teacher, &(by_model_spec){0});
    const by_distill_kind kind = m ? distill_kind_of(m, o->run.teacher, o->run.kind) : BY_DISTILL_AUTO;
    const cli_scope *row = m ? cli_given_outside(&o->own, scopes, BY_COUNT(scopes), 1u << kind) : NULL;
    const by_example_kind examples = m ? distill_example_kind(m) : BY_EXAMPLE_CLASSIFY;
    by_model_free(m);
    base_error_clear();
    if (row)
        cli_usage_fail("--%s is for %s, not for %s, which this teacher teaches", row->option, row->names,
                       by_distill_name(kind));
    return !row && (kind != BY_DISTILL_EXAMPLES || cli_task_fits(examples, example_names[examples], &o->own));
}

static bool fill_spec(distill_options *o, const cli_args *args, cli_run_screen *screen)
{
    by_distill_run_spec *t = &o->run;
    by_distill_run_spec usual = by_distill_defaults();
    mark_weights(&usual.terms, false);
    cli_options_default(args, t, &usual, sizeof *t);
    mark_weights(&t->terms, true);
    const int eval_batch = t->work.batch;
    if (!cli_task_read(&o->t, "classify", &t->reading, &t->work))
        return false;
    t->work.batch = eval_batch;
    t->work.limit = o->t.limit;
    if (o->layer_map && (t->map_count = read_list("layer-map", o->layer_map, o->map_list)) < 0)
        return false;
    t->terms.map = o->layer_map ? o->map_list : NULL;
    t->dtype = o->l.bf16 ? BY_BF16 : t->dtype;
    cli_adam_read(&t->optimizer);
    t->predictions = o->t.predictions;
    if (cli_list_split(&o->files, o->data.items, o->data.count) != BY_OK ||
        cli_list_split(&o->eval_files, o->eval_data.items, o->eval_data.count) != BY_OK)
        return cli_usage_fail("%s", by_error_message()) == CLI_OK;
    t->data = o->files.items;
    t->data_count = o->files.count;
    t->eval_data = o->eval_files.items;
    t->eval_count = o->eval_files.count;
    t->objective.prefixes = o->prefixes.items;
    t->objective.prefix_count = o->prefixes.count;
    t->report = cli_run_report;
    t->wrote = cli_run_wrote;
    t->cancelled = cli_poll;
    t->user = screen;
    return true;
}

/* ---- the result -------------------------------------------------------------------------------- */

static int print_json(const distill_options *o, const by_distill_result *r)
{
    cJSON *j = cJSON_CreateObject();
    cJSON_AddStringToObject(j, "out", o->run.out);
    cJSON_AddStringToObject(j, "task", by_distill_name(r->kind));
    cJSON_AddNumberToObject(j, "steps", (double)r->steps);
    cJSON_AddNumberToObject(j, "resumed_from", (double)r->resumed_from);
    cJSON_AddNumberToObject(j, "parameters", (double)r->parameters);
    cJSON_AddNumberToObject(j, "teacher_parameters", (double)r->teacher_parameters);
    cJSON_AddNumberToObject(j, "layers", r->layers);
    cJSON_AddNumberToObject(j, "teacher_layers", r->teacher_layers);
    cli_json_number(j, "train_loss", r->loss);
    cJSON_AddNumberToObject(j, "best_step", (double)r->best_step);
    cJSON_AddNumberToObject(j, "seconds", r->seconds);
    cJSON_AddNumberToObject(j, "state_bytes", (double)r->state_bytes);
    cJSON_AddNumberToObject(j, "activation_bytes", (double)r->activation_bytes);
    if (r->evaluated)
        cli_task_json(j, &r->best);
    return cli_print_json(j);
}

static int print_result(const distill_options *o, const by_distill_result *r)
{
    if (o->l.json)
        return print_json(o, r);
    if (!o->l.quiet)
        cli_show_curve(o->run.out, r->loss_unit, o->l.curve);
    if (r->resumed_from == r->steps)
        cli_note_finished(o->run.out, r->steps);
    cli_steps_print(&(cli_steps){.steps = r->steps,
                                 .resumed_from = r->resumed_from,
                                 .best = r->evaluated ? r->best_step : 0,
                                 .seconds = r->seconds,
                                 .stopped_early = r->stopped_early});
    printf("\n");
    printf("student: %d of %d layers, %.2f M of %.2f M parameters\n", r->layers, r->teacher_layers,
           (double)r->parameters / 1e6, (double)r->teacher_parameters / 1e6);
    if (r->evaluated && r->best.n_metrics)
        cli_task_print(&r->best);
    else if (r->evaluated)
        printf("loss %.4f\n", r->best.loss);
    printf("model: %s\n", o->run.out);
    return CLI_OK;
}

/* Advice after a diverged run. */
static const char *const slower = "use a lower --learning-rate";
static const char *const smaller = "use a smaller --batch-size with more --gradient-accumulation-steps, "
                                   "--recompute, --bf16, or a shorter --max-length";

/* Returns false after reporting an option that would change nothing. */
static bool fits(const distill_options *o)
{
    const arch_family *fresh = o->run.student.family ? arch_find(o->run.student.family) : NULL;
    if (conflict(o)) {
        cli_usage_fail("%s", conflict(o));
        return false;
    }
    return (!fresh || cli_shape_fits(fresh, &o->own)) &&
           cli_optimizer_fits(o->run.optimizer.kind, o->run.schedule.kind, &o->own);
}

static int start(distill_options *o, const char *teacher, cli_run_screen *screen)
{
    by_distill_result result;
    char *dir = cli_model_dir(teacher);
    by_device *d = dir ? cli_device(o->l.device, o->l.threads) : NULL;
    int code = CLI_USAGE;
    o->run.teacher = dir;
    cli_interrupt_install();
    if (!d || fits_kind(o, d)) {
        const by_status status = d ? by_distill_run(d, &o->run, &result) : base_error_status();
        cli_run_end(screen);
        code = status == BY_OK ? print_result(o, &result) : cli_fail_learning(status, slower, smaller);
    }
    by_device_free(d);
    base_free(dir);
    return code;
}

static int distil(distill_options *o, const cli_args *args)
{
    cli_run_screen screen = {
        .label = "distill", .quiet = o->l.quiet, .log_every = BY_MAX(o->run.log_every, 1)};
    char *student = NULL;
    if (!fill_spec(o, args, &screen))
        return CLI_USAGE;
    if (!read_student(o, &student))
        return base_error_status() == BY_OK ? CLI_USAGE : cli_fail(NULL);
    const int code = fits(o) ? start(o, args->items[0], &screen) : CLI_USAGE;
    base_free(student);
    return code;
}

static int run(int argc, char **argv)
{
    distill_options o;
    cli_command c;
    int code;
    if (!cli_command_open(&cli_distill, &o, sizeof o, argc, argv, &c, &code))
        return code;
    o.run.command = c.line;
    o.run.options = c.given;
    o.own = cli_args_own(&c.args, c.config.earlier);
    if (!o.run.out || !o.data.count)
        code = cli_usage_fail("%s", !o.data.count ? "no data: give --data FILE"
                                                  : "no output directory: give --out DIR");
    else
        code = distil(&o, &c.args);
    cli_list_free(&o.files);
    cli_list_free(&o.eval_files);
    cli_command_close(&c);
    return code;
}

const cli_verb cli_distill = {
    .name = "distill",
    .summary = "train a small model to imitate a large one",
    .args = "TEACHER",
    .description =
        "TEACHER is a model directory or a run folder. The student has the same vocabulary and by default "
        "half of the teacher's layers; --student, --student-layers and --layers select another. The "
        "teacher's head determines the data: plain text for a language model, labelled examples for a model "
        "with labels, sentences for an embedder (with modules.json), pairs of texts for an encoder-decoder.\n"
        "\n"
        "The loss is a weighted sum of terms: the teacher's distributions, the targets, hidden states, "
        "attention, vectors. --recipe sets published weights; each weight can be set separately, and 0 "
        "disables a term. If widths differ, a projection is trained with the student and discarded.\n"
        "\n"
        "DIR becomes a model directory with the best student on the --eval data, or without it the last. It "
        "also holds metrics.jsonl, run.json, loss.svg and checkpoints. The same command continues a stopped "
        "run. docs/DISTIL.md has the equations.",
    .examples = "# half of the layers of a fine-tuned classifier\n"
                "banyan distill runs/sentiment --data train.tsv --eval dev.tsv --out runs/small\n"
                "# DistilBERT's recipe on plain text\n"
                "banyan distill bert-base-uncased --recipe distilbert --student-layers 0,2,4,7,9,11 --data "
                "docs.txt --out runs/d\n"
                "# a new, narrower student that learns every layer\n"
                "banyan distill runs/sentiment --student bert --layers 3 --width 64 --heads 4 --recipe "
                "tinybert --data train.tsv --eval dev.tsv --out runs/tiny\n"
                "# a sentence embedder of 3 layers\n"
                "banyan distill all-MiniLM-L6-v2 --layers 3 --data sentences.txt --out runs/mini\n"
                "# a translator that learns its teacher's translations\n"
                "banyan distill runs/en-de --sequence --data train.en,train.de --out runs/en-de-small\n",
    .options = options,
    .option_count = BY_COUNT(options),
    .run = run,
};
