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

typedef struct by_document {
    int64_t first, end; /* its sentences */
    int language;
} by_document;

typedef struct by_docs {
    by_tokens *tokens;
    int64_t *starts; /* (sentences + 1) places in the stream */
    int64_t sentences;
    by_document *list;
    int64_t count;
} by_docs;

typedef struct by_docs_file {
    const char *path;
    int language; /* files of one language follow each other, languages from 0 on */
} by_docs_file;

typedef struct by_docs_spec {
    const by_docs_file *files;
    int count;
    bool parallel; /* every line is a document of one sentence, an empty one too: line i of each language says
                      the same */
} by_docs_spec;

/* Tokenise files into a shard and an index beside it, each written atomically. bytes: of the text. */
by_status by_docs_build(const by_tokenizer *t, const by_docs_spec *spec, const char *shard, const char *index,
                        int64_t *bytes, int64_t *tokens);

/* The same sentence by sentence, from whoever has them. */
typedef struct by_docs_writer {
    by_shard_writer shard;
    by_buf starts, firsts, languages; /* int64 */
    int64_t sentences, documents;
    int64_t first; /* sentence of the present document */
} by_docs_writer;
by_status by_docs_begin(by_docs_writer *w, const char *shard, int vocab_size);
by_status by_docs_sentence(by_docs_writer *w, by_ids *ids); /* and empty the list */
void by_docs_document(by_docs_writer *w, int language);     /* that was all of it; without sentences: none */
/* Write both files when all went well so far, else neither; the writer's memory is freed. */
by_status by_docs_finish(by_docs_writer *w, const char *index, by_status so_far);

by_status by_docs_open(by_docs *d, const char *shard, const char *index, int vocab_size);
void by_docs_close(by_docs *d); /* zero state is legal */

/* A part of the documents. The list is its own, all else borrowed. */
typedef struct by_docs_part {
    const by_docs *all;
    by_document *list;
    int64_t count, tokens;
} by_docs_part;
void by_docs_part_free(by_docs_part *p); /* zero state is legal */

/* Keep `fraction` of the end of each language's text apart (0: nothing), cutting between two sentences; whole
 * documents when parallel. */
by_status by_docs_split(const by_docs *d, double fraction, bool parallel, by_docs_part *train,
                        by_docs_part *held);

static inline int64_t by_sentence_size(const by_docs *d, int64_t i)
{
    return d->starts[i + 1] - d->starts[i];
}

/* The end of the sentence that begins at text[start]; start < size. */
size_t by_sentence_end(const char *text, size_t size, size_t start);

/* Entropy of single tokens, in nats: what a guess that knows nothing but their frequencies costs. */
by_status by_docs_entropy(const by_docs_part *p, int vocab_size, double *nats);

#endif
