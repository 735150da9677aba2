/* instructions.c - see instructions.h: reads the file and tokenizes its examples. */
#include "data/instructions.h"

#include <math.h>

#include "base/input.h"

#define FILE_LIMIT ((size_t)4 << 30)

/* ---- sequences ---------------------------------------------------------------------------------------- */

static by_status reserve(data_instructions *x, size_t extra)
{
    BY_TRY(tok_ids_reserve(&x->tokens, extra));
    if (x->room < x->tokens.capacity) {
        uint8_t *learned = base_resize(x->learned, x->tokens.capacity, 1);
        if (!learned)
            return BY_ERR_MEMORY;
        x->learned = learned;
        x->room = x->tokens.capacity;
    }
    if (x->count < x->capacity)
        return BY_OK;
    const int grown = x->capacity ? x->capacity * 2 : 256;
    data_instruction *list = base_resize(x->list, (size_t)grown, sizeof *list);
    if (!list)
        return BY_ERR_MEMORY;
    x->list = list;
    x->capacity = grown;
    return BY_OK;
}

/* Whether token i overlaps a learned part. A special token that the tokenizer adds at the end belongs to a
 * part that reaches the end. Spans do not overlap and are in order, except those of nested blocks. */
static bool is_learned(const data_script *s, const by_encoding *e, size_t i)
{
    const by_offset at = e->offsets[i];
    if (e->special[i] && at.start == at.end)
        return i + 1 == e->ids.count && s->span_count && s->spans[s->span_count - 1].end == s->text.size;
    for (size_t k = 0; k < s->span_count; k++)
        if (at.end > s->spans[k].start && at.start < s->spans[k].end)
            return true;
    return false;
}

/* Adds the tokens of a script as a sequence with the properties of `one`. *any: it has tokens to train on. */
static by_status add_tokens(data_instructions *x, const data_script *s, const by_encoding *e,
                            const data_instruction *like, bool *any)
{
    size_t count = e->ids.count, from = 0;
    const int eos = by_tokenizer_eos(x->tokenizer);
    /* The tokenizer may also have added the end token. */
    if (s->special && count > 1 && eos >= 0 && e->ids.data[count - 1] == eos && e->ids.data[count - 2] == eos)
        count--;
    if (count > (size_t)x->spec.limit) {
        from = x->spec.keep_end ? count - (size_t)x->spec.limit : 0;
        count = (size_t)x->spec.limit;
        x->shortened++;
    }
    BY_TRY(reserve(x, count));
    data_instruction *one = &x->list[x->count++];
    *one = *like;
    one->first = x->tokens.count;
    one->count = (int)count;
    *any = false;
    for (size_t i = 0; i < count; i++) {
        const bool learned = i > 0 && is_learned(s, e, from + i);
        x->tokens.data[one->first + i] = e->ids.data[from + i];
        x->learned[one->first + i] = learned;
        *any = *any || learned;
    }
    x->tokens.count += count;
    return BY_OK;
}

static by_status add_script(data_instructions *x, const data_script *s, const data_instruction *like,
                            bool *any)
{
    by_encoding e;
    const by_encode_spec spec = {.special = s->special, .offsets = true, .whole = true};
    if (s->text.size > UINT32_MAX / 2)
        return base_fail(BY_ERR_FORMAT, "the text is too long");
    by_status status =
        by_tokenizer_encode_with(x->tokenizer, s->text.data ? s->text.data : "", s->text.size, &spec, &e);
    if (status == BY_OK)
        status = add_tokens(x, s, &e, like, any);
    by_encoding_free(&e);
    return status;
}

