/* tiny.h - a tokenizer of whole words and small random models, for tests of tasks. */
#ifndef BY_TESTS_TINY_H
#define BY_TESTS_TINY_H

#include "banyan/model.h"
#include "base/file.h"
#include "text/tokenizer.h"

/* [PAD] 0, [UNK] 1, [CLS] 2, [SEP] 3, [MASK] 4, then letters a ... z from 5 and the same inside of words
 * from 31.
 */
enum { TINY_LETTERS = 5, TINY_INSIDE = 31, TINY_VOCAB = 57 };

static inline by_status tiny_tokenizer_write(const char *dir)
{
    base_buf text = {0};
    base_buf_puts(&text, "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n");
    for (char c = 'a'; c <= 'z'; c++)
        base_buf_printf(&text, "%c\n", c);
    for (char c = 'a'; c <= 'z'; c++)
        base_buf_printf(&text, "##%c\n", c);
    char *path = base_path_join(dir, "vocab.txt"), *config = base_path_join(dir, "tokenizer_config.json");
    static const char kind[] = "{\"tokenizer_class\": \"BertTokenizer\", \"do_lower_case\": true}\n";
    by_status s = base_dir_make(dir);
    if (s == BY_OK)
        s = base_file_write(path, text.data, text.size);
    if (s == BY_OK)
        s = base_file_write(config, kind, sizeof kind - 1);
    base_buf_free(&text);
    base_free(path);
    base_free(config);
    return s;
}

static inline by_model *tiny_model(by_device *d, const char *family, by_task task, int labels, int context)
{
    by_model_shape shape = {
        .layers = 2, .heads = 2, .width = 16, .inner = 32, .context = context, .vocab = TINY_VOCAB};
    return by_model_new(d, family, &shape,
                        &(by_model_spec){.task = task, .labels = labels, .seed = 7, .training = true});
}

#endif
