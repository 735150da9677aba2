/* stream.h - tokens to text as they come: whole characters only, and nothing from a stop string on. */
#ifndef BY_INFER_STREAM_H
#define BY_INFER_STREAM_H

#include "text/tokenizer.h"

typedef struct by_stream {
    /* set by the caller, borrowed */
    const by_tokenizer *tokenizer;
    const char *const
        *stops; /* strings that end the text, however they are cut into tokens; empty ones never match */
    int stop_count;
    /* for the caller to read */
    by_buf text;  /* what may be shown: valid UTF-8, where bytes that cannot be text are U+FFFD */
    bool stopped; /* a stop string came; text ends before it */
    int tokens;   /* that text is made of, without those that lie wholly in a stop string */
    /* the module's */
    by_decoding *decoding;
    by_buf raw;    /* every byte decoded */
    by_buf starts; /* size_t: bytes of it before each token that is not in text yet */
    size_t
        taken; /* bytes of it that are in text; what follows may yet turn into a stop string or a character */
} by_stream;

by_status by_stream_put(by_stream *s, int32_t token);
by_status by_stream_end(by_stream *s); /* no more tokens: what was held back goes into text */
void by_stream_free(by_stream *s);     /* back to the zero state */

#endif
