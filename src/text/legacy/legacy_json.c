/* legacy_json.c - writes the tokenizer.json that the reference library makes from a directory without one. */
#include <stdlib.h>

#include "text/legacy/legacy.h"

#define MARK "\xe2\x96\x81" /* U+2581, SentencePiece's space */

static void put_text(base_buf *out, const char *s)
{
    tok_json_put_string(out, s, strlen(s));
}

void tok_legacy_put_vocab(const tok_vocab *v, int count, base_buf *out)
{
    bool first = true;
    base_buf_puts(out, "{");
    for (int id = 0; id < count; id++) {
        const tok_token *t = &v->tokens[id];
        if (!t->text)
            continue;
        base_buf_puts(out, first ? "\n      " : ",\n      ");
        tok_json_put_string(out, t->text, t->size);
        base_buf_printf(out, ": %d", id);
        first = false;
    }
    base_buf_puts(out, "\n    }");
}

static const char *json_bool(bool v)
{
    return v ? "true" : "false";
}

static int role_id(const tok_legacy *l, int role)
{
    const char *text = tok_legacy_role(l, role);
    return text ? (int)tok_vocab_find(&l->vocab, text, strlen(text)) : -1;
}

/* ---- added tokens ---------------------------------------------------------------------------- */

static int compare_ids(const void *a, const void *b)
{
    return ((const tok_legacy_token *)a)->id - ((const tok_legacy_token *)b)->id;
}

static void put_added(tok_legacy *l)
{
    base_buf *out = &l->out;
    if (l->count)
        qsort(l->tokens, (size_t)l->count, sizeof(*l->tokens), compare_ids);
    base_buf_puts(out, "  \"added_tokens\": [");
    for (int i = 0; i < l->count; i++) {
        const tok_legacy_token *t = &l->tokens[i];
        base_buf_printf(out, "%s\n    {\"id\": %d, \"content\": ", i ? "," : "", t->id);
        put_text(out, t->content);
        base_buf_printf(
            out,
            ", \"single_word\": %s, \"lstrip\": %s, \"rstrip\": %s, \"normalized\": %s, \"special\": %s}",
            json_bool(t->single_word), json_bool(t->lstrip), json_bool(t->rstrip), json_bool(t->normalized),
            json_bool(t->special));
    }
    base_buf_puts(out, "\n  ],\n");
}

/* ---- stages ---------------------------------------------------------------------------------- */

/* BERT's cleaning; strip_accents follows the case unless it is set. GPT's is the same with everything
 * enabled. */
static void put_bert_normalizer(tok_legacy *l)
{
    const cJSON *strip = cJSON_GetObjectItemCaseSensitive(l->config, "strip_accents");
    bool gpt = l->family->flavor == TOK_LEGACY_GPT;
    base_buf_printf(&l->out,
                    "{\"type\": \"BertNormalizer\", \"clean_text\": true, \"handle_chinese_chars\": %s, "
                    "\"strip_accents\": %s, \"lowercase\": %s}",
                    json_bool(gpt || tok_legacy_setting(l, "tokenize_chinese_chars", true)),
                    cJSON_IsBool(strip) && !gpt ? json_bool(cJSON_IsTrue(strip)) : "null",
                    json_bool(gpt || tok_legacy_setting(l, "do_lower_case", true)));
}

static void put_map(tok_legacy *l)
{
    base_buf_puts(&l->out, "{\"type\": \"Precompiled\", \"precompiled_charsmap\": \"");
    tok_base64_encode(l->spiece.charsmap.data, l->spiece.charsmap.size, &l->out);
    base_buf_puts(&l->out, "\"}");
}

