/* stop_strings.h - whether the last token of a text completes a string that ends it. */
#ifndef BY_INFER_STOP_STRINGS_H
#define BY_INFER_STOP_STRINGS_H

#include "banyan/generate.h"

/* Look for spec->stop_strings in the text of the tokens: one counts if it ends in the last token, at whatever
 * place of it. Special tokens are text. */
by_status gen_stop_strings_end(const by_generate_spec *spec, const int32_t *tokens, int count, bool *out);

#endif
