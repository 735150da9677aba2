/* strategy.c - beam search and constraints from the command line (see strategy.h). */
#include "cli/strategy.h"

#include <ctype.h>
#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>

by_status cli_parse_ids(const char *what, const char *text, by_ids *out)
{
    while (text && *text) {
        if (isspace((unsigned char)*text) || *text == ',') {
            text++;
            continue;
        }
        char *end;
        errno = 0;
        long id = strtol(text, &end, 10);
        if (end == text || errno || id < 0 || id > INT32_MAX ||
            (*end && *end != ',' && !isspace((unsigned char)*end)))
            return base_fail(BY_ERR_ARGUMENT, "%s: '%.20s' is not a token id", what, text);
        BY_TRY(tok_ids_push(out, (int32_t)id));
        text = end;
    }
    return BY_OK;
}

/* The tokens that write a text, appended. */
static by_status append(const by_tokenizer *t, const char *text, by_ids *out)
{
    by_encoding e;
    by_status s =
        by_tokenizer_encode_with(t, text, strlen(text), &(by_encode_spec){.whole = true, .target = true}, &e);
    for (size_t i = 0; i < e.ids.count && s == BY_OK; i++)
        s = tok_ids_push(out, e.ids.data[i]);
    by_encoding_free(&e);
    return s;
}

/* Appends the tokens of a text, without special tokens. */
static by_status encode(const char *what, const by_tokenizer *t, const char *text, by_ids *out)
{
    const size_t before = out->count;
    if (!t)
        BY_TRY(cli_parse_ids(what, text, out));
    else if (append(t, text, out) != BY_OK)
        return base_fail_context("%s", what);
    return out->count > before ? BY_OK : base_fail(BY_ERR_ARGUMENT, "%s: '%s' has no tokens", what, text);
}

/* A text of exactly one token, or the name or id of one. */
static by_status find_token(const char *what, const by_tokenizer *t, const char *text, int32_t *out)
{
    by_ids ids = {0};
    *out = t && !by_tokenizer_target_vocab_size(t) ? by_tokenizer_find(t, text) : -1;
    if (*out >= 0)
        return BY_OK;
    const bool number = *text && strspn(text, "0123456789") == strlen(text);
    by_status s = encode(what, number ? NULL : t, text, &ids);
    if (s == BY_OK && ids.count != 1)
        s = base_fail(BY_ERR_ARGUMENT, "%s: '%s' is %zu tokens, not one", what, text, ids.count);
    if (s == BY_OK)
        *out = ids.data[0];
    tok_ids_free(&ids);
    return s;
}

/* A word as it is and, where that makes other tokens, with a space before it. */
static by_status add_words(const char *what, const by_tokenizer *t, const char *text, by_ids *tokens,
                           by_ids *ends)
{
    base_buf spaced = {0};
    BY_TRY(encode(what, t, text, tokens));
    BY_TRY(tok_ids_push(ends, (int32_t)tokens->count));
    if (!t || *text == ' ')
        return BY_OK;
    base_buf_printf(&spaced, " %s", text);
    by_status s = spaced.failed ? base_fail(BY_ERR_MEMORY, "out of memory for %s", what) : BY_OK;
    if (s == BY_OK)
        s = encode(what, t, spaced.data, tokens);
    if (s == BY_OK)
        s = tok_ids_push(ends, (int32_t)tokens->count);
    base_buf_free(&spaced);
    return s;
}

static by_status open_words(const cli_strategy *o, const by_tokenizer *t, cli_constraints *out)
{
    by_ids ends = {0};
    by_status s = BY_OK;
    for (int i = 0; i < o->ban.count && s == BY_OK; i++)
        s = add_words("--ban", t, o->ban.items[i], &out->tokens, &ends);
    out->words = s == BY_OK ? base_alloc_zero(ends.count + 1, sizeof *out->words) : NULL;
    if (s == BY_OK && !out->words)
        s = BY_ERR_MEMORY;
    for (size_t i = 0, from = 0; s == BY_OK && i < ends.count; from = (size_t)ends.data[i++])
        out->words[out->count++] = (by_words){out->tokens.data + from, (int)((size_t)ends.data[i] - from)};
    tok_ids_free(&ends);
    return s;
}

