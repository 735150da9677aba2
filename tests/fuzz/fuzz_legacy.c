/* fuzz_legacy.c - any bytes as the files of a directory without tokenizer.json: the first byte picks the
 * family, and lines of one "%" end a file: vocabulary, merges or second model, added tokens. What is accepted
 * must encode, decode, and be saved to files that are read to the same ids. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "text/kind.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct family {
    const char *class, *files[4];
} families[] = {
    {"GPT2Tokenizer", {"vocab.json", "merges.txt", "added_tokens.json"}},
    {"RobertaTokenizer", {"vocab.json", "merges.txt", "special_tokens_map.json"}},
    {"OpenAIGPTTokenizer", {"vocab.json", "merges.txt", "added_tokens.json"}},
    {"BertTokenizer", {"vocab.txt", "added_tokens.json", "special_tokens_map.json"}},
    {"XLMTokenizer", {"vocab_words.txt", "merges.txt", "special_tokens_map.json"}},
    {"XLMTokenizer", {"vocab.json", "merges.txt", "special_tokens_map.json"}},
    {"T5Tokenizer", {"spiece.model", "added_tokens.json", "special_tokens_map.json"}},
    {"LlamaTokenizer", {"tokenizer.model", "added_tokens.json", "special_tokens_map.json"}},
    {"MarianTokenizer", {"source.spm", "target.spm", "vocab.json"}},
};

static char dir[64];

static void require(bool condition)
{
    if (!condition)
        abort();
}

static void clean(void)
{
    char path[128];
    for (int f = 0; f < BY_COUNT(families); f++)
        for (int i = 0; i < 3; i++) {
            snprintf(path, sizeof(path), "%s/%s", dir, families[f].files[i]);
            unlink(path);
        }
    snprintf(path, sizeof(path), "%s/tokenizer_config.json", dir);
    unlink(path);
}

static void leave(void)
{
    clean();
    rmdir(dir);
}

static void put_file(const char *name, const void *bytes, size_t size)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    require(f && fwrite(bytes, 1, size, f) == size && fclose(f) == 0);
}

static void put_files(const struct family *f, const uint8_t *data, size_t size)
{
    char config[128];
    for (int i = 0; i < 3 && size; i++) {
        const uint8_t *end = memmem(data, size, "\n%\n", 3);
        size_t n = end ? (size_t)(end - data) : size;
        put_file(f->files[i], data, n);
        data += end ? n + 3 : n;
        size -= end ? n + 3 : n;
    }
    int n = snprintf(config, sizeof(config), "{\"tokenizer_class\": \"%s\"}", f->class);
    put_file("tokenizer_config.json", config, (size_t)n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size)
        return 0;
    if (!dir[0]) {
        snprintf(dir, sizeof(dir), "/dev/shm/fuzz-legacy-XXXXXX");
        require(mkdtemp(dir) != NULL);
        atexit(leave);
    }
    clean();
    put_files(&families[data[0] % BY_COUNT(families)], data + 1, size - 1);
    by_tokenizer *t = by_tokenizer_load(dir);
    if (!t)
        return 0;
    size_t n = BY_MIN(size, (size_t)300);
    const char *text = (const char *)data + size - n;
    by_encoding e;
    base_buf back = {0};
    if (by_tokenizer_encode_with(t, text, n, &(by_encode_spec){.special = true, .offsets = true}, &e) ==
        BY_OK) {
        for (size_t i = 0; i < e.ids.count; i++)
            require(e.offsets[i].start <= e.offsets[i].end && e.offsets[i].end <= n);
        require(tok_decode(t, e.ids.data, e.ids.count, &back) == BY_OK);
    }
    base_buf_free(&back);
    by_encoding_free(&e);
    by_tokenizer_free(t);
    return 0;
}
