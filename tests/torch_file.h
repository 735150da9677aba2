/* torch_file.h - a small writer of PyTorch files for tests: records of a zip archive, opcodes of a pickle. */
#ifndef TORCH_FILE_H
#define TORCH_FILE_H

#include "base/base.h"

static inline void put_little(base_buf *b, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        base_buf_put(b, &(uint8_t){(uint8_t)(i < 8 ? v >> 8 * i : 0)}, 1);
}

/* ---- zip ------------------------------------------------------------------------------------- */

typedef struct zip_file {
    base_buf out, directory;
    int count, method; /* of compression, as claimed */
    uint64_t claim;    /* size unpacked that the directory claims when it is not 0 */
    uint64_t moved;    /* how far the directory is wrong about places ... */
    uint64_t longer;   /* ... and about sizes */
} zip_file;

static inline void zip_add(zip_file *z, const char *name, const void *data, size_t size)
{
    size_t at = z->out.size, n = strlen(name);
    uint64_t plain = z->claim ? z->claim : size;
    base_buf_put(&z->out, "PK\3\4\0\0\0\0", 8);
    put_little(&z->out, (uint64_t)z->method, 2);
    put_little(&z->out, 0, 8); /* time, date, checksum */
    put_little(&z->out, size, 4);
    put_little(&z->out, plain, 4);
    put_little(&z->out, n, 4); /* and no extra field */
    base_buf_put(&z->out, name, n);
    base_buf_put(&z->out, data, size);
    base_buf_put(&z->directory, "PK\1\2\0\0\0\0\0\0", 10);
    put_little(&z->directory, (uint64_t)z->method, 2);
    put_little(&z->directory, 0, 8);
    put_little(&z->directory, size + z->longer, 4);
    put_little(&z->directory, plain + z->longer, 4);
    put_little(&z->directory, n, 2);
    put_little(&z->directory, 0, 12);
    put_little(&z->directory, at + z->moved, 4);
    base_buf_put(&z->directory, name, n);
    z->count++;
}

static inline void zip_finish(zip_file *z)
{
    size_t at = z->out.size;
    base_buf_put(&z->out, z->directory.data ? z->directory.data : "", z->directory.size);
    base_buf_put(&z->out, "PK\5\6\0\0\0\0", 8);
    put_little(&z->out, (uint64_t)z->count, 2);
    put_little(&z->out, (uint64_t)z->count, 2);
    put_little(&z->out, z->directory.size, 4);
    put_little(&z->out, at, 4);
    put_little(&z->out, 0, 2);
    base_buf_free(&z->directory);
}

/* ---- pickle ---------------------------------------------------------------------------------- */

static inline void op(base_buf *b, const char *opcodes)
{
    base_buf_puts(b, opcodes);
}

static inline void op_text(base_buf *b, const char *text)
{
    op(b, "X");
    put_little(b, strlen(text), 4);
    base_buf_puts(b, text);
}

static inline void op_int(base_buf *b, int64_t v)
{
    op(b, "\x8a\x08");
    put_little(b, (uint64_t)v, 8);
}

static inline void op_ints(base_buf *b, int n, const int64_t *v)
{
    op(b, "(");
    for (int i = 0; i < n; i++)
        op_int(b, v[i]);
    op(b, "t");
}

/* "torch\nFloatStorage\n" */
static inline void op_global(base_buf *b, const char *lines)
{
    op(b, "c");
    base_buf_puts(b, lines);
}

typedef struct torch_tensor {
    const char *name, *storage; /* the class: "FloatStorage" */
    const char *key;
    int64_t count; /* elements of the storage */
    int64_t offset;
    int rank;
    int64_t dim[9], stride[9];
} torch_tensor;

/* torch._utils._rebuild_tensor_v2(storage, offset, size, stride, False, OrderedDict()). stream: the
 * storage's id has a sixth part, None. */
static inline void op_rebuild(base_buf *b, const torch_tensor *t, bool stream)
{
    op_global(b, "torch._utils\n_rebuild_tensor_v2\n");
    op(b, "((");
    op_text(b, "storage");
    op(b, "ctorch\n");
    base_buf_printf(b, "%s\n", t->storage);
    op_text(b, t->key);
    op_text(b, "cpu");
    op_int(b, t->count);
    op(b, stream ? "NtQ" : "tQ");
    op_int(b, t->offset);
    op_ints(b, t->rank, t->dim);
    op_ints(b, t->rank, t->stride);
    op(b, "\x89"
          "ccollections\nOrderedDict\n)RtR");
}

static inline void op_tensor(base_buf *b, const torch_tensor *t, bool stream)
{
    op_text(b, t->name);
    op_rebuild(b, t, stream);
}

static inline void op_tensors(base_buf *b, const torch_tensor *list, int count, bool stream)
{
    op(b, "\x80\x02"
          "ccollections\nOrderedDict\n)R(");
    for (int i = 0; i < count; i++)
        op_tensor(b, &list[i], stream);
    op(b, "u.");
}

/* What precedes the state in the stream format. */
static inline void op_preamble(base_buf *b, bool little_endian)
{
    op(b, "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."
          "\x80\x02M\xe9\x03."
          "\x80\x02}(");
    op_text(b, "little_endian");
    op(b, little_endian ? "\x88u." : "\x89u.");
}

#endif
