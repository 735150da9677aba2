/* docs.h - tokenised text with known sentences, documents and languages: the input of all objectives except
 * plain language modelling.
 *
 * In text files, blank lines separate documents; in a file without blank lines, each line is a document. A
 * line is split into sentences where ., ! or ? (possibly followed by more of them and by closing quotes or
 * brackets) is followed by a space and then by anything except a lower-case letter or , ; : -- unless a
 * single letter precedes a full stop, as in "J. Smith". */
#ifndef BY_DATA_DOCS_H
#define BY_DATA_DOCS_H

#include "data/tokens.h"

typedef struct data_document {
    int64_t first, end; /* its sentences */
    int language;
} data_document;

typedef struct data_docs {
    data_tokens *tokens;
    int64_t *starts; /* (sentences + 1) positions in the stream */
    int64_t sentences;
    data_document *list;
    int64_t count;
} data_docs;

typedef struct data_docs_file {
    const char *path;
    int language; /* files of one language are adjacent; languages count from 0 */
} data_docs_file;

typedef struct data_docs_spec {
    const data_docs_file *files;
    int count;
    /* Every line is a document of one sentence, even if empty: line i of each language is a translation of
     * the others. */
    bool parallel;
} data_docs_spec;

/* Tokenises files into a shard and an index, each written atomically. bytes: size of the text. */
by_status data_docs_build(const by_tokenizer *t, const data_docs_spec *spec, const char *shard,
                          const char *index, int64_t *bytes, int64_t *tokens);

/* The same for sentences supplied one at a time by the caller. */
typedef struct data_docs_writer {
    data_shard_writer shard;
    base_buf starts, firsts, languages; /* int64 */
    int64_t sentences, documents;
    int64_t first; /* first sentence of the current document */
} data_docs_writer;
by_status data_docs_begin(data_docs_writer *w, const char *shard, int vocab_size);
by_status data_docs_sentence(data_docs_writer *w, by_ids *ids); /* appends the ids and empties the list */
/* Ends the document; one without sentences is dropped. */
void data_docs_document(data_docs_writer *w, int language);
/* Writes both files if so_far is BY_OK, otherwise neither. Frees the writer's memory. */
by_status data_docs_finish(data_docs_writer *w, const char *index, by_status so_far);

by_status data_docs_open(data_docs *d, const char *shard, const char *index, int vocab_size);
void data_docs_close(data_docs *d); /* the zero state is a no-op */

/* A subset of the documents. Owns the list; everything else is borrowed. */
typedef struct data_docs_part {
    const data_docs *all;
    data_document *list;
    int64_t count, tokens;
} data_docs_part;
void data_docs_part_free(data_docs_part *p); /* the zero state is a no-op */

/* Holds out `fraction` of the end of each language's text (0: nothing), split between two sentences, or
 * between whole documents if parallel. */
by_status data_docs_split(const data_docs *d, double fraction, bool parallel, data_docs_part *train,
                          data_docs_part *held);

static inline int64_t data_sentence_size(const data_docs *d, int64_t i)
{
    return d->starts[i + 1] - d->starts[i];
}

/* Returns the end of the sentence that starts at text[start]; start < size. */
size_t data_sentence_end(const char *text, size_t size, size_t start);

/* Computes the unigram entropy of the tokens in nats: the loss of a model that knows only their
 * frequencies. */
by_status data_docs_entropy(const data_docs_part *p, int vocab_size, double *nats);

#endif