/* TEXT=NUMBER; the last = divides. */
static by_status add_bias(const by_tokenizer *t, const char *text, cli_constraints *out)
{
    const char *sign = strrchr(text, '=');
    char *words = sign ? base_strdup(text) : NULL, *end = NULL;
    const double bias = sign ? base_strtod(sign + 1, &end) : 0;
    by_ids ends = {0};
    size_t from = out->bias_tokens.count;
    if (words)
        words[sign - text] = '\0';
    if (sign && !words)
        return BY_ERR_MEMORY;
    by_status s = words && *words && end > sign + 1 && !*end && isfinite(bias)
                      ? add_words("--bias", t, words, &out->bias_tokens, &ends)
                      : base_fail(BY_ERR_ARGUMENT, "--bias: '%s' is not TEXT=NUMBER", text);
    for (size_t i = 0; s == BY_OK && i < ends.count; from = (size_t)ends.data[i++]) {
        by_bias *more = base_resize(out->biases, (size_t)out->bias_count + 1, sizeof *more);
        s = more ? BY_OK : BY_ERR_MEMORY;
        if (more)
            (out->biases = more)[out->bias_count++] =
                (by_bias){.count = (int)((size_t)ends.data[i] - from), .bias = bias};
    }
    tok_ids_free(&ends);
    base_free(words);
    return s;
}

/* The same text with and without a space may be the same tokens, which count once. */
static by_status open_biases(const cli_strategy *o, const by_tokenizer *t, cli_constraints *out)
{
    int kept = 0;
    const int32_t *at = NULL;
    for (int i = 0; i < o->bias.count; i++)
        BY_TRY(add_bias(t, o->bias.items[i], out));
    at = out->bias_tokens.data;
    for (int i = 0; i < out->bias_count; i++) {
        by_bias b = out->biases[i];
        bool seen = false;
        b.tokens = at;
        at += b.count;
        for (int k = 0; k < kept; k++)
            seen = seen || (out->biases[k].count == b.count &&
                            memcmp(out->biases[k].tokens, b.tokens, sizeof *b.tokens * (size_t)b.count) == 0);
        if (!seen)
            out->biases[kept++] = b;
    }
    out->bias_count = kept;
    return BY_OK;
}

by_status cli_constraints_open(const cli_strategy *o, const by_tokenizer *t, cli_constraints *out)
{
    if (o->returned > o->beams)
        return base_fail(BY_ERR_ARGUMENT, "--return %d: a search with --beams %d returns at most %d texts",
                         o->returned, o->beams, o->beams);
    if (o->groups > 1 && o->beams % o->groups != 0)
        return base_fail(BY_ERR_ARGUMENT, "--groups %d does not divide --beams %d", o->groups, o->beams);
    if (o->diversity > 0 && o->groups < 2)
        return base_fail(BY_ERR_ARGUMENT,
                         "--diversity needs more than one group of beams; give --groups too");
    BY_TRY(open_words(o, t, out));
    BY_TRY(open_biases(o, t, out));
    if (o->start)
        BY_TRY(find_token("--decoder-start", t, o->start, &out->start));
    if (o->begin)
        BY_TRY(encode("--begin", t, o->begin, &out->begin));
    if (o->force_first)
        BY_TRY(find_token("--force-first", t, o->force_first, &out->first));
    if (o->force_last)
        BY_TRY(find_token("--force-last", t, o->force_last, &out->last));
    return BY_OK;
}

by_status cli_constraints_add(cli_constraints *c, const by_words *words, int count)
{
    by_words *all = base_resize(c->words, (size_t)c->count + (size_t)count + 1, sizeof *all);
    if (!all)
        return BY_ERR_MEMORY;
    c->words = all;
    for (int i = 0; i < count; i++)
        all[c->count++] = words[i];
    return BY_OK;
}

void cli_constraints_close(cli_constraints *c)
{
    tok_ids_free(&c->banned);
    tok_ids_free(&c->tokens);
    tok_ids_free(&c->begin);
    tok_ids_free(&c->bias_tokens);
    base_free(c->biases);
    base_free(c->words);
    *c = (cli_constraints){0};
}

double cli_share(double p)
{
    return BY_MAX(p, DBL_MIN);
}

void cli_strategy_apply(const cli_strategy *o, const cli_constraints *c, by_generate_spec *spec)
{
    by_sampling *s = &spec->sampling;
    s->repetition_penalty = o->repeat;
    s->presence_penalty = o->presence;
    s->frequency_penalty = o->frequency;
    s->no_repeat_ngram = o->no_repeat;
    s->source_penalty = o->source_repeat;
    s->no_source_ngram = o->no_source;
    s->remove_invalid = o->remove_invalid;
    s->biases = c->biases;
    s->bias_count = c->bias_count;
    s->top_h = o->top_h;
    s->epsilon_cutoff = o->epsilon;
    s->eta_cutoff = o->eta;
    spec->max_seconds = o->max_time;
    spec->start = o->start ? &c->start : NULL;
    s->banned = c->banned.data;
    s->banned_count = (int)c->banned.count;
    s->words = c->words;
    s->word_count = c->count;
    s->min_new_tokens = o->min_new;
    s->prefix = c->begin.data;
    s->prefix_count = (int)c->begin.count;
    s->forced_first = o->force_first ? &c->first : NULL;
    s->forced_last = o->force_last ? &c->last : NULL;
    if (o->beams > 1)
        spec->beam = (by_beam){.width = o->beams,
                               .groups = o->groups,
                               .diversity = o->diversity,
                               .length_penalty = o->length_penalty,
                               .early_stopping = (by_early_stopping)o->early_stopping,
                               .returned = o->returned,
                               .renormalize = o->renormalize};
}