/* Adds the sequences of one object, unless one of them has no tokens to train on. */
static by_status add_object(data_instructions *x, chat_heap *h, const chat_value *object, int line)
{
    data_script scripts[2] = {0};
    const int before = x->count;
    const size_t tokens = x->tokens.count;
    data_instruction like = {.line = line, .example = x->examples};
    int count = 0;
    bool any = true, all = true;
    by_status s = data_instruction_scripts(x, h, object, scripts, &count, &like.good, &like.margin);
    for (int i = 0; i < count && s == BY_OK; i++) {
        like.good = count == 2 ? i == 0 : like.good;
        s = add_script(x, &scripts[i], &like, &any);
        all = all && any;
    }
    if (s == BY_OK && !all) {
        x->count = before;
        x->tokens.count = tokens;
        x->left_out++;
    } else if (s == BY_OK) {
        x->margins = x->margins || !isnan(like.margin);
        x->examples++;
    }
    data_script_free(&scripts[0]);
    data_script_free(&scripts[1]);
    return s;
}

/* ---- the file ----------------------------------------------------------------------------------------- */

typedef struct cursor {
    const char *text;
    size_t size, at;
    int line;
} cursor;

/* Skips blanks and returns the next character, or NUL. */
static char skip_blanks(cursor *c)
{
    for (; c->at < c->size && strchr(" \t\r\n", c->text[c->at]) && c->text[c->at]; c->at++)
        c->line += c->text[c->at] == '\n';
    return c->at < c->size ? c->text[c->at] : '\0';
}

static by_status read_object(data_instructions *x, cursor *c)
{
    chat_heap h = {.arena = base_arena_new(), .left = SIZE_MAX};
    chat_value object;
    const size_t begin = c->at;
    const int line = c->line;
    if (!h.arena)
        return BY_ERR_MEMORY;
    by_status s = chat_read_json_next(&h, c->text, c->size, &c->at, base_input_name(x->path), &object);
    if (s == BY_OK && add_object(x, &h, &object, line) != BY_OK)
        s = base_fail_context("%s, line %d", base_input_name(x->path), line);
    for (size_t i = begin; i < c->at; i++)
        c->line += c->text[i] == '\n';
    base_arena_free(h.arena);
    return s;
}

/* Objects one after the other, or in a list. */
static by_status read_objects(data_instructions *x, cursor *c)
{
    const bool list = skip_blanks(c) == '[';
    c->at += list;
    char mark = skip_blanks(c);
    for (; mark && !(list && mark == ']'); mark = skip_blanks(c)) {
        BY_TRY(base_cancel_check());
        BY_TRY(read_object(x, c));
        mark = skip_blanks(c);
        if (!list)
            continue;
        if (mark != ',' && mark != ']')
            return base_fail(BY_ERR_FORMAT, "%s, line %d: %s", base_input_name(x->path), c->line,
                             mark ? "missing comma between two objects of the list"
                                  : "the list is never closed; is the file truncated?");
        c->at += mark == ',';
    }
    c->at += list && mark;
    return skip_blanks(c) ? base_fail(BY_ERR_FORMAT, "%s, line %d: unexpected content after the list",
                                      base_input_name(x->path), c->line)
           : list && !mark
               ? base_fail(BY_ERR_FORMAT, "%s, line %d: the list is never closed; is the file truncated?",
                           base_input_name(x->path), c->line)
               : BY_OK;
}

static by_status read_file(data_instructions *x)
{
    cursor c = {.line = 1};
    char *bytes = base_input_read(x->path, FILE_LIMIT, &c.size);
    if (!bytes)
        return base_error_status();
    x->fingerprint = base_hash(bytes, c.size, 0);
    c.text = bytes;
    c.at = c.size >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0 ? 3 : 0; /* byte order mark */
    by_status s = read_objects(x, &c);
    base_free(bytes);
    if (s == BY_OK && !x->count)
        s = x->left_out ? base_fail(BY_ERR_FORMAT, "%s: no example has tokens to train on within %d tokens",
                                    base_input_name(x->path), x->spec.limit)
                        : base_fail(BY_ERR_FORMAT, "%s: the file has no examples", base_input_name(x->path));
    return s;
}

/* ---- open and close ----------------------------------------------------------------------------------- */

