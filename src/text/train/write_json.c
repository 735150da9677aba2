/* write_json.c - writes tokenizer.json and tokenizer_config.json of a trained vocabulary. */
#include <stdio.h>

#include "text/train/train.h"

static void put_text(base_buf *out, const char *s)
{
    if (s)
        tok_json_put_string(out, s, strlen(s));
    else
        base_buf_puts(out, "null");
}

static void put_token(base_buf *out, const tok_vocab *v, int32_t id)
{
    tok_json_put_string(out, v->tokens[id].text, v->tokens[id].size);
}

/* ---- parts ----------------------------------------------------------------------------------- */

static void put_added_token(base_buf *out, const char *content, int id, bool lstrip)
{
    base_buf_printf(out, "%s{\"id\":%d,\"content\":", id ? ",\n    " : "\n    ", id);
    put_text(out, content);
    base_buf_printf(
        out, ",\"single_word\":false,\"lstrip\":%s,\"rstrip\":false,\"normalized\":false,\"special\":true}",
        lstrip ? "true" : "false");
}

/* Special tokens have the first ids; T5's sentinels come after all others, in reverse order. */
static void put_added(base_buf *out, const tok_preset *p, const by_vocab_spec *spec, const tok_vocab *v)
{
    base_buf_puts(out, "  \"added_tokens\": [");
    for (int i = 0; i < spec->special_count; i++)
        put_added_token(out, spec->special[i], i, p->stripped && strcmp(p->stripped, spec->special[i]) == 0);
    for (int i = p->extra_ids; i-- > 0;) {
        char name[32];
        base_format(name, sizeof(name), "<extra_id_%d>", i);
        put_added_token(out, name, v->count + p->extra_ids - 1 - i, false);
    }
    base_buf_puts(out, "],\n");
}

/* Writes the JSON with each @TOKEN@ replaced by the id of that special token. */
static by_status put_post(base_buf *out, const by_vocab_spec *spec)
{
    const char *json = spec->post_processor, *mark, *end;
    base_buf_puts(out, "  \"post_processor\": ");
    while ((mark = strchr(json, '@')) && (end = strchr(mark + 1, '@'))) {
        base_buf_put(out, json, (size_t)(mark - json));
        size_t n = (size_t)(end - mark - 1);
        int id = 0;
        while (id < spec->special_count &&
               (strlen(spec->special[id]) != n || memcmp(spec->special[id], mark + 1, n) != 0))
            id++;
        if (id == spec->special_count)
            return base_fail(BY_ERR_ARGUMENT,
                             "the post-processor requires \"%.*s\", which is not a special token",
                             (int)BY_MIN(n, (size_t)40), mark + 1);
        base_buf_printf(out, "%d", id);
        json = end + 1;
    }
    base_buf_puts(out, json);
    base_buf_puts(out, ",\n");
    return BY_OK;
}

static void put_vocab(base_buf *out, const tok_vocab *v)
{
    base_buf_puts(out, "    \"vocab\": {");
    for (int id = 0; id < v->count; id++) {
        base_buf_puts(out, id ? ",\n      " : "\n      ");
        put_token(out, v, id);
        base_buf_printf(out, ": %d", id);
    }
    base_buf_puts(out, "\n    }");
}

