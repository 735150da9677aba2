/* device.c - opening devices by name, and memory on them. */
#include "graph/graph.h"

by_device *by_device_open(const char *name, int threads)
{
    if (threads < 0 || threads > 4096) {
        by_fail(BY_ERR_ARGUMENT, "%d threads are not possible", threads);
        return NULL;
    }
    if (!name || strcmp(name, "auto") == 0)
        name = "cpu";
    if (strncmp(name, "cpu", 3) != 0 || (name[3] != '\0' && name[3] != ':')) {
        by_fail(BY_ERR_UNSUPPORTED, "no device is called %s; this build has: cpu", name);
        return NULL;
    }
    by_device *d = by_alloc_zero(1, sizeof *d);
    if (d && by_cpu_open(d, name[3] == ':' ? name + 4 : NULL, threads) != BY_OK) {
        by_free(d);
        return NULL;
    }
    return d;
}

void by_device_free(by_device *d)
{
    if (!d)
        return;
    d->backend->close(d);
    by_free(d);
}

const char *by_device_name(const by_device *d)
{
    return d->backend->name;
}

const char *by_device_description(const by_device *d)
{
    return d->description;
}

int by_device_threads(const by_device *d)
{
    return d->threads;
}

by_memory *by_memory_new(by_device *d, size_t bytes)
{
    by_memory *m = by_alloc_zero(1, sizeof *m);
    if (!m)
        return NULL;
    m->device = d;
    m->bytes = bytes;
    if (d->backend->alloc(d, bytes, &m->data) != BY_OK) {
        by_free(m);
        return NULL;
    }
    return m;
}

void by_memory_free(by_memory *m)
{
    if (!m)
        return;
    m->device->backend->release(m->device, m->data);
    by_free(m);
}

size_t by_memory_bytes(const by_memory *m)
{
    return m ? m->bytes : 0;
}