static bool reads_documents(const by_model *m)
{
    const by_input_info *in;
    for (int i = 0; (in = by_model_input(m, i)); i++)
        if (strcmp(in->name, "documents") == 0)
            return true;
    return false;
}

static by_status check_spec(const data_instructions *x)
{
    const bool scores =
        by_model_task(x->model) == BY_TASK_CLASSIFY && x->spec.kind == DATA_PREFERENCES; /* a reward model */
    if (by_model_is_pair(x->model) || by_model_pads_left(x->model) ||
        (by_model_task(x->model) != BY_TASK_LM && !scores))
        return base_fail(BY_ERR_UNSUPPORTED,
                         "instruction data is for decoders with a language model head, not for %s",
                         base_a(by_model_class(x->model)).text);
    if (x->spec.pack && x->spec.kind != DATA_TUNING)
        return base_fail(BY_ERR_ARGUMENT, "preference examples cannot be packed");
    if (x->spec.pack && !reads_documents(x->model))
        return base_fail(BY_ERR_UNSUPPORTED,
                         "%s does not keep the examples of a packed row apart; train without packing",
                         base_a(by_model_class(x->model)).text);
    return BY_OK;
}

by_status data_instructions_open(data_instructions *x, const char *path, by_model *m, const by_tokenizer *t,
                                 const data_instruction_spec *spec)
{
    const int eos = by_tokenizer_eos(t);
    *x = (data_instructions){.spec = *spec, .model = m, .tokenizer = t, .path = path};
    BY_TRY(check_spec(x));
    BY_TRY(data_rows_init(
        &x->rows, m, t,
        &(data_rows_spec){.limit = spec->limit, .together = spec->kind == DATA_PREFERENCES ? 2 : 1}));
    x->spec.limit = x->rows.spec.limit;
    if (eos >= 0 && !(x->eos = by_decode(t, &(int32_t){eos}, 1, NULL)))
        return base_error_status();
    BY_TRY(read_file(x));
    return data_instructions_arrange(x);
}

void data_instructions_close(data_instructions *x)
{
    tok_ids_free(&x->tokens);
    base_free(x->learned);
    base_free(x->list);
    base_free(x->row_learned);
    base_free(x->row_positions);
    by_release(x->eos);
    data_rows_free(&x->rows);
    *x = (data_instructions){0};
}

/* ---- parts -------------------------------------------------------------------------------------------- */

/* An empty list like x. */
static by_status start_like(const data_instructions *x, data_instructions *out)
{
    *out = (data_instructions){.spec = x->spec,
                               .model = x->model,
                               .tokenizer = x->tokenizer,
                               .path = x->path,
                               .fingerprint = x->fingerprint};
    return data_rows_init(&out->rows, x->model, x->tokenizer, &x->rows.spec);
}

/* Appends tokens [from, end) of a sequence of x to the last sequence of out, up to the limit. */
static void append(const data_instructions *x, const data_instruction *one, int from, int end,
                   data_instructions *out)
{
    data_instruction *last = &out->list[out->count - 1];
    const size_t n = (size_t)BY_MIN(end - from, x->spec.limit - last->count), at = one->first + (size_t)from;
    memcpy(out->tokens.data + out->tokens.count, x->tokens.data + at, n * sizeof *x->tokens.data);
    memcpy(out->learned + out->tokens.count, x->learned + at, n);
    out->tokens.count += n;
    last->count += (int)n;
}

/* Starts a sequence of out with the properties of one of x and room for `count` tokens. */
static by_status start_sequence(data_instructions *out, const data_instruction *like, int count)
{
    BY_TRY(reserve(out, (size_t)count));
    data_instruction *one = &out->list[out->count++];
    *one = *like;
    one->first = out->tokens.count;
    one->count = 0;
    return BY_OK;
}

static by_status copy_sequence(const data_instructions *x, const data_instruction *one,
                               data_instructions *out)
{
    BY_TRY(start_sequence(out, one, one->count));
    append(x, one, 0, one->count, out);
    out->margins = out->margins || !isnan(one->margin);
    return BY_OK;
}

