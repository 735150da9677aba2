/* distill_student.c - the student: layers of the teacher, a saved model or a new one; checks that it can
 * learn from the teacher. */
#include <stdio.h>

#include "align/distill_run.h"
#include "base/base.h"

/* ---- layers of the teacher --------------------------------------------------------------------- */

/* The teacher with the head that the run needs, usually its own. */
static by_status cut_from(const distill_run *r, const by_model *from, const by_model_spec *spec,
                          by_model **out)
{
    const by_student *s = &r->spec.student;
    int even[BY_MAX_LAYERS], count = s->layer_count > 0 ? s->layer_count : (by_model_layers(from) + 1) / 2;
    if (!s->layers) {
        if (count > by_model_layers(from))
            return base_fail(BY_ERR_ARGUMENT, "cannot take %d layers from a teacher with %d", count,
                             by_model_layers(from));
        by_layers_even(by_model_layers(from), count, even);
    }
    *out = by_model_cut(from, s->layers ? s->layers : even, count, spec);
    return *out ? BY_OK : base_error_status();
}

static by_status cut(const distill_run *r, const by_model_spec *spec, by_model **out)
{
    if (by_model_task(r->teacher) == spec->task)
        return cut_from(r, r->teacher, spec, out);
    by_model *other =
        by_model_open(r->device, r->spec.teacher,
                      &(by_model_spec){.dtype = spec->dtype, .task = spec->task, .new_head = true});
    by_status s = other ? cut_from(r, other, spec, out) : base_error_status();
    by_model_free(other);
    return s;
}

/* ---- other models ------------------------------------------------------------------------------ */

static bool has_labels(by_task t)
{
    return t == BY_TASK_CLASSIFY || t == BY_TASK_TAG;
}

static bool same_labels(const by_model *a, const by_model *b)
{
    char name[256];
    if (by_model_labels(a) != by_model_labels(b) || by_model_problem(a) != by_model_problem(b))
        return false;
    for (int i = 0; i < by_model_labels(a); i++) {
        base_format(name, sizeof name, "%s", by_model_label_name(a, i)); /* unnamed labels share one buffer */
        if (strcmp(name, by_model_label_name(b, i)) != 0)
            return false;
    }
    return true;
}

/* Gives the student the teacher's labels, in the same order. */
static by_status name_labels(const distill_run *r, by_model *m)
{
    const int n = by_model_labels(r->teacher);
    by_status s = BY_OK;
    if (!has_labels(by_model_task(m)) || !has_labels(by_model_task(r->teacher)))
        return BY_OK;
    char **names = base_alloc_zero((size_t)n, sizeof *names);
    for (int i = 0; names && i < n && s == BY_OK; i++)
        s = (names[i] = base_strdup(by_model_label_name(r->teacher, i))) ? BY_OK : BY_ERR_MEMORY;
    if (s == BY_OK)
        s = names ? by_model_name_labels(m, (const char *const *)names, n) : BY_ERR_MEMORY;
    for (int i = 0; names && i < n; i++)
        base_free(names[i]);
    base_free(names);
    return s;
}

/* Whether the model in a directory lacks the required head. */
static by_status lacks_head(const distill_run *r, const by_model_spec *spec, bool *out)
{
    by_model *m = by_model_open(r->device, r->spec.student.model, &(by_model_spec){.dtype = spec->dtype});
    if (!m)
        return base_error_status();
    *out = by_model_task(m) != spec->task || (has_labels(spec->task) && !same_labels(m, r->teacher));
    by_model_free(m);
    return BY_OK;
}

static by_status open_directory(const distill_run *r, by_model_spec *spec, by_model **out)
{
    BY_TRY(lacks_head(r, spec, &spec->new_head));
    *out = by_model_open(r->device, r->spec.student.model, spec);
    return *out ? BY_OK : base_error_status();
}

static by_status make_new(const distill_run *r, const by_model_spec *spec, by_model **out)
{
    by_model_shape shape = r->spec.student.shape;
    shape.vocab =
        by_model_is_pair(r->teacher) ? by_model_source_vocab(r->teacher) : by_model_vocab(r->teacher);
    if (by_model_is_pair(r->teacher) && by_model_source_vocab(r->teacher) != by_model_vocab(r->teacher))
        shape.target_vocab = by_model_vocab(r->teacher);
    if (shape.vocab <= 0)
        shape.vocab = by_tokenizer_vocab_size(r->tokenizer);
    if (shape.context <= 0)
        shape.context = by_model_context(r->teacher);
    *out = by_model_new(r->device, r->spec.student.family, &shape, spec);
    if (!*out)
        return base_error_status();
    by_model_set_eos(*out, by_model_eos(r->teacher));
    by_model_set_pad(*out, by_model_pad(r->teacher));
    if (by_model_is_pair(*out))
        by_model_set_start(*out, by_model_start(r->teacher));
    return BY_OK;
}

