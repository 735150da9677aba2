/* pickle.c - see pickle.h. Supports the opcodes of protocols 2 to 5 that carry data. The text opcodes of the
 * first protocols, extensions, sets and everything else are rejected by number. Memory is bounded by the
 * length of the pickle: no opcode creates more than a few words per byte. */
#include "io/pickle.h"

#include <stdio.h>

#define MAX_PICKLE ((size_t)16 << 20) /* names and shapes only: enough for 60,000 tensors */

typedef struct machine {
    base_arena *arena;
    const uint8_t *begin, *at, *end;
    const char *const *globals;
    const char *what;
    io_pickled **stack, **memo, *outside;
    size_t depth, stack_room, memo_room, remembered;
    size_t *marks; /* stack depths */
    size_t n_marks, marks_room;
    size_t stored; /* values in all containers */
} machine;

static by_status fail(const machine *m, const char *problem)
{
    return base_fail(BY_ERR_FORMAT, "%s: byte %zu of the pickle: %s", m->what, (size_t)(m->at - m->begin),
                     problem);
}

/* ---- bytes of the program -------------------------------------------------------------------- */

static by_status take(machine *m, size_t n, const uint8_t **out)
{
    if (n > (size_t)(m->end - m->at))
        return fail(m, m->end - m->begin == (ptrdiff_t)MAX_PICKLE ? "the pickle is too large"
                                                                  : "unexpected end of the pickle");
    *out = m->at;
    m->at += n;
    return BY_OK;
}

static by_status take_number(machine *m, int bytes, uint64_t *out)
{
    const uint8_t *p = NULL;
    BY_TRY(take(m, (size_t)bytes, &p));
    *out = 0;
    for (int i = bytes - 1; i >= 0; i--)
        *out = *out << 8 | p[i];
    return BY_OK;
}

/* ---- values ---------------------------------------------------------------------------------- */

static io_pickled *value_new(machine *m, io_pickle_kind kind)
{
    io_pickled *v = base_arena_alloc(m->arena, sizeof *v);
    if (v)
        v->kind = kind;
    return v;
}

/* Makes room for one more element in an array that grows by doubling. */
static by_status grow(void **array, size_t *room, size_t needed, size_t size)
{
    if (needed <= *room)
        return BY_OK;
    size_t more = BY_MAX(BY_MAX(*room * 2, needed), 64);
    void *grown = base_resize(*array, more, size);
    if (!grown)
        return BY_ERR_MEMORY;
    memset((char *)grown + *room * size, 0, (more - *room) * size);
    *array = grown;
    *room = more;
    return BY_OK;
}

static by_status push(machine *m, io_pickled *v)
{
    if (!v)
        return BY_ERR_MEMORY;
    BY_TRY(grow((void **)&m->stack, &m->stack_room, m->depth + 1, sizeof(io_pickled *)));
    m->stack[m->depth++] = v;
    return BY_OK;
}

/* The lowest stack depth that may be popped: values below the last mark belong to an unfinished container. */
static size_t floor_of(const machine *m)
{
    return m->n_marks ? m->marks[m->n_marks - 1] : 0;
}

static by_status pop(machine *m, io_pickled **out)
{
    if (m->depth <= floor_of(m))
        return fail(m, "stack underflow");
    *out = m->stack[--m->depth];
    return BY_OK;
}

static by_status top(machine *m, io_pickle_kind kind, io_pickled **out)
{
    if (m->depth <= floor_of(m) || m->stack[m->depth - 1]->kind != kind)
        return fail(m, kind == IO_PICKLE_LIST ? "append to a value that is not a list"
                                              : "item assignment to a value that is not a dictionary");
    *out = m->stack[m->depth - 1];
    return BY_OK;
}

/* Pops n values, in the order they were pushed, and adds them to a container. */
static by_status collect(machine *m, io_pickled *to, size_t n)
{
    if (n > UINT32_MAX / 4 || to->count > UINT32_MAX / 4)
        return fail(m, "container too large");
    /* storing a value once takes a byte of the program, but a memoised value could be copied without end */
    m->stored += n;
    if (m->stored > 64 + 4 * (size_t)(m->at - m->begin))
        return fail(m, "too many copies of containers");
    if (to->count + n > to->room) {
        size_t room = BY_MAX(to->count + n, (size_t)to->room * 2);
        io_pickled **items = base_arena_alloc(m->arena, room * sizeof *items);
        if (!items)
            return BY_ERR_MEMORY;
        if (to->count)
            memcpy(items, to->items, to->count * sizeof *items);
        to->items = items;
        to->room = (uint32_t)room;
    }
    m->depth -= n;
    if (n)
        memcpy(to->items + to->count, m->stack + m->depth, n * sizeof *to->items);
    to->count += (uint32_t)n;
    return BY_OK;
}

