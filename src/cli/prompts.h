/* prompts.h - the prompts of `banyan generate`: one, or one a line. */
#ifndef BY_CLI_PROMPTS_H
#define BY_CLI_PROMPTS_H

#include "cli/options.h"
#include "text/tokenizer.h"

typedef struct cli_prompt {
    const char *text;
    size_t size;
    by_ids ids;
} cli_prompt;

typedef struct cli_prompts {
    char *bytes; /* of all texts */
    cli_prompt *list;
    int count;
} cli_prompts;

/* From `text`, or the words, or a file ("-": the standard input, also when `file` is NULL and `piped`). A
 * file is one prompt, without the newline at its end, or with `lines` one prompt for each line. Nothing given
 * is one empty prompt. */
by_status cli_prompts_read(cli_prompts *p, const char *text, char *const *words, int n_words,
                           const char *file, bool piped, bool lines);

/* Ids by the tokenizer, or numbers where that is NULL. special: with the special tokens around a source. */
by_status cli_prompts_encode(cli_prompts *p, const by_tokenizer *t, bool special);

void cli_prompts_free(cli_prompts *p); /* zero state is legal */

#endif