/* ALBERT and XLNet: quotes, accents and case before the model's own map. */
static void put_quotes_normalizer(tok_legacy *l)
{
    bool albert = l->family->flavor == TOK_LEGACY_ALBERT;
    base_buf_puts(&l->out,
                  "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Replace\", \"pattern\": "
                  "{\"String\": \"``\"}, \"content\": \"\\\"\"}, {\"type\": \"Replace\", \"pattern\": "
                  "{\"String\": \"''\"}, \"content\": \"\\\"\"}");
    if (!albert || !tok_legacy_setting(l, "keep_accents", false))
        base_buf_puts(&l->out, ", {\"type\": \"NFKD\"}, {\"type\": \"StripAccents\"}");
    if (tok_legacy_setting(l, "do_lower_case", albert))
        base_buf_puts(&l->out, ", {\"type\": \"Lowercase\"}");
    if (l->spiece.charsmap.size) {
        base_buf_puts(&l->out, ", ");
        put_map(l);
    }
    base_buf_puts(&l->out, "]}");
}

static void put_normalizer(tok_legacy *l)
{
    base_buf_puts(&l->out, "  \"normalizer\": ");
    switch (l->family->flavor) {
    case TOK_LEGACY_GPT:
    case TOK_LEGACY_BERT:
        put_bert_normalizer(l);
        break;
    case TOK_LEGACY_ALBERT:
    case TOK_LEGACY_XLNET:
        put_quotes_normalizer(l);
        break;
    case TOK_LEGACY_T5:
    case TOK_LEGACY_XLMR:
        if (l->spiece.charsmap.size) {
            put_map(l);
            break;
        }
        /* fall through */
    default:
        base_buf_puts(&l->out, "null");
    }
    base_buf_puts(&l->out, ",\n");
}

/* Llama: pieces may contain spaces, so nothing is split; decoding drops the prepended space. */
static void put_llama_stages(tok_legacy *l)
{
    bool prefix = tok_legacy_setting(l, "add_prefix_space", true);
    const char *scheme = !prefix ? "never" : tok_legacy_setting(l, "legacy", false) ? "always" : "first";
    base_buf_printf(&l->out,
                    "{\"type\": \"Metaspace\", \"replacement\": \"" MARK
                    "\", \"prepend_scheme\": \"%s\", \"split\": false},\n"
                    "  \"decoder\": {\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", "
                    "\"pattern\": {\"String\": \"" MARK "\"}, \"content\": \" \"}, "
                    "{\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}%s]},\n",
                    scheme,
                    prefix ? ", {\"type\": \"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 0}" : "");
}

/* Writes the pre-tokenizer and decoder. */
static void put_stages(tok_legacy *l)
{
    base_buf *out = &l->out;
    base_buf_puts(out, "  \"pre_tokenizer\": ");
    switch (l->family->flavor) {
    case TOK_LEGACY_GPT2:
    case TOK_LEGACY_ROBERTA:
        base_buf_printf(out,
                        "{\"type\": \"ByteLevel\", \"add_prefix_space\": %s, \"trim_offsets\": true, "
                        "\"use_regex\": true},\n"
                        "  \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, "
                        "\"trim_offsets\": true, \"use_regex\": true},\n",
                        json_bool(tok_legacy_setting(l, "add_prefix_space", false)));
        break;
    case TOK_LEGACY_GPT:
        base_buf_puts(out, "{\"type\": \"BertPreTokenizer\"},\n"
                           "  \"decoder\": {\"type\": \"BPEDecoder\", \"suffix\": \"</w>\"},\n");
        break;
    case TOK_LEGACY_BERT:
        base_buf_puts(out,
                      "{\"type\": \"BertPreTokenizer\"},\n"
                      "  \"decoder\": {\"type\": \"WordPiece\", \"prefix\": \"##\", \"cleanup\": true},\n");
        break;
    case TOK_LEGACY_LLAMA:
        put_llama_stages(l);
        break;
    case TOK_LEGACY_XLM: /* our own splitter, moses.c */
        base_buf_printf(out,
                        "{\"type\": \"XLM\", \"lowercase\": %s},\n"
                        "  \"decoder\": {\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", "
                        "\"pattern\": {\"String\": \"</w>\"}, \"content\": \" \"}, {\"type\": \"Fuse\"}, "
                        "{\"type\": \"Strip\", \"content\": \" \", \"start\": 1000000, \"stop\": "
                        "1000000}]},\n",
                        json_bool(tok_legacy_setting(l, "do_lowercase_and_remove_accent", true)));
        break;
    default:
        base_buf_puts(out, "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"WhitespaceSplit\"}, "
                           "{\"type\": \"Metaspace\", \"replacement\": \"" MARK
                           "\", \"prepend_scheme\": \"always\", \"split\": true}]},\n"
                           "  \"decoder\": {\"type\": \"Metaspace\", \"replacement\": \"" MARK
                           "\", \"prepend_scheme\": \"always\", \"split\": true},\n");
    }
}

