/* upload.cu - copies from the host to the GPU. Small copies go through pinned memory on the stream of the
 * programs. A large copy there would make the host wait for the running program, and the GPU then for the
 * host. It uses a separate stream and device memory, and the stream of the programs then copies it to its
 * destination. */
#include <string.h>

#include "cuda/cuda.h"

#ifdef BY_CUDA_EMULATE
enum { STAGING = 1 << 14 }; /* several parts for tensors of tests */
#else
enum { STAGING = 32 << 20 };
#endif
enum { HALF = STAGING / 2, ALIGN = 256, LARGE = HALF, LARGEST = 256 << 20 };

static by_status make_event(cudaEvent_t *event)
{
    return *event ? BY_OK
                  : cuda_check(cudaEventCreateWithFlags(event, cudaEventDisableTiming), "pinned memory");
}

by_status cuda_uploads_open(cuda_context *c)
{
    cuda_uploads *u = &c->uploads;
    BY_TRY(cuda_check(cudaMallocHost((void **)&u->staging, STAGING), "pinned memory"));
    BY_TRY(make_event(&u->left[0]));
    return make_event(&u->left[1]);
}

void cuda_uploads_close(cuda_context *c)
{
    cuda_uploads *u = &c->uploads;
    const cudaEvent_t events[] = {u->left[0], u->left[1], u->read[0], u->read[1], u->arrived, u->taken};
    if (u->stream) {
        cudaStreamSynchronize(u->stream);
        cudaStreamDestroy(u->stream);
    }
    cudaFreeHost(u->staging);
    cudaFreeHost(u->pinned);
    cudaFree(u->landing);
    for (int i = 0; i < BY_COUNT(events); i++)
        if (events[i])
            cudaEventDestroy(events[i]);
    *u = cuda_uploads{};
}

/* ---- on the stream of the programs ------------------------------------------------------------- */

/* At the end of one half of the pinned memory, switches to the other half, whose copies must have finished.
 * Those are old, so this does not wait for the GPU's most recent kernel. */
static by_status next_half(cuda_context *c)
{
    cuda_uploads *u = &c->uploads;
    if (u->at == 0 || u->at % HALF != 0)
        return BY_OK;
    const int left = u->at == HALF ? 0 : 1;
    BY_TRY(cuda_check(cudaEventRecord(u->left[left], c->stream), "copying to the GPU"));
    BY_TRY(cuda_check(cudaEventSynchronize(u->left[!left]), "copying to the GPU"));
    if (left == 1)
        u->at = 0;
    return BY_OK;
}

static by_status upload_small(cuda_context *c, char *to, const char *from, size_t bytes)
{
    cuda_uploads *u = &c->uploads;
    while (bytes > 0) {
        BY_TRY(next_half(c));
        const size_t part = BY_MIN(bytes, HALF - u->at % HALF);
        memcpy(u->staging + u->at, from, part);
        BY_TRY(cuda_check(cudaMemcpyAsync(to, u->staging + u->at, part, cudaMemcpyHostToDevice, c->stream),
                          "copying to the GPU"));
        u->at = (u->at + part + ALIGN - 1) / ALIGN * ALIGN;
        to += part;
        from += part;
        bytes -= part;
    }
    return BY_OK;
}

/* ---- beside them ------------------------------------------------------------------------------- */

static by_status make_stream(cuda_uploads *u)
{
    if (u->stream)
        return BY_OK;
    cudaEvent_t *const events[] = {&u->read[0], &u->read[1], &u->arrived, &u->taken};
    for (int i = 0; i < BY_COUNT(events); i++)
        BY_TRY(make_event(events[i]));
    if (!u->pinned)
        BY_TRY(cuda_check(cudaMallocHost((void **)&u->pinned, STAGING), "pinned memory"));
    return cuda_check(cudaStreamCreate(&u->stream), "copying to the GPU");
}

/* A buffer for `bytes`; *there is false if the GPU has no memory for it. */
static by_status make_landing(cuda_context *c, size_t bytes, bool *there)
{
    cuda_uploads *u = &c->uploads;
    void *larger = NULL;
    *there = bytes <= u->landing_bytes;
    if (*there || (u->refused && bytes >= u->refused))
        return BY_OK;
    if (cudaMalloc(&larger, bytes) != cudaSuccess) {
        (void)cudaGetLastError();
        u->refused = bytes;
        return BY_OK;
    }
    by_status s =
        cuda_check(cudaStreamSynchronize(c->stream), "copying to the GPU"); /* it may read the old one */
    if (s != BY_OK) {
        cudaFree(larger);
        return s;
    }
    cudaFree(u->landing);
    u->landing = larger;
    u->landing_bytes = bytes;
    *there = true;
    return BY_OK;
}

static by_status upload_large(cuda_context *c, char *to, const char *from, size_t bytes)
{
    cuda_uploads *u = &c->uploads;
    char *landing = (char *)u->landing;
    BY_TRY(cuda_check(cudaStreamWaitEvent(u->stream, u->taken, 0), "copying to the GPU"));
    for (size_t at = 0, k = 0; at < bytes; at += HALF, k = !k) {
        const size_t part = BY_MIN(bytes - at, (size_t)HALF);
        BY_TRY(cuda_check(cudaEventSynchronize(u->read[k]), "copying to the GPU"));
        memcpy(u->pinned + k * HALF, from + at, part);
        BY_TRY(cuda_check(
            cudaMemcpyAsync(landing + at, u->pinned + k * HALF, part, cudaMemcpyHostToDevice, u->stream),
            "copying to the GPU"));
        BY_TRY(cuda_check(cudaEventRecord(u->read[k], u->stream), "copying to the GPU"));
    }
    BY_TRY(cuda_check(cudaEventRecord(u->arrived, u->stream), "copying to the GPU"));
    BY_TRY(cuda_check(cudaStreamWaitEvent(c->stream, u->arrived, 0), "copying to the GPU"));
    BY_TRY(cuda_check(cudaMemcpyAsync(to, landing, bytes, cudaMemcpyDeviceToDevice, c->stream),
                      "copying to the GPU"));
    return cuda_check(cudaEventRecord(u->taken, c->stream), "copying to the GPU");
}

by_status cuda_upload(by_device *d, void *to, const void *from, size_t bytes)
{
    cuda_context *c = (cuda_context *)d->impl;
    bool there = false;
    if (c->busy && bytes >= LARGE && bytes <= LARGEST) {
        BY_TRY(make_stream(&c->uploads));
        BY_TRY(make_landing(c, bytes, &there));
    }
    return there ? upload_large(c, (char *)to, (const char *)from, bytes)
                 : upload_small(c, (char *)to, (const char *)from, bytes);
}