static void put_bpe(base_buf *out, const by_vocab_spec *spec, const tok_trained *t)
{
    base_buf_puts(out, "    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": ");
    put_text(out, spec->unknown);
    base_buf_puts(out, ",\n    \"continuing_subword_prefix\": ");
    put_text(out, spec->prefix);
    base_buf_puts(out, ",\n    \"end_of_word_suffix\": ");
    put_text(out, spec->suffix);
    base_buf_puts(
        out, ",\n    \"fuse_unk\": false,\n    \"byte_fallback\": false,\n    \"ignore_merges\": false,\n");
    put_vocab(out, &t->vocab);
    base_buf_puts(out, ",\n    \"merges\": [");
    for (int i = 0; i < t->merge_count; i++) {
        base_buf_puts(out, i ? ",\n      [" : "\n      [");
        put_token(out, &t->vocab, t->merges[i].left);
        base_buf_puts(out, ", ");
        put_token(out, &t->vocab, t->merges[i].right);
        base_buf_puts(out, "]");
    }
    base_buf_puts(out, "\n    ]\n");
}

static void put_wordpiece(base_buf *out, const by_vocab_spec *spec, const tok_trained *t)
{
    base_buf_puts(out, "    \"type\": \"WordPiece\",\n    \"unk_token\": ");
    put_text(out, spec->unknown);
    base_buf_puts(out, ",\n    \"continuing_subword_prefix\": ");
    put_text(out, spec->prefix);
    base_buf_puts(out, ",\n    \"max_input_chars_per_word\": 100,\n");
    put_vocab(out, &t->vocab);
    base_buf_puts(out, "\n");
}

static void put_unigram(base_buf *out, const by_vocab_spec *spec, const tok_trained *t)
{
    int32_t unknown = tok_vocab_find(&t->vocab, spec->unknown, strlen(spec->unknown));
    base_buf_printf(out, "    \"type\": \"Unigram\",\n    \"unk_id\": %d,\n    \"vocab\": [", (int)unknown);
    for (int id = 0; id < t->vocab.count; id++) {
        base_buf_puts(out, id ? ",\n      [" : "\n      [");
        put_token(out, &t->vocab, id);
        base_buf_printf(out, ", %.17g]", t->scores[id]);
    }
    base_buf_puts(out, "\n    ],\n    \"byte_fallback\": false\n");
}

static void put_word_level(base_buf *out, const by_vocab_spec *spec, const tok_trained *t)
{
    base_buf_puts(out, "    \"type\": \"WordLevel\",\n");
    put_vocab(out, &t->vocab);
    base_buf_puts(out, ",\n    \"unk_token\": ");
    put_text(out, spec->unknown);
    base_buf_puts(out, "\n");
}

/* ---- files ----------------------------------------------------------------------------------- */

by_status tok_trained_write(const tok_preset *p, const by_vocab_spec *spec, const tok_trained *t,
                            base_buf *out)
{
    base_buf_puts(out, "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n");
    put_added(out, p, spec, &t->vocab);
    base_buf_printf(out, "  \"normalizer\": %s,\n  \"pre_tokenizer\": %s,\n", spec->normalizer,
                    spec->pre_tokenizer);
    BY_TRY(put_post(out, spec));
    base_buf_printf(out, "  \"decoder\": %s,\n  \"model\": {\n", spec->decoder);
    if (spec->kind == BY_VOCAB_BPE)
        put_bpe(out, spec, t);
    else if (spec->kind == BY_VOCAB_WORDPIECE)
        put_wordpiece(out, spec, t);
    else if (spec->kind == BY_VOCAB_WORD)
        put_word_level(out, spec, t);
    else
        put_unigram(out, spec, t);
    base_buf_puts(out, "  }\n}\n");
    return out->failed ? base_fail(BY_ERR_MEMORY, "out of memory while writing tokenizer.json") : BY_OK;
}

static bool is_special(const by_vocab_spec *spec, const char *token)
{
    for (int i = 0; i < spec->special_count; i++)
        if (strcmp(spec->special[i], token) == 0)
            return true;
    return false;
}

static void put_role(base_buf *out, const char *role, const char *token)
{
    base_buf_printf(out, "  \"%s\": ", role);
    put_text(out, token);
    base_buf_puts(out, ",\n");
}

/* Writes the roles of special tokens as far as their names imply them. A missing token is not named: the
 * reference would add it. */
by_status tok_trained_config(const tok_preset *p, const by_vocab_spec *spec, base_buf *out)
{
    static const char *const roles[][3] = {
        {"bos_token", "<s>", "<|endoftext|>"}, {"eos_token", "</s>", "<|endoftext|>"},
        {"pad_token", "<pad>", "[PAD]"},       {"mask_token", "<mask>", "[MASK]"},
        {"cls_token", "<cls>", "[CLS]"},       {"sep_token", "<sep>", "[SEP]"},
    };
    base_buf_puts(out, "{\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\",\n");
    for (int r = 0; r < BY_COUNT(roles); r++)
        if (is_special(spec, roles[r][1]) || is_special(spec, roles[r][2]))
            put_role(out, roles[r][0], roles[r][is_special(spec, roles[r][1]) ? 1 : 2]);
    if (spec->unknown)
        put_role(out, "unk_token", spec->unknown);
    for (int r = 0; r < BY_COUNT(p->roles) && p->roles[r][0]; r++)
        if (is_special(spec, p->roles[r][1]))
            put_role(out, p->roles[r][0], p->roles[r][1]);
    base_buf_puts(out, "  \"clean_up_tokenization_spaces\": false\n}\n");
    return out->failed ? base_fail(BY_ERR_MEMORY, "out of memory while writing tokenizer_config.json")
                       : BY_OK;
}