/* ---- special tokens around a text ------------------------------------------------------------ */

/* Converts a template of a family to the format of tokenizer.json. */
static void put_template(tok_legacy *l, const char *key, const char *template)
{
    base_buf *out = &l->out;
    base_buf_printf(out, "\"%s\": [", key);
    for (const char *p = template; *p;) {
        size_t n = strcspn(p, " :");
        int type = p[n] == ':' ? p[n + 1] - '0' : 0, role = 0;
        while (role < TOK_ROLES &&
               (strlen(tok_legacy_role_names[role]) != n || memcmp(tok_legacy_role_names[role], p, n) != 0))
            role++;
        if (role == TOK_ROLES) {
            base_buf_printf(out, "{\"Sequence\": {\"id\": \"%c\", \"type_id\": %d}}", p[0], type);
        } else {
            base_buf_puts(out, "{\"SpecialToken\": {\"id\": ");
            put_text(out, tok_legacy_role(l, role));
            base_buf_printf(out, ", \"type_id\": %d}}", type);
        }
        p += n + (p[n] == ':' ? 2 : 0);
        if (*p == ' ') {
            base_buf_puts(out, ", ");
            p++;
        }
    }
    base_buf_puts(out, "], ");
}

static void put_special(tok_legacy *l, int role, bool first)
{
    base_buf *out = &l->out;
    const char *content = tok_legacy_role(l, role);
    base_buf_puts(out, first ? "" : ", ");
    put_text(out, content);
    base_buf_puts(out, ": {\"id\": ");
    put_text(out, content);
    base_buf_printf(out, ", \"ids\": [%d], \"tokens\": [", role_id(l, role));
    put_text(out, content);
    base_buf_puts(out, "]}");
}

static void put_templates(tok_legacy *l, const char *single, const char *pair)
{
    base_buf *out = &l->out;
    base_buf_puts(out, "  \"post_processor\": {\"type\": \"TemplateProcessing\", ");
    put_template(l, "single", single);
    put_template(l, "pair", pair);
    base_buf_puts(out, "\"special_tokens\": {");
    for (int r = 0, count = 0; r < TOK_ROLES; r++) {
        bool seen = false; /* roles may share a token */
        for (int k = 0; k < r && tok_legacy_role(l, r); k++)
            seen = seen || (strstr(single, tok_legacy_role_names[k]) && tok_legacy_role(l, k) &&
                            strcmp(tok_legacy_role(l, k), tok_legacy_role(l, r)) == 0);
        if (tok_legacy_role(l, r) && strstr(single, tok_legacy_role_names[r]) && !seen)
            put_special(l, r, count++ == 0);
    }
    base_buf_puts(out, "}},\n");
}

