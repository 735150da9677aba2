/* stream.h - incremental decoding: only whole characters, and nothing from a stop string on. */
#ifndef BY_INFER_STREAM_H
#define BY_INFER_STREAM_H

#include "text/tokenizer.h"

typedef struct gen_stream {
    /* set by the caller, borrowed */
    const by_tokenizer *tokenizer;
    const char *const
        *stops; /* strings that end the text, regardless of token boundaries; empty strings never match */
    int stop_count;
    /* for the caller to read */
    base_buf text; /* finished text: valid UTF-8, with U+FFFD for invalid bytes */
    bool stopped;  /* a stop string was found; text ends before it */
    int tokens;    /* tokens of text, without those entirely inside a stop string */
    /* the module's */
    tok_decoding *decoding;
    base_buf raw;    /* every byte decoded */
    base_buf starts; /* size_t: bytes of it before each token that is not in text yet */
    size_t taken;    /* bytes of it that are in text; the rest may be part of a stop string or a character */
} gen_stream;

by_status gen_stream_put(gen_stream *s, int32_t token);
by_status gen_stream_end(gen_stream *s); /* no more tokens: held-back bytes become text */
void gen_stream_free(gen_stream *s);     /* resets to the zero state */

#endif