static by_status push_number(machine *m, io_pickle_kind kind, int64_t number)
{
    io_pickled *v = value_new(m, kind);
    if (v)
        v->number = number;
    return push(m, v);
}

static by_status push_text(machine *m, io_pickle_kind kind, uint64_t size)
{
    const uint8_t *p = NULL;
    if (size > SIZE_MAX / 2)
        return fail(m, "unexpected end of the pickle");
    BY_TRY(take(m, (size_t)size, &p));
    io_pickled *v = value_new(m, kind);
    char *copy = base_arena_alloc(m->arena, (size_t)size + 1);
    if (!v || !copy)
        return BY_ERR_MEMORY;
    memcpy(copy, p, (size_t)size);
    v->text = copy;
    v->size = (size_t)size;
    return push(m, v);
}

/* Reads a little-endian two's complement integer of any length. */
static by_status push_long(machine *m, uint64_t size)
{
    const uint8_t *p = NULL;
    if (size > 8)
        return push_text(m, IO_PICKLE_LONG, size);
    BY_TRY(take(m, (size_t)size, &p));
    uint64_t v = size && p[size - 1] & 0x80 ? UINT64_MAX : 0;
    for (size_t i = (size_t)size; i-- > 0;)
        v = v << 8 | p[i];
    return push_number(m, IO_PICKLE_INT, (int64_t)v);
}

static by_status push_float(machine *m)
{
    const uint8_t *p = NULL;
    uint64_t bits = 0;
    BY_TRY(take(m, 8, &p));
    for (int i = 0; i < 8; i++)
        bits = bits << 8 | p[i];
    io_pickled *v = value_new(m, IO_PICKLE_FLOAT);
    if (v)
        memcpy(&v->real, &bits, 8);
    return push(m, v);
}

/* ---- containers ------------------------------------------------------------------------------ */

static by_status push_container(machine *m, io_pickle_kind kind, size_t n)
{
    if (m->depth - floor_of(m) < n)
        return fail(m, "stack underflow");
    io_pickled *v = value_new(m, kind);
    if (!v)
        return BY_ERR_MEMORY;
    BY_TRY(collect(m, v, n));
    return push(m, v);
}

static by_status mark(machine *m)
{
    BY_TRY(grow((void **)&m->marks, &m->marks_room, m->n_marks + 1, sizeof *m->marks));
    m->marks[m->n_marks++] = m->depth;
    return BY_OK;
}

/* Removes the last mark; *n is the number of values above it. */
static by_status unmark(machine *m, size_t *n)
{
    if (m->n_marks == 0)
        return fail(m, "missing mark");
    *n = m->depth - m->marks[--m->n_marks];
    return BY_OK;
}

static by_status push_marked(machine *m, io_pickle_kind kind)
{
    size_t n = 0;
    BY_TRY(unmark(m, &n));
    if (kind == IO_PICKLE_DICT && n % 2)
        return fail(m, "dictionary key without a value");
    return push_container(m, kind, n);
}

/* Moves n values from the top of the stack into the container below them. */
static by_status add_items(machine *m, io_pickle_kind kind, size_t n)
{
    io_pickled *to = NULL;
    if (m->depth < n || (kind == IO_PICKLE_DICT && n % 2))
        return fail(m, "dictionary key without a value");
    m->depth -= n;
    BY_TRY(top(m, kind, &to));
    m->depth += n;
    return collect(m, to, n);
}

static by_status add_marked(machine *m, io_pickle_kind kind)
{
    size_t n = 0;
    BY_TRY(unmark(m, &n));
    return add_items(m, kind, n);
}

/* ---- memo ------------------------------------------------------------------------------------ */

/* Each memo index is preceded by at least one byte of the pickle, so none exceeds the position. */
static by_status put(machine *m, uint64_t index)
{
    if (m->depth <= floor_of(m))
        return fail(m, "memo of an empty stack");
    if (index > (uint64_t)(m->at - m->begin))
        return fail(m, "memo index too large");
    BY_TRY(grow((void **)&m->memo, &m->memo_room, (size_t)index + 1, sizeof *m->memo));
    m->remembered += !m->memo[index];
    m->memo[index] = m->stack[m->depth - 1];
    return BY_OK;
}

static by_status get(machine *m, uint64_t index)
{
    if (index >= m->memo_room || !m->memo[index])
        return fail(m, "unknown memo index");
    return push(m, m->memo[index]);
}

/* ---- names and calls ------------------------------------------------------------------------- */