static void put_roberta(tok_legacy *l)
{
    base_buf *out = &l->out;
    base_buf_puts(out, "  \"post_processor\": {\"type\": \"RobertaProcessing\", \"sep\": [");
    put_text(out, tok_legacy_role(l, TOK_ROLE_SEP));
    base_buf_printf(out, ", %d], \"cls\": [", role_id(l, TOK_ROLE_SEP));
    put_text(out, tok_legacy_role(l, TOK_ROLE_CLS));
    base_buf_printf(out, ", %d], \"trim_offsets\": true, \"add_prefix_space\": %s},\n",
                    role_id(l, TOK_ROLE_CLS), json_bool(tok_legacy_setting(l, "add_prefix_space", false)));
}

static void put_post(tok_legacy *l)
{
    static const char *const llama[4][2] = {{"A", "A B:1"},
                                            {"bos A", "bos A bos:1 B:1"},
                                            {"A eos", "A eos B:1 eos:1"},
                                            {"bos A eos", "bos A eos bos:1 B:1 eos:1"}};
    int ends =
        tok_legacy_setting(l, "add_bos_token", false) + 2 * tok_legacy_setting(l, "add_eos_token", false);
    if (l->family->flavor == TOK_LEGACY_LLAMA)
        put_templates(l, llama[ends][0], llama[ends][1]);
    else if (l->family->flavor == TOK_LEGACY_ROBERTA)
        put_roberta(l);
    else if (l->family->single)
        put_templates(l, l->family->single, l->family->pair);
    else
        base_buf_puts(&l->out, "  \"post_processor\": null,\n");
}

/* ---- models ---------------------------------------------------------------------------------- */

static void put_pair(base_buf *out, bool first, tok_token left, tok_token right)
{
    base_buf_puts(out, first ? "\n      [" : ",\n      [");
    tok_json_put_string(out, left.text, left.size);
    base_buf_puts(out, ", ");
    tok_json_put_string(out, right.text, right.size);
    base_buf_puts(out, "]");
}

/* Reads merges.txt, after an optional first line "#version: ...". For XLM, lines that are not two tokens are
 * skipped. */
static by_status put_merges(tok_legacy *l)
{
    const char *p = l->merges_text;
    bool first = true;
    tok_token pair[2];
    base_buf_puts(&l->out, ",\n    \"merges\": [");
    for (int line = 1, found = 1; found; line++) {
        bool skip = *p == '\n' || *p == '\r' || (line == 1 && strncmp(p, "#version", 8) == 0);
        found = tok_legacy_merge(l, &p, pair);
        if (found < 0 && l->family->flavor != TOK_LEGACY_XLM && !skip)
            return base_fail(BY_ERR_FORMAT, "%s/merges.txt: line %d is not two tokens", l->dir, line);
        if (found > 0 && !skip) {
            put_pair(&l->out, first, pair[0], pair[1]);
            first = false;
        }
    }
    base_buf_puts(&l->out, "\n    ]");
    return BY_OK;
}

/* SentencePiece has no list of merges: every way to split a piece into two is one, pieces in the order of
 * their ids, the shorter left half first. */
static void put_piece_merges(tok_legacy *l)
{
    const tok_vocab *v = &l->vocab;
    bool first = true;
    base_buf_puts(&l->out, ",\n    \"merges\": [");
    for (int id = 0; id < l->spiece.count; id++) {
        const tok_token *t = &v->tokens[id];
        for (uint32_t i = 1; t->text && i < t->size; i++) {
            tok_token left = {t->text, i}, right = {t->text + i, t->size - i};
            if (((uint8_t)t->text[i] & 0xc0) == 0x80 || tok_vocab_find(v, left.text, left.size) < 0 ||
                tok_vocab_find(v, right.text, right.size) < 0)
                continue;
            put_pair(&l->out, first, left, right);
            first = false;
        }
    }
    base_buf_puts(&l->out, "\n    ]");
}

