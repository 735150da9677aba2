/* device.c - opening devices by name, and memory on them. */
#include "graph/graph.h"

#ifdef BY_HAVE_CUDA
by_status gr_cuda_open(by_device *d, const char *which, int threads);
gr_opener gr_cuda_opener = gr_cuda_open;
#else
gr_opener gr_cuda_opener = NULL;
#endif

/* The rest of a device name after "cpu" or "cuda" ("cuda:1" -> "1", "cuda+tf32" -> "+tf32"); NULL for other
 * names. */
static const char *rest_of(const char *name, const char *kind)
{
    size_t n = strlen(kind);
    if (strncmp(name, kind, n) != 0 || !strchr(":+", name[n]))
        return NULL;
    return name[n] == ':' ? name + n + 1 : name + n;
}

static by_status open_named(by_device *d, const char *name, int threads)
{
    const char *cpu = rest_of(name, "cpu"), *cuda = rest_of(name, "cuda");
    if (cpu)
        return gr_cpu_open(d, *cpu ? cpu : NULL, threads);
    if (cuda && gr_cuda_opener)
        return gr_cuda_opener(d, cuda, threads);
    if (cuda)
        return base_fail(BY_ERR_UNSUPPORTED, "this build of banyan has no CUDA: it was built without nvcc, "
                                             "on a machine without a GPU, or with BANYAN_CUDA=OFF");
    return base_fail(BY_ERR_UNSUPPORTED, "unknown device %s; available: cpu, cuda and auto", name);
}

/* The first working GPU, otherwise the CPU. */
static by_status open_auto(by_device *d, int threads)
{
    if (gr_cuda_opener && gr_cuda_opener(d, "", threads) == BY_OK)
        return BY_OK;
    base_error_clear();
    return gr_cpu_open(d, NULL, threads);
}

by_device *by_device_open(const char *name, int threads)
{
    if (threads < 0 || threads > 4096) {
        base_fail(BY_ERR_ARGUMENT, "invalid number of threads: %d", threads);
        return NULL;
    }
    by_device *d = base_alloc_zero(1, sizeof *d);
    if (!d)
        return NULL;
    if (!name)
        name = "cpu";
    by_status s = strcmp(name, "auto") == 0 ? open_auto(d, threads) : open_named(d, name, threads);
    if (s != BY_OK) {
        base_free(d);
        return NULL;
    }
    return d;
}

bool by_device_runs_ahead(const by_device *d)
{
    return d && d->backend->wait;
}

by_status by_device_wait(by_device *d)
{
    if (!d)
        return base_fail_missing("device");
    return d->backend->wait ? d->backend->wait(d) : BY_OK;
}

void by_device_free(by_device *d)
{
    if (!d)
        return;
    d->backend->close(d);
    base_free(d);
}

const char *by_device_name(const by_device *d)
{
    return d ? d->backend->name : "?";
}

const char *by_device_description(const by_device *d)
{
    return d ? d->description : "?";
}

int by_device_threads(const by_device *d)
{
    return d ? d->threads : 0;
}

by_memory *by_memory_new(by_device *d, size_t bytes)
{
    if (!d) {
        base_fail_missing("device");
        return NULL;
    }
    by_memory *m = base_alloc_zero(1, sizeof *m);
    if (!m)
        return NULL;
    m->device = d;
    m->bytes = bytes;
    if (d->backend->alloc(d, bytes, &m->data) != BY_OK) {
        base_free(m);
        return NULL;
    }
    return m;
}

void by_memory_free(by_memory *m)
{
    if (!m)
        return;
    m->device->backend->release(m->device, m->data);
    base_free(m);
}

size_t by_memory_bytes(const by_memory *m)
{
    return m ? m->bytes : 0;
}

static by_status check_range(const by_memory *m, size_t offset, const void *host, size_t bytes)
{
    if (!m || (!host && bytes))
        return base_fail_missing(m ? "host memory to copy to or from" : "memory");
    return offset <= m->bytes && bytes <= m->bytes - offset
               ? BY_OK
               : base_fail(BY_ERR_ARGUMENT, "%zu bytes at offset %zu exceed a memory of %zu bytes", bytes,
                           offset, m->bytes);
}

by_status by_memory_write(by_memory *m, size_t offset, const void *from, size_t bytes)
{
    BY_TRY(check_range(m, offset, from, bytes));
    return m->device->backend->upload(m->device, (char *)m->data + offset, from, bytes);
}

by_status by_memory_read(const by_memory *m, size_t offset, void *to, size_t bytes)
{
    BY_TRY(check_range(m, offset, to, bytes));
    return m->device->backend->download(m->device, to, (const char *)m->data + offset, bytes);
}