static by_status push_global(machine *m, const char *module, int module_size, const char *name, int name_size)
{
    char full[200];
    int n = base_format(full, sizeof full, "%.*s %.*s", module_size, module, name_size, name);
    for (int i = 0; n > 0 && n < (int)sizeof full && m->globals[i]; i++)
        if (strcmp(full, m->globals[i]) == 0)
            return push_number(m, IO_PICKLE_GLOBAL, i);
    for (char *c = full; *c; c++)
        if ((unsigned char)*c < 0x20 || (unsigned char)*c > 0x7e)
            *c = '?';
        else if (*c == ' ')
            *c = '.';
    return base_fail(
        BY_ERR_UNSUPPORTED,
        "%s: the file refers to %s; only tensors and plain containers are read, and nothing is executed",
        m->what, full);
}

/* GLOBAL: two lines of text. */
static by_status global(machine *m)
{
    const char *line[2];
    int size[2];
    for (int i = 0; i < 2; i++) {
        const uint8_t *end =
            m->at < m->end ? memchr(m->at, '\n', BY_MIN((size_t)(m->end - m->at), 256)) : NULL;
        if (!end)
            return fail(m, "unterminated name");
        line[i] = (const char *)m->at;
        size[i] = (int)(end - m->at);
        m->at = end + 1;
    }
    return push_global(m, line[0], size[0], line[1], size[1]);
}

static by_status stack_global(machine *m)
{
    io_pickled *name = NULL, *module = NULL;
    BY_TRY(pop(m, &name));
    BY_TRY(pop(m, &module));
    if (name->kind != IO_PICKLE_TEXT || module->kind != IO_PICKLE_TEXT)
        return fail(m, "name is not a string");
    return push_global(m, module->text, (int)BY_MIN(module->size, 256), name->text,
                       (int)BY_MIN(name->size, 256));
}

/* OrderedDict(), or OrderedDict([[key, value], ...]) as Python 2 wrote it. */
static by_status push_ordered(machine *m, const io_pickled *args)
{
    io_pickled *dict = value_new(m, IO_PICKLE_DICT);
    if (!dict)
        return BY_ERR_MEMORY;
    const io_pickled *list = args->count == 1 ? args->items[0] : NULL;
    if (args->count > 1 || (list && list->kind != IO_PICKLE_LIST))
        return fail(m, "OrderedDict argument is not a list");
    for (uint32_t i = 0; list && i < list->count; i++) {
        const io_pickled *pair = list->items[i];
        if ((pair->kind != IO_PICKLE_LIST && pair->kind != IO_PICKLE_TUPLE) || pair->count != 2)
            return fail(m, "OrderedDict item is not a pair");
        BY_TRY(push(m, pair->items[0]));
        BY_TRY(push(m, pair->items[1]));
        BY_TRY(collect(m, dict, 2));
    }
    return push(m, dict);
}

static by_status call(machine *m)
{
    io_pickled *args = NULL, *callable = NULL;
    BY_TRY(pop(m, &args));
    BY_TRY(pop(m, &callable));
    if (callable->kind != IO_PICKLE_GLOBAL || args->kind != IO_PICKLE_TUPLE)
        return fail(m, "call of a value that is not a function");
    if (callable->number == 0)
        return push_ordered(m, args);
    BY_TRY(push(m, callable));
    BY_TRY(push(m, args));
    return push_container(m, IO_PICKLE_CALL, 2);
}

/* BUILD sets attributes, for example _metadata of a state dictionary. No value here has attributes. */
static by_status build(machine *m)
{
    io_pickled *state = NULL, *object = NULL;
    BY_TRY(pop(m, &state));
    BY_TRY(pop(m, &object));
    return push(m, object);
}

/* A reference to an object outside the pickle, by id. It is also recorded in a list. */
static by_status persistent(machine *m)
{
    BY_TRY(push_container(m, IO_PICKLE_PERSISTENT, 1));
    BY_TRY(push(m, m->stack[m->depth - 1]));
    return collect(m, m->outside, 1);
}

/* ---- the machine ----------------------------------------------------------------------------- */

