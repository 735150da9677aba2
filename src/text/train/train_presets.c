/* train_presets.c - complete pipelines by name, and the defaults of a specification. */
#include "text/train/train.h"

/* JSON with ' instead of ", for readability. @TOKEN@ is the id of a token. */
#define BYTE_LEVEL "{'type':'ByteLevel','add_prefix_space':false,'trim_offsets':true,'use_regex':true}"
#define METASPACE  "{'type':'Metaspace','replacement':'\xe2\x96\x81','prepend_scheme':'always','split':true}"
#define BERT_SPLIT "{'type':'BertPreTokenizer'}"
#define BERT_CLEAN \
    "{'type':'BertNormalizer','clean_text':true,'handle_chinese_chars':true,'strip_accents':null,"
#define BERT_UNCASED   BERT_CLEAN "'lowercase':true}"
#define BERT_CASED     BERT_CLEAN "'lowercase':false}"
#define WORDPIECE_JOIN "{'type':'WordPiece','prefix':'%s','cleanup':true}"
#define SUFFIX_JOIN    "{'type':'BPEDecoder','suffix':'%s'}"

/* SentencePiece's normalisation before training, without its table of 200 kB. */
#define NMT_NFKC                                                        \
    "{'type':'Sequence','normalizers':[{'type':'Nmt'},{'type':'NFKC'}," \
    "{'type':'Replace','pattern':{'Regex':' {2,}'},'content':' '}]}"

static const char bert_template[] =
    "{'type':'TemplateProcessing','single':[{'SpecialToken':{'id':'[CLS]','type_id':0}},"
    "{'Sequence':{'id':'A','type_id':0}},{'SpecialToken':{'id':'[SEP]','type_id':0}}],"
    "'pair':[{'SpecialToken':{'id':'[CLS]','type_id':0}},{'Sequence':{'id':'A','type_id':0}},"
    "{'SpecialToken':{'id':'[SEP]','type_id':0}},{'Sequence':{'id':'B','type_id':1}},"
    "{'SpecialToken':{'id':'[SEP]','type_id':1}}],'special_tokens':{"
    "'[CLS]':{'id':'[CLS]','ids':[@[CLS]@],'tokens':['[CLS]']},"
    "'[SEP]':{'id':'[SEP]','ids':[@[SEP]@],'tokens':['[SEP]']}}}";
static const char t5_template[] =
    "{'type':'TemplateProcessing','single':[{'Sequence':{'id':'A','type_id':0}},"
    "{'SpecialToken':{'id':'</s>','type_id':0}}],'pair':[{'Sequence':{'id':'A','type_id':0}},"
    "{'SpecialToken':{'id':'</s>','type_id':0}},{'Sequence':{'id':'B','type_id':0}},"
    "{'SpecialToken':{'id':'</s>','type_id':0}}],'special_tokens':{"
    "'</s>':{'id':'</s>','ids':[@</s>@],'tokens':['</s>']}}}";
static const char roberta_post[] = "{'type':'RobertaProcessing','sep':['</s>',@</s>@],'cls':['<s>',@<s>@],"
                                   "'trim_offsets':true,'add_prefix_space':false}";

