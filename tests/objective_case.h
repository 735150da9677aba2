/* objective_case.h - a tokenizer, documents and objectives over them. The text tells where it is from:
 * sentence s of document d is made of the words Dd and Ss. Included after cmocka.h. */
#ifndef BY_TESTS_OBJECTIVE_CASE_H
#define BY_TESTS_OBJECTIVE_CASE_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "banyan/train.h"
#include "child.h"
#include "data/objective.h"
#include "folder.h"

enum { DOCS = 40, SENTENCES = 12, LINES = 20 };
enum {
    PAD,
    UNK,
    FIRST,
    SEP,
    MASK,
    D0,
    S0 = D0 + DOCS,
    UN = S0 + SENTENCES,
    GO = UN + 4,
    E0,
    G0 = E0 + LINES,
    VOCAB = G0 + LINES
};

static by_tokenizer *words; /* WordPiece with the ids above */

static inline void put_words(base_buf *b, const char *letter, int first, int count)
{
    for (int i = 0; i < count; i++)
        base_buf_printf(b, ", \"%s%d\": %d", letter, i, first + i);
}

static inline void make_tokenizer(void)
{
    static const char *const special[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
    base_buf b = {0};
    base_buf_puts(&b, "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null, \"added_tokens\": [");
    for (int i = 0; i < BY_COUNT(special); i++)
        base_buf_printf(&b,
                        "%s{\"id\": %d, \"content\": \"%s\", \"single_word\": false, \"lstrip\": false, "
                        "\"rstrip\": false, \"normalized\": false, \"special\": true}",
                        i ? ", " : "", i, special[i]);
    base_buf_puts(&b,
                  "], \"normalizer\": null, \"pre_tokenizer\": {\"type\": \"WhitespaceSplit\"}, "
                  "\"post_processor\": null, \"decoder\": {\"type\": \"WordPiece\", \"prefix\": \"##\", "
                  "\"cleanup\": false}, \"model\": {\"type\": \"WordPiece\", \"unk_token\": \"[UNK]\", "
                  "\"continuing_subword_prefix\": \"##\", \"max_input_chars_per_word\": 100, \"vocab\": {");
    for (int i = 0; i < BY_COUNT(special); i++)
        base_buf_printf(&b, "%s\"%s\": %d", i ? ", " : "", special[i], i);
    put_words(&b, "D", D0, DOCS);
    put_words(&b, "S", S0, SENTENCES);
    base_buf_printf(&b, ", \"un\": %d, \"##der\": %d, \"##stand\": %d, \"##ing\": %d, \"go\": %d", UN, UN + 1,
                    UN + 2, UN + 3, GO);
    put_words(&b, "E", E0, LINES);
    put_words(&b, "G", G0, LINES);
    base_buf_puts(&b, "}}}");
    assert_int_equal(base_dir_make(in_root("words")), BY_OK);
    write_text("words/tokenizer.json", b.data);
    base_buf_free(&b);
    words = by_tokenizer_load(in_root("words"));
    if (!words)
        fail_msg("%s", by_error_message());
    assert_int_equal(by_tokenizer_vocab_size(words), VOCAB);
}

/* Documents of 2 to SENTENCES sentences, each of `pairs` times "Dd Ss" at most. */
static inline void write_documents(const char *name, int documents, int pairs)
{
    base_buf b = {0};
    for (int d = 0; d < documents; d++) {
        for (int s = 0; s < 2 + d % (SENTENCES - 1); s++) {
            for (int k = 0; k < 1 + (s + d) % pairs; k++)
                base_buf_printf(&b, "%sD%d S%d", k ? " " : "", d, s);
            base_buf_puts(&b, "\n");
        }
        base_buf_puts(&b, "\n");
    }
    write_text(name, b.data);
    base_buf_free(&b);
}

static inline void write_lines(const char *name, char letter, int lines, int without)
{
    base_buf b = {0};
    for (int i = 0; i < lines; i++)
        if (i == without)
            base_buf_puts(&b, "\n");
        else
            base_buf_printf(&b, "%c%d %c%d%s\n", letter, i, letter, i, letter == 'G' ? " un" : "");
    write_text(name, b.data);
    base_buf_free(&b);
}

static inline int set_up(void **state)
{
    (void)state;
    if (!make_root("objective"))
        return -1;
    make_tokenizer();
    write_documents("docs.txt", DOCS, 5);
    return 0;
}

static inline int tear_down(void **state)
{
    (void)state;
    by_tokenizer_free(words);
    return base_dir_remove(root) == BY_OK ? 0 : -1;
}

/* ---- an objective over files ------------------------------------------------------------------ */

typedef struct bench {
    data_docs docs;
    data_docs_part train, held;
    data_objective *o;
} bench;

static inline by_status open_docs(bench *b, const data_docs_spec *spec, double fraction)
{
    int64_t bytes, tokens;
    *b = (bench){0};
    BY_TRY(data_docs_build(words, spec, in_root("t.bin"), in_root("t.docs"), &bytes, &tokens));
    BY_TRY(data_docs_open(&b->docs, in_root("t.bin"), in_root("t.docs"), VOCAB));
    assert_int_equal(data_tokens_count(b->docs.tokens), tokens);
    return data_docs_split(&b->docs, fraction, spec->parallel, &b->train, &b->held);
}

static inline void open_bench(bench *b, const char *file, data_objective_spec spec)
{
    const data_docs_file files[] = {{in_root(file), 0}};
    if (open_docs(b, &(data_docs_spec){files, 1, false}, 0) != BY_OK)
        fail_msg("%s", by_error_message());
    b->o = data_objective_new(&b->train, words, &spec);
    if (!b->o)
        fail_msg("%s", by_error_message());
}

static inline void close_bench(bench *b)
{
    data_objective_free(b->o);
    data_docs_part_free(&b->train);
    data_docs_part_free(&b->held);
    data_docs_close(&b->docs);
}

static inline data_objective_spec spec_of(data_objective_kind kind, int seq, int rows)
{
    return (data_objective_spec){
        .kind = kind, .seq = seq, .step_rows = rows, .seed = 7, .masking = data_masking_usual(kind)};
}

static inline data_samples samples_of(const data_objective *o, int count, int batch)
{
    data_samples s;
    assert_int_equal(data_samples_make(&s, o, count, batch), BY_OK);
    return s;
}

static inline void get(const data_objective *o, int64_t step, data_samples *s)
{
    if (data_objective_get(o, step, s) != BY_OK)
        fail_msg("%s", by_error_message());
}

/* Put back what was hidden in row r; batches of one row. */
static inline void restore(data_samples *s, int r)
{
    for (int k = 0; k < s->picks; k++)
        if (s->targets[r * s->picks + k] >= 0)
            s->tokens[r * s->seq + s->pick[r * s->picks + k]] = s->targets[r * s->picks + k];
}

#endif
