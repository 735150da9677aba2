/* spiece.h - the contents of SentencePiece model files (spiece.model, sentencepiece.bpe.model). */
#ifndef BY_TEXT_LEGACY_SPIECE_H
#define BY_TEXT_LEGACY_SPIECE_H

#include "text/pipeline.h"

enum {
    TOK_PIECE_NORMAL = 1,
    TOK_PIECE_UNKNOWN,
    TOK_PIECE_CONTROL,
    TOK_PIECE_USER,
    TOK_PIECE_UNUSED,
    TOK_PIECE_BYTE
};
enum { TOK_SPIECE_UNIGRAM = 1, TOK_SPIECE_BPE, TOK_SPIECE_WORD, TOK_SPIECE_CHAR };

typedef struct tok_spiece {
    tok_vocab vocab; /* the pieces; of equal ones the first counts */
    float *scores;   /* by id */
    uint8_t *types;  /* by id */
    int count, capacity;
    int model;
    int unk; /* id of the unknown piece */
    bool byte_fallback, space_as_suffix;
    bool dummy_prefix, remove_spaces, escape_spaces;
    char *unk_surface; /* decoded text of an unknown piece */
    base_buf charsmap;
} tok_spiece;

/* Reads a model file from memory. On failure *m is in the zero state. */
by_status tok_spiece_parse(tok_spiece *m, const void *bytes, size_t size);
void tok_spiece_free(tok_spiece *m);

/* Creates a tokenizer that encodes and decodes with the model alone: its own normaliser, no special tokens.
 * Always takes ownership of *m. */
by_tokenizer *tok_spiece_tokenizer(tok_spiece *m);

/* For such a tokenizer: calls each() with the text of every piece, unknown ones as in the text. */
typedef by_status tok_piece_each(void *context, const char *piece, size_t size, tok_at at);
by_status tok_spiece_each(const by_tokenizer *t, const char *text, size_t size, tok_piece_each *each,
                          void *context);

/* Decodes piece by piece; the state is initially zero. id: the model's id, or -1 for a text that it does not
 * have. */
typedef struct tok_piece_state {
    bool any;       /* something was put */
    bool dropped;   /* the last piece lost its space and may be followed by another */
    base_buf bytes; /* adjacent byte pieces */
} tok_piece_state;
by_status tok_spiece_put(const by_tokenizer *t, tok_piece_state *s, int32_t id, const tok_token *piece,
                         base_buf *out);
by_status tok_spiece_end(tok_piece_state *s, base_buf *out);

/* Appends the base64 encoding of bytes. */
void tok_base64_encode(const void *bytes, size_t n, base_buf *out);

extern const tok_text_kind tok_text_spiece, tok_text_marian;

#endif
