/* special.c - special tokens by role (padding, mask, ...), and which pieces start and end words. */
#include "text/kind.h"
#include "text/pipeline.h"

static const struct {
    const char *key;       /* in tokenizer_config.json */
    const char *custom[3]; /* conventional names, used by default */
} roles[BY_SPECIAL_COUNT] = {
    [BY_SPECIAL_PAD] = {"pad_token", {"[PAD]", "<pad>"}},
    [BY_SPECIAL_FIRST] = {"cls_token", {"[CLS]", "<s>", "<cls>"}},
    [BY_SPECIAL_SEP] = {"sep_token", {"[SEP]", "</s>", "<sep>"}},
    [BY_SPECIAL_MASK] = {"mask_token", {"[MASK]", "<mask>", "<special1>"}},
    [BY_SPECIAL_UNKNOWN] = {"unk_token", {"[UNK]", "<unk>"}},
};

const char *const tok_special_lists[2] = {"additional_special_tokens", "extra_special_tokens"};

const char *tok_special_text(const cJSON *token)
{
    const char *text = cJSON_GetStringValue(token);
    return text ? text : tok_stage_string(token, "content");
}

const char *tok_special_name(const cJSON *config, const char *key)
{
    return tok_special_text(cJSON_GetObjectItemCaseSensitive(config, key));
}

void tok_special_read(by_tokenizer *t, const cJSON *config)
{
    for (int i = 0; i < BY_SPECIAL_COUNT; i++) {
        const char *name = tok_special_name(config, roles[i].key);
        int id = name ? by_tokenizer_find(t, name) : -1;
        if (id >= 0)
            t->special[i] = id + 1;
    }
}

/* ---- special tokens that decoding may omit ---------------------------------------------------- */

static void mark(tok_pipeline *p, const char *name)
{
    const int id = name ? by_tokenizer_find(&p->base, name) : -1;
    if (id >= 0)
        p->specials[id] = true;
}

/* Every token that these files call special is special, whatever tokenizer.json says of it. */
void tok_special_mark(by_tokenizer *t, const cJSON *config)
{
    static const char *const names[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                        "pad_token", "cls_token", "mask_token"};
    tok_pipeline *p = t->kind == &tok_text_pipeline ? (tok_pipeline *)t : NULL;
    const cJSON *item;
    if (!p)
        return;
    for (int i = 0; i < BY_COUNT(names); i++)
        mark(p, tok_special_name(config, names[i]));
    for (int i = 0; i < BY_COUNT(tok_special_lists); i++)
        cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(config, tok_special_lists[i]))
        {
            mark(p, tok_special_text(item));
        }
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(config, "added_tokens_decoder"))
    {
        if (cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(item, "special")))
            mark(p, tok_special_text(item));
    }
}

/* Writes the special tokens that tokenizer.json does not mark. */
static void write_marked(const tok_pipeline *p, base_buf *out)
{
    int count = 0;
    for (int id = 0; id < p->base.vocab_size; id++) {
        const tok_added_token *added = p->specials[id] ? tok_added_find(&p->added, id) : NULL;
        if (!p->specials[id] || (added && added->special))
            continue;
        base_buf_puts(out, count++ ? ", " : "  \"additional_special_tokens\": [");
        tok_json_put_string(out, added ? added->content : p->texts[id].text,
                            added ? added->size : p->texts[id].size);
    }
    if (count)
        base_buf_puts(out, "],\n");
}

/* The reference library asks its tokenizers for these by name. */
void tok_special_write(const by_tokenizer *t, base_buf *out)
{
    const tok_pipeline *p = t->kind == &tok_text_pipeline ? (const tok_pipeline *)t : NULL;
    for (int i = 0; i < BY_SPECIAL_COUNT && p; i++) {
        int id = by_tokenizer_special(t, (by_special)i);
        const tok_added_token *added = id >= 0 ? tok_added_find(&p->added, id) : NULL;
        if (!added)
            continue;
        base_buf_printf(out, "  \"%s\": ", roles[i].key);
        tok_json_put_string(out, added->content, added->size);
        base_buf_puts(out, ",\n");
    }
    if (p)
        write_marked(p, out);
}

int by_tokenizer_special(const by_tokenizer *t, by_special which)
{
    if ((unsigned)which >= BY_SPECIAL_COUNT)
        return -1;
    if (t->special[which])
        return t->special[which] - 1;
    for (int i = 0; i < BY_COUNT(roles[which].custom) && roles[which].custom[i]; i++) {
        int id = by_tokenizer_find(t, roles[which].custom[i]);
        if (id >= 0)
            return id;
    }
    return -1;
}

/* ---- words ----------------------------------------------------------------------------------- */

/* How pieces mark where words start or end. */
typedef struct marks {
    const char *text;
    bool suffix; /* at the end of the last piece; otherwise at the start of a piece */
    uint8_t with, without;
} marks;

static const marks known_marks[] = {
    {"##", false, 0, TOK_ID_BEGINS},           /* WordPiece: continues a word */
    {"\xc4\xa0", false, TOK_ID_BEGINS, 0},     /* byte-level BPE: the space before */
    {"\xe2\x96\x81", false, TOK_ID_BEGINS, 0}, /* SentencePiece: the same */
    {"</w>", true, TOK_ID_ENDS, 0},            /* BPE of GPT and XLM */
};

static bool has_mark(const tok_token *t, const marks *m)
{
    size_t n = strlen(m->text);
    return t->text && t->size > n && memcmp(t->text + (m->suffix ? t->size - n : 0), m->text, n) == 0;
}

/* Returns the mark that most tokens have, if at least one in a hundred has it. */
static const marks *find_marks(const tok_pipeline *p)
{
    const marks *best = NULL;
    int most = p->base.vocab_size / 100;
    for (int k = 0; k < BY_COUNT(known_marks); k++) {
        int count = 0;
        for (int id = 0; id < p->base.vocab_size; id++)
            count += has_mark(&p->texts[id], &known_marks[k]);
        if (count > most) {
            best = &known_marks[k];
            most = count;
        }
    }
    return best;
}

bool tok_parts(const by_tokenizer *t, uint8_t *out)
{
    const tok_pipeline *p = t->kind == &tok_text_pipeline ? (const tok_pipeline *)t : NULL;
    const marks *m = p ? find_marks(p) : NULL;
    for (int id = 0; id < t->vocab_size; id++) {
        out[id] = m ? (has_mark(&p->texts[id], m) ? m->with : m->without) : TOK_ID_BEGINS | TOK_ID_ENDS;
        if (p && !p->texts[id].text)
            out[id] = TOK_ID_ABSENT;
        else if (p ? p->specials[id] : id == t->eos)
            out[id] = TOK_ID_SPECIAL;
    }
    for (int i = 0; i < BY_SPECIAL_COUNT; i++) {
        int id = by_tokenizer_special(t, (by_special)i);
        if (id >= 0)
            out[id] = TOK_ID_SPECIAL;
    }
    return m != NULL;
}
