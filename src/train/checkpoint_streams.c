/* checkpoint_streams.c - the states of streams in a checkpoint. Tensors are named
 * "stream.<number>.<part>". */
#include "graph/graph.h"
#include "train/checkpoint.h"

static char *name_of(int stream, const by_stream_part *p)
{
    return base_sprintf("stream.%d.%s", stream, p->name);
}

static by_status describe(int stream, const by_stream_part *p, char **name, by_weight *e)
{
    *name = name_of(stream, p);
    *e = (by_weight){.name = *name,
                     .data = p->memory->data,
                     .dtype = p->type,
                     .bytes = by_memory_bytes(p->memory),
                     .rank = p->rank};
    for (int i = 0; i < p->rank; i++)
        e->dim[i] = p->shape[i];
    return *name ? BY_OK : BY_ERR_MEMORY;
}

static by_status write(by_stream *const *streams, int count, by_weight *list, char **names, const char *path)
{
    int n = 0;
    by_device *device = NULL;
    for (int k = 0; k < count; k++)
        for (int i = 0; i < by_stream_count(streams[k]); i++, n++) {
            const by_stream_part *p = by_stream_at(streams[k], i);
            device = p->memory->device;
            BY_TRY(describe(k, p, &names[n], &list[n]));
        }
    return io_safetensors_write(path, list, n, NULL, train_put_from, device);
}

by_status train_streams_save(by_stream *const *streams, int count, const char *dir)
{
    size_t parts = 0;
    for (int k = 0; k < count; k++)
        parts += (size_t)by_stream_count(streams[k]);
    by_weight *list = base_alloc_zero(parts + 1, sizeof *list);
    char **names = base_alloc_zero(parts + 1, sizeof *names);
    char *path = base_path_join(dir, "streams.safetensors");
    by_status s = list && names && path ? write(streams, count, list, names, path) : BY_ERR_MEMORY;
    for (size_t i = 0; names && i < parts; i++)
        base_free(names[i]);
    base_free(names);
    base_free(list);
    base_free(path);
    return s;
}

static by_status read_part(int stream, const by_stream_part *p, const by_weights *file)
{
    char *name = name_of(stream, p);
    if (!name)
        return BY_ERR_MEMORY;
    const by_weight *e = by_weights_find(file, name);
    by_status s =
        e && e->dtype == p->type && e->bytes == by_memory_bytes(p->memory)
            ? by_memory_write(p->memory, 0, e->data, e->bytes)
            : base_fail(BY_ERR_FORMAT, "streams.safetensors: %s is missing or has another shape", name);
    base_free(name);
    return s;
}

by_status train_streams_load(by_stream *const *streams, int count, const char *dir)
{
    char *path = base_path_join(dir, "streams.safetensors");
    by_weights *file = path ? by_weights_open(path) : NULL;
    by_status s = file ? BY_OK : base_error_status();
    for (int k = 0; k < count && s == BY_OK; k++)
        for (int i = 0; i < by_stream_count(streams[k]) && s == BY_OK; i++)
            s = read_part(k, by_stream_at(streams[k], i), file);
    by_weights_free(file);
    base_free(path);
    return s == BY_OK ? BY_OK : base_fail_context("%s", dir);
}
