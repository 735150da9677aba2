/* vocabulary.c - see vocabulary.h. */
#include "train/vocabulary.h"

#include <stdlib.h>

#include "banyan/train_tokenizer.h"
#include "base/file.h"
#include "base/input.h"
#include "models/models.h"
#include "text/tokenizer.h"

enum { SENTINELS = 100, MAX_SPECIAL = SENTINELS + 16 };

/* ---- pairs of texts -------------------------------------------------------------------------- */

/* "de" of "train.de" or "train.de.gz"; NULL when it does not look like a language. */
static const char *language_of(base_arena *arena, const char *path)
{
    const char *name = base_arena_sprintf(arena, "%.*s", (int)base_input_stem(path), path);
    const char *dot = name ? strrchr(name, '.') : NULL;
    if (!dot || strlen(dot) < 3 || strlen(dot) > 8 || strchr(dot, '/') || strcmp(dot, ".txt") == 0)
        return NULL;
    return dot + 1;
}

/* A special token before the source names the target language, as in Marian's multilingual models. */
static by_status name_directions(train_items *out, const by_run_spec *s, data_parallel_item *item)
{
    const by_objective_choice *c = &s->objective;
    const char *names[2] = {item->target ? language_of(out->arena, item->source) : NULL,
                            item->target ? language_of(out->arena, item->target) : NULL};
    if (c->language_count == 2) {
        names[0] = c->languages[0];
        names[1] = c->languages[1];
    }
    if (!names[0] || !names[1])
        return base_fail(BY_ERR_ARGUMENT,
                         "both directions of %s: give its two languages, or a prefix for each direction",
                         item->source);
    for (int i = 0; i < 2 && !out->tokens[i]; i++)
        out->tokens[i] = base_arena_sprintf(out->arena, ">>%s<<", names[1 - i]);
    item->prefix = base_arena_sprintf(out->arena, ">>%s<< ", names[1]);
    item->back = base_arena_sprintf(out->arena, ">>%s<< ", names[0]);
    return item->prefix && item->back ? BY_OK : BY_ERR_MEMORY;
}

static by_status find_prefixes(train_items *out, const by_run_spec *s, data_parallel_item *list)
{
    const by_objective_choice *c = &s->objective;
    const int n = out->spec.count, each = c->both_directions ? 2 : 1;
    if (c->prefix_count && c->prefix_count != n * each)
        return base_fail(BY_ERR_ARGUMENT, "%d prefixes for %d pair%s of texts%s; %d are needed",
                         c->prefix_count, n, n == 1 ? "" : "s",
                         c->both_directions ? " in both directions" : "", n * each);
    for (int i = 0; i < n; i++) {
        list[i].prefix = "";
        if (c->prefix_count) {
            list[i].prefix = c->prefixes[i * each];
            list[i].back = each > 1 ? c->prefixes[i * each + 1] : NULL;
        } else if (c->both_directions) {
            BY_TRY(name_directions(out, s, &list[i]));
        }
    }
    return BY_OK;
}

by_status train_items_make(train_items *out, const by_run_spec *spec, char *const *paths, int count)
{
    const by_objective_choice *c = &spec->objective;
    *out = (train_items){.arena = base_arena_new()};
    data_parallel_item *list =
        out->arena ? base_arena_alloc(out->arena, (size_t)BY_MAX(count, 1) * sizeof *list) : NULL;
    if (!list)
        return BY_ERR_MEMORY;
    if (c->language_count && c->language_count != 2)
        return base_fail(BY_ERR_ARGUMENT, "translation requires two languages, not %d", c->language_count);
    for (int i = 0; i < count; i++) {
        bool table = data_parallel_is_table(paths[i]);
        if (!table && (i + 1 == count || data_parallel_is_table(paths[i + 1])))
            return base_fail(BY_ERR_ARGUMENT,
                             "%s: a file of lines needs a second file with the translations after it; files "
                             "that have both end with .tsv, .csv or .jsonl",
                             paths[i]);
        list[out->spec.count++] =
            (data_parallel_item){.source = paths[i], .target = table ? NULL : paths[i + 1]};
        i += !table;
    }
    out->spec.items = list;
    out->spec.text = c->source ? c->source : c->language_count ? c->languages[0] : NULL;
    out->spec.label = c->target ? c->target : c->language_count ? c->languages[1] : NULL;
    out->spec.words = c->label_words;
    return find_prefixes(out, spec, list);
}

void train_items_free(train_items *items)
{
    base_arena_free(items->arena);
    *items = (train_items){0};
}

