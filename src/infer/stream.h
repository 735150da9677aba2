/* stream.h - tokens to text as they come: whole characters only, and nothing from a stop string on. */
#ifndef BY_INFER_STREAM_H
#define BY_INFER_STREAM_H

#include "text/tokenizer.h"

typedef struct gen_stream {
    /* set by the caller, borrowed */
    const by_tokenizer *tokenizer;
    const char *const
        *stops; /* strings that end the text, however they are cut into tokens; empty ones never match */
    int stop_count;
    /* for the caller to read */
    base_buf text; /* what may be shown: valid UTF-8, where bytes that cannot be text are U+FFFD */
    bool stopped;  /* a stop string came; text ends before it */
    int tokens;    /* that text is made of, without those that lie wholly in a stop string */
    /* the module's */
    tok_decoding *decoding;
    base_buf raw;    /* every byte decoded */
    base_buf starts; /* size_t: bytes of it before each token that is not in text yet */
    size_t
        taken; /* bytes of it that are in text; what follows may yet turn into a stop string or a character */
} gen_stream;

by_status gen_stream_put(gen_stream *s, int32_t token);
by_status gen_stream_end(gen_stream *s); /* no more tokens: what was held back goes into text */
void gen_stream_free(gen_stream *s);     /* back to the zero state */

#endif