static by_status put_bpe(tok_legacy *l)
{
    base_buf *out = &l->out;
    tok_flavor flavor = l->family->flavor;
    bool words = flavor == TOK_LEGACY_GPT || flavor == TOK_LEGACY_XLM, pieces = flavor == TOK_LEGACY_LLAMA;
    base_buf_puts(out, "\"type\": \"BPE\", \"dropout\": null, \"unk_token\": ");
    if (words)
        put_text(out, tok_legacy_role(l, TOK_ROLE_UNK));
    else
        base_buf_puts(out, "null");
    base_buf_printf(
        out,
        ", \"continuing_subword_prefix\": \"\", \"end_of_word_suffix\": \"%s\", \"fuse_unk\": %s, "
        "\"byte_fallback\": %s, \"ignore_merges\": false,\n",
        words ? "</w>" : "", json_bool(pieces), json_bool(pieces));
    if (flavor == TOK_LEGACY_XLM)
        base_buf_printf(out, "    \"known\": %d,\n", l->known);
    base_buf_puts(out, "    \"vocab\": ");
    if (pieces || flavor == TOK_LEGACY_XLM)
        tok_legacy_put_vocab(&l->vocab, pieces ? l->spiece.count : l->vocab.count, out);
    else
        base_buf_puts(out, l->vocab_text);
    if (!pieces)
        return put_merges(l);
    put_piece_merges(l);
    return BY_OK;
}

static void put_wordpiece(tok_legacy *l)
{
    base_buf_puts(&l->out, "\"type\": \"WordPiece\", \"unk_token\": ");
    put_text(&l->out, tok_legacy_role(l, TOK_ROLE_UNK));
    base_buf_puts(&l->out, ", \"continuing_subword_prefix\": \"##\", \"max_input_chars_per_word\": 100,\n"
                           "    \"vocab\": ");
    tok_legacy_put_vocab(&l->vocab, l->vocab.count, &l->out);
}

static void put_unigram(tok_legacy *l)
{
    const tok_spiece *m = &l->spiece;
    bool xlmr = l->family->flavor == TOK_LEGACY_XLMR;
    base_buf_printf(&l->out,
                    "\"type\": \"Unigram\", \"unk_id\": %d, \"byte_fallback\": false,\n    \"vocab\": [",
                    BY_MAX(role_id(l, TOK_ROLE_UNK), 0));
    for (int id = 0, count = 0; id < l->vocab.count; id++) {
        const tok_token *t = &l->vocab.tokens[id];
        int32_t piece = t->text ? tok_vocab_find(&m->vocab, t->text, t->size) : -1;
        bool sentinel = t->text && (strncmp(t->text, "<extra_id_", 10) == 0 || xlmr);
        if (piece < 0 && !sentinel)
            break; /* from here on, ids belong to added tokens only */
        base_buf_puts(&l->out, count++ ? ",\n      [" : "\n      [");
        tok_json_put_string(&l->out, t->text, t->size);
        base_buf_printf(&l->out, ", %.17g]",
                        piece >= 0 && !(xlmr && id < 4) ? (double)m->scores[piece] : 0.0);
    }
    base_buf_puts(&l->out, "\n    ]");
}

static by_status put_model(tok_legacy *l)
{
    base_buf_puts(&l->out, "  \"model\": {");
    switch (l->family->flavor) {
    case TOK_LEGACY_BERT:
        put_wordpiece(l);
        break;
    case TOK_LEGACY_T5:
    case TOK_LEGACY_ALBERT:
    case TOK_LEGACY_XLNET:
    case TOK_LEGACY_XLMR:
        put_unigram(l);
        break;
    default:
        BY_TRY(put_bpe(l));
    }
    base_buf_puts(&l->out, "\n  }\n}\n");
    return BY_OK;
}

by_status tok_legacy_write(tok_legacy *l)
{
    base_buf_puts(&l->out, "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n");
    put_added(l);
    put_normalizer(l);
    put_stages(l);
    put_post(l);
    BY_TRY(put_model(l));
    return l->out.failed ? base_fail(BY_ERR_MEMORY, "out of memory while reading %s", l->dir) : BY_OK;
}
