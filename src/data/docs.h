/* docs.h - tokenised text of which sentences, documents and languages are known: what objectives other than
 * plain language modelling are made from.
 *
 * Text files have documents separated by blank lines; in a file without blank lines each line is a document.
 * A line is cut into sentences where ., ! or ? (more of them, and closing quotes or brackets, may follow) is
 * followed by space and then by anything but a small letter or , ; : -- and where what stands before a full
 * stop is not a single letter, as in "J. Smith". */
#ifndef BY_DATA_DOCS_H
#define BY_DATA_DOCS_H

#include "data/tokens.h"

typedef struct data_document {
    int64_t first, end; /* its sentences */
    int language;
} data_document;

typedef struct data_docs {
    data_tokens *tokens;
    int64_t *starts; /* (sentences + 1) places in the stream */
    int64_t sentences;
    data_document *list;
    int64_t count;
} data_docs;

typedef struct data_docs_file {
    const char *path;
    int language; /* files of one language follow each other, languages from 0 on */
} data_docs_file;

typedef struct data_docs_spec {
    const data_docs_file *files;
    int count;
    bool parallel; /* every line is a document of one sentence, an empty one too: line i of each language says
                      the same */
} data_docs_spec;

/* Tokenise files into a shard and an index beside it, each written atomically. bytes: of the text. */
by_status data_docs_build(const by_tokenizer *t, const data_docs_spec *spec, const char *shard,
                          const char *index, int64_t *bytes, int64_t *tokens);

/* The same sentence by sentence, from whoever has them. */
typedef struct data_docs_writer {
    data_shard_writer shard;
    base_buf starts, firsts, languages; /* int64 */
    int64_t sentences, documents;
    int64_t first; /* sentence of the present document */
} data_docs_writer;
by_status data_docs_begin(data_docs_writer *w, const char *shard, int vocab_size);
by_status data_docs_sentence(data_docs_writer *w, by_ids *ids); /* and empty the list */
void data_docs_document(data_docs_writer *w, int language); /* that was all of it; without sentences: none */
/* Write both files when all went well so far, else neither; the writer's memory is freed. */
by_status data_docs_finish(data_docs_writer *w, const char *index, by_status so_far);

by_status data_docs_open(data_docs *d, const char *shard, const char *index, int vocab_size);
void data_docs_close(data_docs *d); /* zero state is legal */

/* A part of the documents. The list is its own, all else borrowed. */
typedef struct data_docs_part {
    const data_docs *all;
    data_document *list;
    int64_t count, tokens;
} data_docs_part;
void data_docs_part_free(data_docs_part *p); /* zero state is legal */

/* Keep `fraction` of the end of each language's text apart (0: nothing), cutting between two sentences; whole
 * documents when parallel. */
by_status data_docs_split(const data_docs *d, double fraction, bool parallel, data_docs_part *train,
                          data_docs_part *held);

static inline int64_t data_sentence_size(const data_docs *d, int64_t i)
{
    return d->starts[i + 1] - d->starts[i];
}

/* The end of the sentence that begins at text[start]; start < size. */
size_t data_sentence_end(const char *text, size_t size, size_t start);

/* Entropy of single tokens, in nats: what a guess that knows nothing but their frequencies costs. */
by_status data_docs_entropy(const data_docs_part *p, int vocab_size, double *nats);

#endif