/* Whether example i of n goes to a part of this share. The choice is random, since files often have a
 * pattern, and the same in every run. */
static bool is_held(int i, int n, double share)
{
    return (double)base_permute((uint64_t)i, (uint64_t)n, 0) < floor(n * share + 0.5);
}

by_status data_instructions_hold_out(data_instructions *x, double share, data_instructions *out)
{
    data_instructions rest;
    by_status s = start_like(x, out);
    if (s == BY_OK)
        s = start_like(x, &rest);
    BY_TRY(s);
    for (int i = 0, last[2] = {-1, -1}; i < x->count && s == BY_OK; i++) {
        const bool held = is_held(x->list[i].example, x->examples, share);
        data_instructions *to = held ? out : &rest;
        to->examples += x->list[i].example != last[held];
        last[held] = x->list[i].example;
        s = copy_sequence(x, &x->list[i], to);
    }
    if (s == BY_OK && (!rest.count || !out->count))
        s = base_fail(BY_ERR_ARGUMENT, "%s: a share of %g of %d examples leaves nothing on one side",
                      base_input_name(x->path), share, x->examples);
    if (s == BY_OK)
        s = data_instructions_arrange(out);
    if (s == BY_OK)
        s = data_instructions_arrange(&rest);
    rest.shortened = x->shortened;
    rest.left_out = x->left_out;
    rest.eos = x->eos;
    x->eos = NULL;
    data_instructions_close(x);
    *x = rest;
    return s;
}

/* Tokens before the first trained one. */
static int prompt_of(const data_instructions *x, const data_instruction *one)
{
    int n = 0;
    while (n < one->count && !x->learned[one->first + (size_t)n])
        n++;
    return n;
}

by_status data_instructions_mismatch(const data_instructions *x, data_instructions *out)
{
    BY_TRY(start_like(x, out));
    if (x->examples < 2 || x->spec.pack)
        return base_fail(BY_ERR_ARGUMENT, "%s: mismatched answers need at least two examples",
                         base_input_name(x->path));
    for (int i = 0; i < x->count; i++) {
        int k = i; /* wraps around: the last answer goes to the first example */
        while (x->list[k].example == x->list[i].example)
            k = (k + x->count - 1) % x->count;
        const data_instruction *one = &x->list[i], *other = &x->list[k];
        const int prompt = prompt_of(x, one), from = prompt_of(x, other);
        BY_TRY(start_sequence(out, one, prompt + other->count - from));
        append(x, one, 0, prompt, out);
        append(x, other, from, other->count, out);
    }
    out->examples = x->examples;
    return data_instructions_arrange(out);
}

/* ---- words -------------------------------------------------------------------------------------------- */

void data_instructions_describe(const data_instructions *x, base_buf *out)
{
    static const char *const names[][2] = {{"example", "examples"},
                                           {"pair of answers", "pairs of answers"},
                                           {"judged answer", "judged answers"}};
    const int count = x->spec.kind == DATA_PREFERENCES ? x->examples : x->count;
    int64_t learned = 0;
    for (size_t i = 0; i < x->tokens.count; i++)
        learned += x->learned[i];
    const double tokens = (double)x->tokens.count;
    base_buf_printf(out, "%d %s, %.0f tokens, %lld learned (%.0f%%)", count, names[x->spec.kind][count != 1],
                    tokens, (long long)learned, 100 * (double)learned / BY_MAX(tokens, 1));
    if (x->spec.pack)
        base_buf_printf(out, "; packed into %d rows of %d, %.1f%% full", x->rows.count, x->spec.limit,
                        100 * tokens / ((double)x->rows.count * x->spec.limit));
    if (x->shortened)
        base_buf_printf(out, "; %d shortened to %d tokens", x->shortened, x->spec.limit);
    if (x->left_out)
        base_buf_printf(out, "; %d left out: nothing to learn", x->left_out);
}