/* Executes opcodes that are followed by a length or a number of 1 to 8 bytes. */
static by_status with_argument(machine *m, uint8_t op)
{
    static const struct {
        uint8_t op, bytes;
        char what;
    } table[] = {{'K', 1, 'i'}, {'M', 2, 'i'},  {'J', 4, 's'},  {0x8a, 1, 'l'}, {0x8b, 4, 'l'},
                 {'X', 4, 't'}, {0x8c, 1, 't'}, {0x8d, 8, 't'}, {'T', 4, 't'},  {'U', 1, 't'},
                 {'B', 4, 't'}, {'C', 1, 't'},  {0x8e, 8, 't'}, {'q', 1, 'p'},  {'r', 4, 'p'},
                 {'h', 1, 'g'}, {'j', 4, 'g'},  {0x80, 1, 'v'}, {0x95, 8, 'f'}};
    for (int i = 0; i < BY_COUNT(table); i++) {
        uint64_t n = 0;
        if (table[i].op != op)
            continue;
        BY_TRY(take_number(m, table[i].bytes, &n));
        switch (table[i].what) {
        case 'i':
            return push_number(m, IO_PICKLE_INT, (int64_t)n);
        case 's':
            return push_number(m, IO_PICKLE_INT, (int32_t)(uint32_t)n);
        case 'l':
            return push_long(m, n);
        case 't':
            return push_text(m, IO_PICKLE_TEXT, n);
        case 'p':
            return put(m, n);
        case 'g':
            return get(m, n);
        case 'v':
            return n <= 5 ? BY_OK : fail(m, "protocol newer than 5");
        default: /* a frame is only a hint how much to read at once */
            return BY_OK;
        }
    }
    char problem[40];
    base_format(problem, sizeof problem, "opcode 0x%02x is not allowed", op);
    return fail(m, problem);
}

/* Executes opcodes that build containers. */
static by_status container_step(machine *m, uint8_t op)
{
    switch (op) {
    case ')':
        return push(m, value_new(m, IO_PICKLE_TUPLE));
    case ']':
        return push(m, value_new(m, IO_PICKLE_LIST));
    case '}':
        return push(m, value_new(m, IO_PICKLE_DICT));
    case 0x85:
    case 0x86:
    case 0x87:
        return push_container(m, IO_PICKLE_TUPLE, op - 0x84u);
    case 't':
        return push_marked(m, IO_PICKLE_TUPLE);
    case 'l':
        return push_marked(m, IO_PICKLE_LIST);
    case 'd':
        return push_marked(m, IO_PICKLE_DICT);
    case 'a':
        return m->depth - floor_of(m) < 2 ? fail(m, "stack underflow") : add_items(m, IO_PICKLE_LIST, 1);
    case 'e':
        return add_marked(m, IO_PICKLE_LIST);
    case 's':
        return m->depth - floor_of(m) < 3 ? fail(m, "stack underflow") : add_items(m, IO_PICKLE_DICT, 2);
    case 'u':
        return add_marked(m, IO_PICKLE_DICT);
    default:
        return with_argument(m, op);
    }
}

static by_status step(machine *m, uint8_t op)
{
    io_pickled *v = NULL;
    size_t n = 0;
    switch (op) {
    case 'N':
        return push(m, value_new(m, IO_PICKLE_NONE));
    case 0x88:
    case 0x89:
        return push_number(m, IO_PICKLE_BOOL, op == 0x88);
    case 'G':
        return push_float(m);
    case '(':
        return mark(m);
    case '0':
        return pop(m, &v);
    case '1':
        BY_TRY(unmark(m, &n));
        m->depth -= n;
        return BY_OK;
    case 0x94: /* MEMOIZE: the next index */
        return put(m, m->remembered);
    case 'c':
        return global(m);
    case 0x93:
        return stack_global(m);
    case 'R':
    case 0x81:
        return call(m);
    case 'b':
        return build(m);
    case 'Q':
        return persistent(m);
    default:
        return container_step(m, op);
    }
}

static by_status run(machine *m, io_pickled **out)
{
    for (;;) {
        const uint8_t *op = NULL;
        BY_TRY(take(m, 1, &op));
        if (*op == '.')
            return pop(m, out);
        BY_TRY(step(m, *op));
    }
}

const io_pickled *io_pickle_read(base_arena *arena, const uint8_t **at, const uint8_t *end,
                                 const char *const *globals, const char *what, const io_pickled **outside)
{
    machine m = {.arena = arena, .begin = *at, .at = *at, .end = end, .globals = globals, .what = what};
    if ((size_t)(end - *at) > MAX_PICKLE)
        m.end = *at + MAX_PICKLE;
    io_pickled *v = NULL;
    m.outside = value_new(&m, IO_PICKLE_LIST);
    if (!m.outside || run(&m, &v) != BY_OK)
        v = NULL;
    if (outside)
        *outside = m.outside;
    *at = m.at;
    base_free(m.stack);
    base_free(m.memo);
    base_free(m.marks);
    return v;
}

const char *io_pickle_kind_name(io_pickle_kind kind)
{
    static const char *const names[] = {"None",         "a boolean", "a number",  "a long number",
                                        "a number",     "a text",    "a tuple",   "a list",
                                        "a dictionary", "a name",    "an object", "a storage"};
    return names[kind];
}