/* ---- vocabularies ---------------------------------------------------------------------------- */

static const struct {
    const char *name;
    by_vocab_kind kind;
} vocabularies[] = {{"bpe:", BY_VOCAB_BPE},
                    {"unigram:", BY_VOCAB_UNIGRAM},
                    {"wordpiece:", BY_VOCAB_WORDPIECE},
                    {"word:", BY_VOCAB_WORD}};

static by_vocab_kind read_kind(const char *text, const char **size)
{
    for (int i = 0; text && i < BY_COUNT(vocabularies); i++) {
        size_t n = strlen(vocabularies[i].name);
        if (strncmp(text, vocabularies[i].name, n) == 0) {
            *size = text + n;
            return vocabularies[i].kind;
        }
    }
    return BY_VOCAB_AUTO;
}

bool train_vocabulary_asked(const char *tokenizer)
{
    const char *size;
    return read_kind(tokenizer, &size) != BY_VOCAB_AUTO;
}

#define TEMPLATE_END                                                                       \
    "],\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[@<s>@],\"tokens\":[\"<s>\"]}," \
    "\"</s>\":{\"id\":\"</s>\",\"ids\":[@</s>@],\"tokens\":[\"</s>\"]}}}"
#define PART(kind, id) "{\"" kind "\":{\"id\":\"" id "\",\"type_id\":0}}"
#define OPEN           PART("SpecialToken", "<s>")
#define CLOSE          PART("SpecialToken", "</s>")
#define TEXT           PART("Sequence", "A")
#define PAIR           PART("Sequence", "B")

/* Text, </s>; or <s>, text, </s>, as in BART and RoBERTa. */
static const char closed[] =
    "{\"type\":\"TemplateProcessing\",\"single\":[" TEXT "," CLOSE "],\"pair\":[" TEXT "," CLOSE "," PAIR
    "," CLOSE "],\"special_tokens\":{\"</s>\":{\"id\":\"</s>\",\"ids\":[@</s>@],\"tokens\":[\"</s>\"]}}}";
static const char enclosed[] =
    "{\"type\":\"TemplateProcessing\",\"single\":[" OPEN "," TEXT "," CLOSE "],\"pair\":[" OPEN "," TEXT
    "," CLOSE "," CLOSE "," PAIR "," CLOSE TEMPLATE_END;

/* XLNet's: the classification token is last, in its own segment. */
#define AT(kind, id, segment) "{\"" kind "\":{\"id\":\"" id "\",\"type_id\":" segment "}}"
#define SEP(segment)          AT("SpecialToken", "<sep>", segment)
#define WHOLE                 AT("SpecialToken", "<cls>", "2")
#define SECOND                AT("Sequence", "B", "1")
static const char followed[] = "{\"type\":\"TemplateProcessing\",\"single\":[" TEXT "," SEP(
    "0") "," WHOLE "],"
         "\"pair\":[" TEXT "," SEP("0") "," SECOND "," SEP(
             "1") "," WHOLE "],"
                  "\"special_tokens\":{\"<sep>\":{\"id\":\"<sep>\",\"ids\":[@<sep>@],\"tokens\":[\"<sep>\"]},"
                  "\"<cls>\":{\"id\":\"<cls>\",\"ids\":[@<cls>@],\"tokens\":[\"<cls>\"]}}}";

/* Words with a visible space prefix, with punctuation split off: "street." becomes two. */
static const char words[] =
    "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\","
    "\"prepend_scheme\":\"always\",\"split\":true},{\"type\":\"Punctuation\",\"behavior\":\"Isolated\"}]}";

static const char spaces[] =
    "{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\",\"prepend_scheme\":\"always\",\"split\":true}";

/* Special tokens and their template. */
typedef struct plan {
    by_vocab_spec spec;
    const char *special[MAX_SPECIAL];
    int count;
    char names[SENTINELS][20];
} plan;

static void add(plan *p, const char *token)
{
    p->special[p->count++] = token;
}

static void split_words(plan *p)
{
    if (p->spec.kind != BY_VOCAB_WORDPIECE)
        p->spec.pre_tokenizer = words;
    if (p->spec.kind == BY_VOCAB_WORD)
        p->spec.decoder = spaces;
}

