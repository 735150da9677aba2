/* spiece.h - SentencePiece model files (spiece.model, sentencepiece.bpe.model): what is in them. */
#ifndef BY_TEXT_SPIECE_H
#define BY_TEXT_SPIECE_H

#include "text/pipeline.h"

enum {
    BY_PIECE_NORMAL = 1,
    BY_PIECE_UNKNOWN,
    BY_PIECE_CONTROL,
    BY_PIECE_USER,
    BY_PIECE_UNUSED,
    BY_PIECE_BYTE
};
enum { BY_SPIECE_UNIGRAM = 1, BY_SPIECE_BPE, BY_SPIECE_WORD, BY_SPIECE_CHAR };

typedef struct by_spiece {
    by_vocab vocab; /* the pieces; of equal ones the first counts */
    float *scores;  /* by id */
    uint8_t *types; /* by id */
    int count, capacity;
    int model;
    int unk; /* id of the unknown piece */
    bool byte_fallback, space_as_suffix;
    bool dummy_prefix, remove_spaces, escape_spaces;
    char *unk_surface; /* what an unknown piece is decoded to */
    by_buf charsmap;
} by_spiece;

/* Read a model file from memory. On failure *m is in the zero state. */
by_status by_spiece_parse(by_spiece *m, const void *bytes, size_t size);
void by_spiece_free(by_spiece *m);

/* A tokenizer that encodes and decodes as the model alone says: its own normaliser, no special tokens. Takes
 * *m over in any case. */
by_tokenizer *by_spiece_tokenizer(by_spiece *m);

/* For such a tokenizer: call each() with the text of every piece, unknown ones as they are written. */
typedef by_status by_piece_each(void *context, const char *piece, size_t size, by_at at);
by_status by_spiece_each(const by_tokenizer *t, const char *text, size_t size, by_piece_each *each,
                         void *context);

/* Decoding piece by piece; the state is zero at first. id: the model's, or -1 for a text it does not have. */
typedef struct by_piece_state {
    bool any;     /* something was put */
    bool dropped; /* the last piece lost its space, and may be followed by another */
    by_buf bytes; /* byte pieces that stand together */
} by_piece_state;
by_status by_spiece_put(const by_tokenizer *t, by_piece_state *s, int32_t id, const by_token *piece,
                        by_buf *out);
by_status by_spiece_end(by_piece_state *s, by_buf *out);

/* The base64 of bytes, appended. */
void by_base64_encode(const void *bytes, size_t n, by_buf *out);

extern const by_text_kind by_text_spiece, by_text_marian;

#endif