static const char *const gpt2_special[] = {"<|endoftext|>", NULL};
static const char *const gpt_special[] = {"<unk>", NULL};
static const char *const roberta_special[] = {"<s>", "<pad>", "</s>", "<unk>", "<mask>", NULL};
static const char *const bert_special[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", NULL};
static const char *const t5_special[] = {"<pad>", "</s>", "<unk>", NULL};

static const tok_preset presets[] = {
    {.name = "gpt2",
     .kind = BY_VOCAB_BPE,
     .byte_level = true,
     .pre_tokenizer = BYTE_LEVEL,
     .post_processor = "{'type':'ByteLevel','add_prefix_space':true,'trim_offsets':false,'use_regex':true}",
     .decoder = BYTE_LEVEL,
     .special = gpt2_special,
     .roles = {{"unk_token", "<|endoftext|>"}}},
    {.name = "roberta",
     .kind = BY_VOCAB_BPE,
     .byte_level = true,
     .pre_tokenizer = BYTE_LEVEL,
     .post_processor = roberta_post,
     .decoder = BYTE_LEVEL,
     .special = roberta_special,
     .stripped = "<mask>",
     .roles = {{"unk_token", "<unk>"}, {"cls_token", "<s>"}, {"sep_token", "</s>"}}},
    {.name = "gpt",
     .kind = BY_VOCAB_BPE,
     .suffix = "</w>",
     .unknown = "<unk>",
     .normalizer = BERT_UNCASED,
     .pre_tokenizer = BERT_SPLIT,
     .decoder = SUFFIX_JOIN,
     .special = gpt_special},
    {.name = "bert",
     .kind = BY_VOCAB_WORDPIECE,
     .prefix = "##",
     .unknown = "[UNK]",
     .normalizer = BERT_UNCASED,
     .pre_tokenizer = BERT_SPLIT,
     .post_processor = bert_template,
     .decoder = WORDPIECE_JOIN,
     .special = bert_special},
    {.name = "bert-cased",
     .kind = BY_VOCAB_WORDPIECE,
     .prefix = "##",
     .unknown = "[UNK]",
     .normalizer = BERT_CASED,
     .pre_tokenizer = BERT_SPLIT,
     .post_processor = bert_template,
     .decoder = WORDPIECE_JOIN,
     .special = bert_special},
    {.name = "t5",
     .kind = BY_VOCAB_UNIGRAM,
     .unknown = "<unk>",
     .normalizer = NMT_NFKC,
     .pre_tokenizer = METASPACE,
     .post_processor = t5_template,
     .decoder = METASPACE,
     .special = t5_special,
     .extra_ids = 100},
};

/* Unnamed pipelines: bytes, affixes, or a visible space before words. */
static const tok_preset plain_bytes = {.kind = BY_VOCAB_BPE,
                                       .byte_level = true,
                                       .pre_tokenizer = BYTE_LEVEL,
                                       .post_processor = BYTE_LEVEL,
                                       .decoder = BYTE_LEVEL};
static const tok_preset plain_suffix = {
    .kind = BY_VOCAB_BPE, .unknown = "<unk>", .pre_tokenizer = BERT_SPLIT, .decoder = SUFFIX_JOIN};
static const tok_preset plain_prefix = {
    .kind = BY_VOCAB_BPE, .unknown = "<unk>", .pre_tokenizer = BERT_SPLIT, .decoder = WORDPIECE_JOIN};
static const tok_preset plain_bpe = {.kind = BY_VOCAB_BPE,
                                     .unknown = "<unk>",
                                     .normalizer = "{'type':'NFKC'}",
                                     .pre_tokenizer = METASPACE,
                                     .decoder = METASPACE};
static const tok_preset plain_wordpiece = {.kind = BY_VOCAB_WORDPIECE,
                                           .prefix = "##",
                                           .unknown = "[UNK]",
                                           .normalizer = BERT_CASED,
                                           .pre_tokenizer = BERT_SPLIT,
                                           .decoder = WORDPIECE_JOIN};
static const tok_preset plain_unigram = {.kind = BY_VOCAB_UNIGRAM,
                                         .unknown = "<unk>",
                                         .normalizer = NMT_NFKC,
                                         .pre_tokenizer = METASPACE,
                                         .decoder = METASPACE};

/* Words as spaces separate them, and the ends of lines. */
static const tok_preset plain_word = {
    .kind = BY_VOCAB_WORD,
    .unknown = "<unk>",
    .pre_tokenizer =
        "{'type':'Split','pattern':{'Regex':'\\\\n|[^\\\\s]+'},'behavior':'Removed','invert':true}"};

static const char *kind_name(by_vocab_kind kind)
{
    static const char *const names[] = {"any", "BPE", "WordPiece", "Unigram", "WordLevel"};
    return names[kind];
}

static const tok_preset *plain_preset(const by_vocab_spec *s)
{
    if (s->kind == BY_VOCAB_WORDPIECE)
        return &plain_wordpiece;
    if (s->kind == BY_VOCAB_UNIGRAM)
        return &plain_unigram;
    if (s->kind == BY_VOCAB_WORD)
        return &plain_word;
    return s->byte_level ? &plain_bytes : s->suffix ? &plain_suffix : s->prefix ? &plain_prefix : &plain_bpe;
}

static by_status find_preset(const by_vocab_spec *s, const tok_preset **out)
{
    *out = plain_preset(s);
    if (!s->like)
        return BY_OK;
    for (int i = 0; i < BY_COUNT(presets); i++)
        if (strcmp(s->like, presets[i].name) == 0) {
            *out = &presets[i];
            if (s->kind == BY_VOCAB_AUTO || s->kind == presets[i].kind)
                return BY_OK;
            return base_fail(BY_ERR_ARGUMENT, "a tokenizer like %s must be %s, not %s", s->like,
                             kind_name(presets[i].kind), kind_name(s->kind));
        }
    return base_fail(BY_ERR_ARGUMENT, "unknown tokenizer \"%.40s\"", s->like);
}

/* ---- checks ---------------------------------------------------------------------------------- */

static by_status check_text(const char *text, const char *what)
{
    size_t n = text ? strlen(text) : 1;
    for (size_t i = 0; i < n && text;) {
        uint32_t c;
        int k = tok_utf8_decode((const uint8_t *)text + i, n - i, &c);
        if (k == 0)
            return base_fail(BY_ERR_ARGUMENT, "%s is not UTF-8", what);
        i += (size_t)k;
    }
    return n ? BY_OK : base_fail(BY_ERR_ARGUMENT, "%s is empty", what);
}

/* It is also inserted into the JSON of a decoder verbatim. */
static by_status check_affix(const char *text, const char *what)
{
    BY_TRY(check_text(text, what));
    for (size_t i = 0; text && text[i]; i++)
        if ((uint8_t)text[i] < 0x20 || strchr("'\"\\", text[i]) || i >= 64)
            return base_fail(BY_ERR_ARGUMENT, "%s is longer than 64 bytes or contains a quote or backslash",
                             what);
    return BY_OK;
}

static by_status check_affixes(const by_vocab_spec *s)
{
    BY_TRY(check_affix(s->prefix, "the prefix of continuing tokens"));
    BY_TRY(check_affix(s->suffix, "the suffix of ending tokens"));
    if (s->byte_level && (s->prefix || s->suffix))
        return base_fail(BY_ERR_ARGUMENT, "byte-level tokens have no prefix or suffix");
    if (s->byte_level && s->kind != BY_VOCAB_BPE)
        return base_fail(BY_ERR_ARGUMENT, "only BPE can be byte-level, not %s", kind_name(s->kind));
    if ((s->kind == BY_VOCAB_UNIGRAM || s->kind == BY_VOCAB_WORD) && (s->prefix || s->suffix))
        return base_fail(BY_ERR_ARGUMENT, "%s tokens have no prefix or suffix", kind_name(s->kind));
    if (s->kind == BY_VOCAB_WORDPIECE && s->suffix)
        return base_fail(BY_ERR_ARGUMENT, "WordPiece tokens have no suffix");
    return BY_OK;
}

static by_status check_numbers(const by_vocab_spec *s)
{
    if (s->size < 1 || s->size > 1 << 23)
        return base_fail(BY_ERR_ARGUMENT, "the vocabulary size %d is not between 1 and %d", s->size, 1 << 23);
    if (s->min_frequency < 0 || s->limit_alphabet < 0 || s->max_token_length < 0 || s->seed_size < 0 ||
        s->sub_iterations < 0 || s->special_count < 0)
        return base_fail(BY_ERR_ARGUMENT,
                         "min_frequency, limit_alphabet and the other limits must not be negative");
    if (s->kind == BY_VOCAB_UNIGRAM && s->max_token_length > TOK_UNIGRAM_LONGEST)
        return base_fail(BY_ERR_ARGUMENT, "Unigram tokens of %d characters exceed the limit of %d",
                         s->max_token_length, TOK_UNIGRAM_LONGEST);
    if (!(s->shrinking_factor > 0 && s->shrinking_factor < 1))
        return base_fail(BY_ERR_ARGUMENT, "the shrinking factor %g is not between 0 and 1",
                         s->shrinking_factor);
    return BY_OK;
}

/* ---- filling in ------------------------------------------------------------------------------ */

/* Returns the JSON of a part: the user's, otherwise the preset's with its quotes restored and the affix for
 * %s. */
static const char *part_json(base_arena *keep, const char *given, const char *preset, const char *affix)
{
    if (given || !preset)
        return given ? given : "null";
    const char *hole = strstr(preset, "%s");
    size_t n = hole ? (size_t)(hole - preset) : strlen(preset);
    char *json = base_arena_sprintf(keep, "%.*s%s%s", (int)n, preset, hole && affix ? affix : "",
                                    hole ? hole + 2 : "");
    for (char *c = json; c && *c; c++)
        *c = *c == '\'' ? '"' : *c;
    return json;
}

static const char *lower_json(base_arena *keep, const char *normalizer)
{
    if (!normalizer || strcmp(normalizer, "null") == 0)
        return "{\"type\":\"Lowercase\"}";
    return base_arena_sprintf(keep, "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Lowercase\"},%s]}",
                              normalizer);
}

/* Lists the special tokens: the caller's or the preset's, preceded by the unknown token if it is not among
 * them. */
static by_status list_special(const by_vocab_spec *s, const tok_preset *p, base_arena *keep,
                              by_vocab_spec *full)
{
    static const char *const none[] = {NULL};
    const char *const *list = s->special ? s->special : p->special ? p->special : none;
    int count = s->special ? s->special_count : 0;
    while (!s->special && list[count])
        count++;
    const char **all = base_arena_alloc(keep, ((size_t)count + 2) * sizeof(*all));
    if (!all)
        return BY_ERR_MEMORY;
    bool there = !full->unknown;
    int n = 0;
    for (int i = 0; i < count; i++)
        there = there || strcmp(list[i], full->unknown) == 0;
    if (!there)
        all[n++] = full->unknown;
    for (int i = 0; i < count; i++) {
        BY_TRY(check_text(list[i], "a special token"));
        bool repeated = false;
        for (int k = 0; k < n; k++)
            repeated = repeated || strcmp(all[k], list[i]) == 0;
        if (!repeated)
            all[n++] = list[i];
    }
    full->special = all;
    full->special_count = n;
    return BY_OK;
}

by_status tok_preset_resolve(const by_vocab_spec *spec, base_arena *keep, tok_preset *made,
                             by_vocab_spec *full)
{
    const tok_preset *p;
    if (spec->kind < BY_VOCAB_AUTO || spec->kind > BY_VOCAB_WORD)
        return base_fail(BY_ERR_ARGUMENT, "unknown kind %d of vocabulary", (int)spec->kind);
    BY_TRY(find_preset(spec, &p));
    *made = *p;
    *full = *spec;
    full->kind = p->kind;
    full->byte_level = spec->byte_level || p->byte_level;
    full->prefix = spec->prefix ? spec->prefix : p->prefix;
    full->suffix = spec->suffix ? spec->suffix : p->suffix;
    full->unknown = spec->unknown ? spec->unknown : p->unknown;
    full->size = spec->size ? spec->size : 30000;
    full->min_frequency = spec->min_frequency ? spec->min_frequency : p->kind == BY_VOCAB_WORD ? 1 : 2;
    full->shrinking_factor = spec->shrinking_factor != 0 ? spec->shrinking_factor : 0.75;
    full->sub_iterations = spec->sub_iterations ? spec->sub_iterations : 2;
    full->seed_size = spec->seed_size ? spec->seed_size : 1000000;
    if (full->kind == BY_VOCAB_UNIGRAM && !spec->max_token_length)
        full->max_token_length = 16;
    full->threads = spec->threads > 0 ? spec->threads : base_cores();
    BY_TRY(check_affixes(full));
    BY_TRY(check_numbers(full));
    BY_TRY(list_special(spec, p, keep, full));
    const char *affix = full->suffix ? full->suffix : full->prefix;
    full->normalizer = part_json(keep, spec->normalizer, p->normalizer, NULL);
    full->pre_tokenizer = part_json(keep, spec->pre_tokenizer, p->pre_tokenizer, NULL);
    full->post_processor = part_json(keep, spec->post_processor, p->post_processor, NULL);
    full->decoder = part_json(keep, spec->decoder, p->decoder, affix);
    if (spec->lowercase)
        full->normalizer = lower_json(keep, full->normalizer);
    return full->normalizer && full->pre_tokenizer && full->post_processor && full->decoder ? BY_OK
                                                                                            : BY_ERR_MEMORY;
}