static void plan_seq2seq(plan *p, const arch_training *family, const train_items *items)
{
    const char *const usual[] = {"<pad>", "</s>", "<unk>", "<s>", "<mask>"};
    for (int i = 0; i < (family->encloses ? 5 : 3); i++)
        add(p, usual[i]);
    for (int i = 0; i < 2 && items && items->tokens[i]; i++)
        add(p, items->tokens[i]);
    for (int i = 0; i < BY_MIN(SENTINELS, family->sentinels); i++) {
        base_format(p->names[i], sizeof p->names[i], "<extra_id_%d>", i);
        add(p, p->names[i]);
    }
    p->spec.post_processor = family->encloses ? enclosed : closed;
    p->spec.unknown = "<unk>";
    if (p->spec.kind == BY_VOCAB_WORD) /* the last word of a line, without the line end */
        p->spec.normalizer = "{\"type\":\"Strip\",\"strip_left\":false,\"strip_right\":true}";
    split_words(p);
}

/* With a model to start from, the defaults of its family do not apply. */
static const arch_training *training_of(const by_run_spec *spec)
{
    static const arch_training other = {0};
    const arch_family *a = spec->init_from ? NULL : arch_find(spec->family);
    return a ? &a->training : &other;
}

static void plan_encoder(plan *p)
{
    const char *const usual[] = {"<s>", "<pad>", "</s>", "<unk>", "<mask>"};
    if (p->spec.kind == BY_VOCAB_BPE || p->spec.kind == BY_VOCAB_WORDPIECE) {
        p->spec.like = p->spec.kind == BY_VOCAB_BPE ? "roberta" : "bert";
        return;
    }
    for (int i = 0; i < BY_COUNT(usual); i++)
        add(p, usual[i]);
    p->spec.post_processor = enclosed;
    split_words(p);
}

static void plan_permuted(plan *p)
{
    const char *const usual[] = {"<unk>", "<cls>", "<sep>", "<pad>", "<mask>"};
    for (int i = 0; i < BY_COUNT(usual); i++)
        add(p, usual[i]);
    p->spec.unknown = "<unk>";
    p->spec.post_processor = followed;
    split_words(p);
}

static void plan_decoder(plan *p, data_objective_kind kind)
{
    p->spec.byte_level = p->spec.kind == BY_VOCAB_BPE;
    if (!p->spec.byte_level)
        add(p, p->spec.unknown = "<unk>");
    add(p, "<|endoftext|>");
    const char *const fim[] = {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"};
    for (int i = 0; i < 3 && kind == DATA_OBJECTIVE_FIM; i++)
        add(p, fim[i]);
}

by_tokenizer *train_vocabulary_learn(const by_run_spec *spec, const char *asked, data_objective_kind kind,
                                     const char *const *files, int count, const train_items *items)
{
    const char *size = NULL;
    char *end = NULL;
    plan *p = base_alloc_zero(1, sizeof *p);
    if (!p)
        return NULL;
    p->spec.kind = read_kind(asked, &size);
    long n = strtol(size, &end, 10);
    by_tokenizer *t = NULL;
    if (end == size || *end || n < 32 || n > 1 << 22) {
        base_fail(BY_ERR_ARGUMENT, "the tokenizer \"%s\" needs a size from 32 to %d, as in bpe:8000", asked,
                  1 << 22);
    } else {
        p->spec.size = (int)n;
        const by_task task = data_objective_task(kind);
        if (task == BY_TASK_SEQ2SEQ)
            plan_seq2seq(p, training_of(spec), items);
        else if (kind == DATA_OBJECTIVE_PLM)
            plan_permuted(p);
        else if (task == BY_TASK_LM && kind != DATA_OBJECTIVE_CLM)
            plan_decoder(p, kind);
        else
            plan_encoder(p);
        p->spec.special = p->count ? p->special : NULL;
        p->spec.special_count = p->count;
        t = by_tokenizer_train(&p->spec, files, count, NULL);
    }
    base_free(p);
    return t;
}

by_tokenizer *train_tokenizer_named(const char *asked, const char *const *files, int count)
{
    if (train_vocabulary_asked(asked))
        return train_vocabulary_learn(&(by_run_spec){0}, asked, DATA_OBJECTIVE_LM, files, count, NULL);
    if (strcmp(asked, "char") == 0)
        return tok_new_chars_of(files, count);
    if (strcmp(asked, "byte") == 0)
        return tok_new_bytes();
    if (base_dir_exists(asked) || base_file_exists(asked))
        return by_tokenizer_load(asked);
    base_fail(BY_ERR_IO,
              "tokenizer %s: no such directory; or use char, byte, bpe:N, unigram:N, wordpiece:N or word:N",
              asked);
    return NULL;
}
