/* stop_strings.h - whether the last token of a text completes a stop string. */
#ifndef BY_INFER_STOP_STRINGS_H
#define BY_INFER_STOP_STRINGS_H

#include "banyan/generate.h"

/* Searches the text of the tokens for spec->stop_strings that end anywhere in the last token. Special tokens
 * are included as text. */
by_status gen_stop_strings_end(const by_generate_spec *spec, const int32_t *tokens, int count, bool *out);

#endif