by_status cli_strategy_merge(const by_rewrite_defaults *d, const cli_args *args, const cli_strategy *given,
                             int prompt, int most, cli_strategy *s, cli_constraints *c)
{
    const by_beam *b = &d->generate.beam;
    const by_sampling *own = &d->generate.sampling;
    const int least = by_rewrite_defaults_least(d, prompt);
    if (!cli_given(args, &given->beams) && b->width > 0)
        s->beams = b->width;
    if (!cli_given(args, &given->returned) && b->returned > 1) {
        if (s->beams < 2)
            return base_fail(BY_ERR_UNSUPPORTED,
                             "num_return_sequences of the model's directory is %d without a beam search, "
                             "which is not supported: use --no-generation-config",
                             b->returned);
        s->returned = BY_MIN(b->returned, s->beams);
    }
    if (!cli_given(args, &given->length_penalty))
        s->length_penalty = b->length_penalty;
    if (!cli_given(args, &given->early_stopping))
        s->early_stopping = b->early_stopping;
    if (!cli_given(args, &given->no_repeat))
        s->no_repeat = own->no_repeat_ngram;
    if (!cli_given(args, &given->repeat) && own->repetition_penalty > 0)
        s->repeat = own->repetition_penalty;
    if (!cli_given(args, &given->source_repeat) && own->source_penalty > 0)
        s->source_repeat = own->source_penalty;
    if (!cli_given(args, &given->no_source))
        s->no_source = own->no_source_ngram;
    if (!cli_given(args, &given->remove_invalid))
        s->remove_invalid = own->remove_invalid;
    if (!cli_given(args, &given->renormalize))
        s->renormalize = b->renormalize;
    if (!cli_given(args, &given->max_time))
        s->max_time = d->generate.max_seconds;
    if (!cli_given(args, &given->min_new))
        s->min_new = most ? BY_MIN(least, most) : least;
    for (int i = 0; i < own->banned_count; i++)
        BY_TRY(tok_ids_push(&c->banned, own->banned[i]));
    return BY_OK;
}

void cli_strategy_cutoffs(const by_rewrite_defaults *d, const cli_args *args, const cli_strategy *given,
                          cli_strategy *s)
{
    const by_sampling *own = &d->generate.sampling;
    if (!cli_given(args, &given->top_h))
        s->top_h = own->top_h;
    if (!cli_given(args, &given->epsilon))
        s->epsilon = own->epsilon_cutoff;
    if (!cli_given(args, &given->eta))
        s->eta = own->eta_cutoff;
}

by_status cli_check_cutoffs(const cli_args *args, double temperature)
{
    static const char *const names[] = {"top-k",          "top-p",      "min-p", "typical",
                                        "epsilon-cutoff", "eta-cutoff", "top-h", NULL};
    const cli_option *given = temperature > 0 ? NULL : cli_given_among(args, names);
    return given ? base_fail(BY_ERR_ARGUMENT,
                             "--%s is for sampling, and nothing is sampled here: give a --temp above 0 too",
                             given->name)
                 : BY_OK;
}

void cli_strategy_finish(const by_rewrite_defaults *d, const cli_strategy *s, by_generate_spec *spec)
{
    const by_sampling *own = &d->generate.sampling;
    if (!s->force_first)
        spec->sampling.forced_bos = own->forced_bos;
    if (!s->force_last)
        spec->sampling.forced_last = own->forced_last;
    spec->sampling.decay = own->decay;
    spec->sampling.decay_start = own->decay_start;
    if (s->bias.count == 0) {
        spec->sampling.biases = own->biases;
        spec->sampling.bias_count = own->bias_count;
    }
    if (!s->start)
        spec->start = d->generate.start;
    if (s->stop.count == 0) {
        spec->stop_strings = d->generate.stop_strings;
        spec->stop_string_count = d->generate.stop_string_count;
    }
    spec->sampling.suppressed = own->suppressed;
    spec->sampling.suppressed_count = own->suppressed_count;
    spec->sampling.first_banned = own->first_banned;
    spec->sampling.first_banned_count = own->first_banned_count;
    if (spec->ignore_eos || !d->generate.ignore_eos)
        return;
    spec->stop_tokens = d->generate.stop_tokens;
    spec->stop_count = d->generate.stop_count;
    spec->ignore_eos = true;
}