/* ---- checks ------------------------------------------------------------------------------------ */

static by_status check_token(const distill_run *r, const by_tokenizer *other, int32_t id)
{
    size_t size[2] = {0, 0};
    char *a = by_decode(r->tokenizer, &id, 1, &size[0]), *b = by_decode(other, &id, 1, &size[1]);
    const bool same = a && b && size[0] == size[1] && memcmp(a, b, size[0]) == 0;
    by_status s = same ? BY_OK
                       : base_fail(BY_ERR_ARGUMENT,
                                   "the vocabularies differ: token %d is \"%.40s\" for the teacher and "
                                   "\"%.40s\" for the student",
                                   id, a ? a : "", b ? b : "");
    by_release(a);
    by_release(b);
    return s;
}

/* The student's tokenizer, if its directory has one, must have the teacher's tokens. */
static by_status check_tokenizer(const distill_run *r)
{
    by_tokenizer *t = r->spec.student.model ? by_tokenizer_load(r->spec.student.model) : NULL;
    by_status s = BY_OK;
    if (!t) {
        base_error_clear();
        return BY_OK;
    }
    const int n = by_tokenizer_vocab_size(r->tokenizer), m = by_tokenizer_vocab_size(t);
    if (n != m)
        s = base_fail(BY_ERR_ARGUMENT, "the vocabularies differ: the teacher has %d tokens, the student %d",
                      n, m);
    for (int32_t id = 0; id < n && s == BY_OK; id++)
        s = check_token(r, t, id);
    by_tokenizer_free(t);
    return s;
}

static by_status check_map(const distill_run *r, const by_model *student)
{
    const by_distill_run_spec *s = &r->spec;
    if (!s->terms.map)
        return BY_OK;
    if (s->map_count != by_model_layers(student))
        return base_fail(BY_ERR_ARGUMENT, "the layer map has %d numbers, and the student %d layers",
                         s->map_count, by_model_layers(student));
    for (int i = 0; i < s->map_count; i++)
        if (s->terms.map[i] < 1 || s->terms.map[i] > by_model_layers(r->teacher))
            return base_fail(BY_ERR_ARGUMENT,
                             "the layer map names layer %d; the teacher has the layers 1 to %d",
                             s->terms.map[i], by_model_layers(r->teacher));
    return BY_OK;
}

static by_status check_student(const distill_run *r, const by_model *student)
{
    const by_model *t = r->teacher;
    const bool scores = r->terms.attention != 0 || r->terms.relations != 0;
    if (by_model_vocab(student) != by_model_vocab(t) ||
        by_model_source_vocab(student) != by_model_source_vocab(t))
        return base_fail(BY_ERR_ARGUMENT,
                         "the vocabularies differ: the teacher has %d tokens, the student %d",
                         by_model_vocab(t), by_model_vocab(student));
    if (by_model_is_pair(student) != by_model_is_pair(t) ||
        by_model_pads_left(student) != by_model_pads_left(t) ||
        by_model_reads_last(student) != by_model_reads_last(t))
        return base_fail(BY_ERR_UNSUPPORTED,
                         "%s and %s read their batches differently: one cannot teach the other",
                         base_a(by_model_title(t)).text, base_a(by_model_title(student)).text);
    if (r->kind == BY_DISTILL_TEXT && (by_model_carries(student) || by_model_carries(t)))
        return base_fail(BY_ERR_UNSUPPORTED,
                         "%s carries a state from text to text and cannot be distilled on text",
                         base_a(by_model_title(by_model_carries(t) ? t : student)).text);
    if (scores && by_model_is_pair(t))
        return base_fail(BY_ERR_UNSUPPORTED, "attention terms are not supported for encoder-decoders");
    if (scores && by_model_heads(student) != by_model_heads(t))
        return base_fail(
            BY_ERR_ARGUMENT,
            "the student has %d attention heads and the teacher %d; attention terms need equal numbers",
            by_model_heads(student), by_model_heads(t));
    BY_TRY(check_tokenizer(r));
    return check_map(r, student);
}

by_status distill_student_open(const distill_run *r, const by_model_spec *spec, by_model **out)
{
    by_model_spec own = *spec;
    own.labels = by_model_labels(r->teacher);
    own.problem = has_labels(own.task) ? by_model_problem(r->teacher) : own.problem;
    const by_student *s = &r->spec.student;
    BY_TRY(s->model ? open_directory(r, &own, out) : s->family ? make_new(r, &own, out) : cut(r, &own, out));
    BY_TRY(check_student(r, *out));
    return name_labels(r, *out);
}
