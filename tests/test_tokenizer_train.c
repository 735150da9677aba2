/* test_tokenizer_train.c - trained vocabularies against a plain trainer that counts everything anew for each
 * merge, against what the reference library learned from the same files, and at their limits. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "text/train/train.h"

static char folder[256], shared[4096];

static int set_up(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR"), *dir = getenv("BANYAN_SHARED");
    snprintf(folder, sizeof(folder), "%s/banyan-train-XXXXXX", tmp ? tmp : "/tmp");
    snprintf(shared, sizeof(shared), "%s/data", dir ? dir : BY_SOURCE_DIR "/../shared");
    return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    return base_dir_remove(folder) == BY_OK ? 0 : -1;
}

/* A path below shared/data; NULL, with a note, when it is not there. */
static char *fixture(const char *name)
{
    char *path = base_sprintf("%s/%s", shared, name);
    assert_non_null(path);
    if (base_file_exists(path))
        return path;
    print_message("%s is not there: left out\n", path);
    base_free(path);
    return NULL;
}

/* A file with this text; the path is good until the next call but three. */
static const char *file_of(const char *text, size_t size)
{
    static char paths[4][512];
    static int next;
    char *path = paths[next = (next + 1) % 4];
    snprintf(path, sizeof(paths[0]), "%s/text%d", folder, next);
    assert_int_equal(base_file_write(path, text, size), BY_OK);
    return path;
}

static by_tokenizer *train(const by_vocab_spec *spec, const char *file)
{
    by_tokenizer *t = by_tokenizer_train(spec, &file, 1, NULL);
    if (!t)
        fail_msg("%s", by_error_message());
    return t;
}

static by_tokenizer *train_text(const by_vocab_spec *spec, const char *text)
{
    return train(spec, file_of(text, strlen(text)));
}

static void assert_refused(const by_vocab_spec *spec, const char *file, by_status status, const char *message)
{
    assert_null(by_tokenizer_train(spec, &file, file ? 1 : 0, NULL));
    assert_int_equal(base_error_status(), status);
    if (!strstr(by_error_message(), message))
        fail_msg("\"%s\" does not say \"%s\"", by_error_message(), message);
}

/* ---- a plain trainer ------------------------------------------------------------------------- */

enum { MOST = 700 };

typedef struct plain_word {
    char *text;
    int64_t count;
    int *symbols, n;
} plain_word;

typedef struct plain {
    plain_word *words;
    size_t count;
    char *tokens[MOST];
    int token_count, lengths[MOST];
    int merges[MOST][2], merge_count;
    bool repeated; /* the last merge made a token that was there: the end of what is defined by counts alone */
} plain;

static int compare_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void plain_read(plain *p, char *text)
{
    size_t n = 0;
    char **list = calloc(strlen(text) / 2 + 1, sizeof(*list));
    for (char *w = strtok(text, " \t\n\r\v\f"); w; w = strtok(NULL, " \t\n\r\v\f"))
        list[n++] = w;
    qsort(list, n, sizeof(*list), compare_text);
    p->words = calloc(n + 1, sizeof(*p->words));
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || strcmp(list[i], list[i - 1]) != 0)
            p->words[p->count++].text = list[i];
        p->words[p->count - 1].count++;
    }
    free(list);
}

static int plain_token(plain *p, const char *text)
{
    for (int i = 0; i < p->token_count; i++)
        if (strcmp(p->tokens[i], text) == 0)
            return i;
    assert_true(p->token_count < MOST);
    p->tokens[p->token_count] = strdup(text);
    p->lengths[p->token_count] = 1;
    return p->token_count++;
}

static char *plain_symbol(const plain_word *w, size_t i, const char *prefix, const char *suffix)
{
    static char text[64];
    snprintf(text, sizeof(text), "%s%c%s", i && prefix ? prefix : "", w->text[i],
             !w->text[i + 1] && suffix ? suffix : "");
    return text;
}

/* ASCII only: characters in order, then their forms with affixes in order. */
static void plain_spell(plain *p, const by_vocab_spec *spec)
{
    char *forms[4096];
    size_t n = 0;
    for (int c = 1; c < 128; c++)
        for (size_t w = 0; w < p->count; w++)
            if (strchr(p->words[w].text, c)) {
                plain_token(p, (char[2]){(char)c, 0});
                break;
            }
    for (size_t w = 0; w < p->count; w++)
        for (size_t i = 0; p->words[w].text[i] && (spec->prefix || spec->suffix); i++) {
            char *text = plain_symbol(&p->words[w], i, spec->prefix, spec->suffix);
            size_t k = 0;
            while (k < n && strcmp(forms[k], text) != 0)
                k++;
            if (k == n)
                forms[n++] = strdup(text);
        }
    qsort(forms, n, sizeof(*forms), compare_text);
    for (size_t i = 0; i < n; i++) {
        plain_token(p, forms[i]);
        free(forms[i]);
    }
    for (size_t w = 0; w < p->count; w++) {
        plain_word *word = &p->words[w];
        word->symbols = calloc(strlen(word->text) + 1, sizeof(int));
        for (size_t i = 0; word->text[i]; i++)
            word->symbols[word->n++] = plain_token(p, plain_symbol(word, i, spec->prefix, spec->suffix));
    }
}

/* Count all pairs, merge the most frequent, the lowest ids first. False: there is none left. */
static bool plain_merge(plain *p, const by_vocab_spec *spec, int64_t *table)
{
    for (int left = 0; left < p->token_count; left++)
        memset(table + left * MOST, 0, (size_t)p->token_count * sizeof(*table));
    for (size_t w = 0; w < p->count; w++)
        for (int i = 0; i + 1 < p->words[w].n; i++)
            table[p->words[w].symbols[i] * MOST + p->words[w].symbols[i + 1]] += p->words[w].count;
    int best = -1;
    for (int left = 0; left < p->token_count; left++)
        for (int right = 0; right < p->token_count; right++) {
            int at = left * MOST + right, length = p->lengths[left] + p->lengths[right];
            if (spec->max_token_length && length > 2 && length >= spec->max_token_length)
                continue;
            if (table[at] && (best < 0 || table[at] > table[best]))
                best = at;
        }
    if (best < 0 || table[best] < spec->min_frequency)
        return false;
    int left = best / MOST, right = best % MOST, before = p->token_count;
    size_t skip = spec->prefix && strncmp(p->tokens[right], spec->prefix, strlen(spec->prefix)) == 0
                      ? strlen(spec->prefix)
                      : 0;
    char *text = base_sprintf("%s%s", p->tokens[left], p->tokens[right] + skip);
    int merged = plain_token(p, text);
    base_free(text);
    p->repeated = p->token_count == before;
    p->lengths[merged] = p->lengths[left] + p->lengths[right];
    p->merges[p->merge_count][0] = left;
    p->merges[p->merge_count++][1] = right;
    for (size_t w = 0; w < p->count; w++) {
        plain_word *word = &p->words[w];
        int n = 0;
        for (int i = 0; i < word->n; i++) {
            bool hit = i + 1 < word->n && word->symbols[i] == left && word->symbols[i + 1] == right;
            word->symbols[n++] = hit ? merged : word->symbols[i];
            i += hit;
        }
        word->n = n;
    }
    return true;
}

static void plain_free(plain *p)
{
    for (size_t w = 0; w < p->count; w++)
        free(p->words[w].symbols);
    for (int i = 0; i < p->token_count; i++)
        free(p->tokens[i]);
    free(p->words);
    free(p);
}

/* Our trainer on the same text, cut at spaces. Merges must be the same up to the first token that is made a
 * second time, and that many at least. */
static void compare_with_plain(by_vocab_spec spec, const char *text, int least)
{
    const char *none[] = {NULL};
    spec.kind = BY_VOCAB_BPE;
    spec.special = none;
    spec.normalizer = "null";
    spec.pre_tokenizer = "{\"type\":\"WhitespaceSplit\"}";
    base_arena *keep = base_arena_new();
    by_vocab_spec full;
    tok_preset preset;
    tok_cutter cutter = {0};
    tok_words words;
    tok_trained got = {0};
    const char *file = file_of(text, strlen(text));
    assert_int_equal(tok_preset_resolve(&spec, keep, &preset, &full), BY_OK);
    full.special_count = 0;
    cJSON *split = cJSON_Parse(full.pre_tokenizer);
    assert_int_equal(tok_splitters_read(split, &cutter.splitters), BY_OK);
    assert_int_equal(tok_words_count(&cutter, &file, 1, &full, &words), BY_OK);
    if (tok_bpe_train(&full, &words, &got) != BY_OK)
        fail_msg("%s", by_error_message());

    plain *p = calloc(1, sizeof(*p));
    int64_t *table = calloc((size_t)MOST * MOST, sizeof(*table));
    char *copy = strdup(text);
    plain_read(p, copy);
    assert_int_equal(p->count, words.count);
    plain_spell(p, &full);
    while (p->token_count < full.size && !p->repeated && plain_merge(p, &full, table))
        ;
    assert_true(p->merge_count >= least);
    if (!p->repeated)
        assert_int_equal(got.merge_count, p->merge_count);
    assert_true(got.merge_count >= p->merge_count - 1);
    for (int i = 0; i < p->token_count; i++)
        assert_string_equal(got.vocab.tokens[i].text, p->tokens[i]);
    for (int i = 0; i < p->merge_count - p->repeated; i++) {
        assert_int_equal(got.merges[i].left, p->merges[i][0]);
        assert_int_equal(got.merges[i].right, p->merges[i][1]);
    }
    free(copy);
    free(table);
    plain_free(p);
    tok_trained_free(&got);
    tok_words_free(&words);
    tok_stages_free(&cutter.splitters);
    cJSON_Delete(split);
    base_arena_free(keep);
}

static void test_real_text(void **state)
{
    (void)state;
    char *path = fixture("corpora/tinyshakespeare.txt");
    if (!path)
        return;
    size_t size;
    char *text = base_file_read(path, (size_t)1 << 28, &size);
    text[80000] = 0;
    compare_with_plain((by_vocab_spec){.size = 400}, text, 300);
    compare_with_plain((by_vocab_spec){.size = 600, .suffix = "</w>"}, text, 250);
    compare_with_plain((by_vocab_spec){.size = 600, .prefix = "##"}, text, 250);
    compare_with_plain((by_vocab_spec){.size = 600, .prefix = "##", .suffix = "$", .max_token_length = 5},
                       text, 100);
    base_free(text);
    base_free(path);
}

/* Few letters: many ties, long words, pairs that overlap themselves. */
static void test_random_text(void **state)
{
    (void)state;
    base_rng rng = base_rng_make(11, 0);
    for (int round = 0; round < 120; round++) {
        char text[3000];
        int letters = 1 + (int)base_rng_below(&rng, 6), spaces = 2 + (int)base_rng_below(&rng, 12);
        size_t n = base_rng_below(&rng, sizeof(text) - 1);
        for (size_t i = 0; i < n; i++)
            text[i] = base_rng_below(&rng, (uint64_t)spaces)
                          ? (char)('a' + base_rng_below(&rng, (uint64_t)letters))
                          : ' ';
        text[n] = 0;
        by_vocab_spec spec = {.size = 100 + (int)base_rng_below(&rng, 200),
                              .min_frequency = 1 + (int64_t)base_rng_below(&rng, 4),
                              .threads = 1 + (int)base_rng_below(&rng, 3),
                              .max_token_length = round % 5 ? 0 : 3 + round % 7,
                              .prefix = round % 3 ? NULL : "##",
                              .suffix = round % 4 ? NULL : "</w>"};
        compare_with_plain(spec, text, 0);
    }
}

/* ---- what the reference library learned ------------------------------------------------------ */

/* All tokens and merges in their order, as one number. */
static uint64_t fingerprint(const by_tokenizer *t)
{
    base_buf json = {0}, all = {0};
    assert_int_equal(tok_format(t, &json), BY_OK);
    cJSON *root = cJSON_Parse(json.data);
    const cJSON *model = cJSON_GetObjectItemCaseSensitive(root, "model");
    for (const cJSON *v = cJSON_GetObjectItemCaseSensitive(model, "vocab")->child; v; v = v->next)
        base_buf_printf(&all, "%s\n", v->string);
    for (const cJSON *m = cJSON_GetObjectItemCaseSensitive(model, "merges")->child; m; m = m->next)
        base_buf_printf(&all, "%s %s\n", m->child->valuestring, m->child->next->valuestring);
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    for (size_t i = 0; i < all.size; i++)
        hash = (hash ^ (uint8_t)all.data[i]) * 0x100000001b3u;
    cJSON_Delete(root);
    base_buf_free(&json);
    base_buf_free(&all);
    return hash;
}

/* The numbers are those of tokenizers 0.23.3 on the same files with the same settings. */
static void test_reference(void **state)
{
    (void)state;
    static const struct {
        by_vocab_spec spec;
        const char *files[2];
        uint64_t hash;
    } cases[] = {
        {{.like = "gpt2", .size = 8000, .threads = 1}, {"corpora/tinyshakespeare.txt"}, 0xe696eda9db9db2de},
        {{.like = "gpt2", .size = 30000}, {"corpora/wikitext2-valid.txt"}, 0x3f86b6e6dc24eb84},
        {{.like = "gpt2", .size = 16000, .min_frequency = 5, .threads = 3},
         {"tasks/multi30k/train.de", "tasks/multi30k/train.en"},
         0xc523a3df797d7944},
        {{.like = "gpt2", .size = 4000, .max_token_length = 6},
         {"corpora/wikitext2-valid.txt"},
         0x52714c6415e6026a},
        {{.like = "gpt2", .size = 3000, .min_frequency = 1},
         {"corpora/tinyshakespeare.txt"},
         0xcddfb67b45a29818},
        {{.size = 5000}, {"corpora/wikitext2-valid.txt", "tasks/multi30k/val.de"}, 0xa90d431d3de6fadb},
        {{.size = 3000, .initial_alphabet = "ΩЖ"}, {"tasks/multi30k/train.de"}, 0x3ce233622f7ca080},
        {{.size = 2000, .limit_alphabet = 60}, {"tasks/multi30k/train.de"}, 0xc1de08e223ef6826},
        {{.size = 2000, .limit_alphabet = 65}, {"tasks/multi30k/train.de"}, 0x1e44b4199a0a8f7},
    };
    for (int i = 0; i < BY_COUNT(cases); i++) {
        char *files[2] = {fixture(cases[i].files[0]), cases[i].files[1] ? fixture(cases[i].files[1]) : NULL};
        if (files[0] && (files[1] || !cases[i].files[1])) {
            by_tokenizer *t =
                by_tokenizer_train(&cases[i].spec, (const char *const *)files, files[1] ? 2 : 1, NULL);
            if (!t)
                fail_msg("case %d: %s", i, by_error_message());
            if (fingerprint(t) != cases[i].hash)
                fail_msg("case %d: other tokens or merges", i);
            by_tokenizer_free(t);
        }
        base_free(files[0]);
        base_free(files[1]);
    }
}

/* Held-out text takes no more Unigram tokens than with the reference trainer, which needs this many. */
static void test_unigram_quality(void **state)
{
    (void)state;
    static const struct {
        int size;
        size_t tokens;
    } reference[] = {{4000, 378768}, {8000, 356194}};
    char *path = fixture("corpora/wikitext2-test.txt"), *held = fixture("corpora/wikitext2-valid.txt");
    for (int i = 0; i < BY_COUNT(reference) && path && held; i++) {
        by_tokenizer *t = train(&(by_vocab_spec){.kind = BY_VOCAB_UNIGRAM, .size = reference[i].size}, path);
        char *text = base_file_read(held, (size_t)1 << 28, NULL), *rest = text;
        by_ids ids = {0};
        assert_int_equal(by_tokenizer_vocab_size(t), reference[i].size);
        for (char *line; (line = strsep(&rest, "\n"));)
            if (line[strspn(line, " ")])
                assert_int_equal(tok_encode(t, line, strlen(line), &ids), BY_OK);
        assert_true(ids.count <= reference[i].tokens);
        tok_ids_free(&ids);
        base_free(text);
        by_tokenizer_free(t);
    }
    base_free(path);
    base_free(held);
}

/* ---- words ----------------------------------------------------------------------------------- */

static void count_raw(const char *text, size_t size, int threads, tok_words *out)
{
    const char *file = file_of(text, size);
    by_vocab_spec spec = {.threads = threads};
    assert_int_equal(tok_words_count(&(tok_cutter){.raw = true}, &file, 1, &spec, out), BY_OK);
    assert_int_equal(out->bytes, size);
}

static uint64_t count_of(const tok_words *w, const char *text, size_t size)
{
    for (size_t i = 0; i < w->count; i++)
        if (w->items[i].size == size && memcmp(w->items[i].text, text, size) == 0)
            return w->items[i].count;
    return 0;
}

static void test_words(void **state)
{
    (void)state;
    static const char odd[] = "a\0b a\0b\n\xff\xfe x\xef\xbf\xbd\n\n x";
    tok_words w;
    count_raw(odd, sizeof(odd) - 1, 2, &w);
    assert_int_equal(w.lines, 4);
    assert_int_equal(count_of(&w, "a", 1), 1);
    assert_int_equal(count_of(&w, " a", 2), 1);
    assert_int_equal(count_of(&w, "\0", 1), 2);
    assert_int_equal(count_of(&w, "\xff\xfe", 2), 1);
    assert_int_equal(count_of(&w, " x", 2), 2);
    assert_int_equal(count_of(&w, "\xef\xbf\xbd", 3), 1);
    assert_int_equal(count_of(&w, "\n", 1), 3);
    tok_words_free(&w);
    count_raw("", 0, 3, &w);
    assert_int_equal(w.count, 0);
    tok_words_free(&w);
}

/* More different words than a thread's own table holds, lines longer than a chunk, a word that is very long.
 */
static void test_many_words(void **state)
{
    (void)state;
    base_buf text = {0};
    enum { DIFFERENT = 60000 };
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < DIFFERENT; i++)
            base_buf_printf(&text, "%cw%c%c%c%c", i % 20000 == 5 ? '\n' : ' ', 'a' + i % 26,
                            'a' + i / 26 % 26, 'a' + i / 676 % 26, 'a' + i / 17576);
    base_buf_puts(&text, "\n");
    for (int i = 0; i < 100000; i++)
        base_buf_puts(&text, "long");
    for (int threads = 1; threads <= 4; threads += 3) {
        tok_words w;
        count_raw(text.data, text.size, threads, &w);
        uint64_t all = 0;
        size_t bytes = 0;
        for (size_t i = 0; i < w.count; i++) {
            all += w.items[i].count;
            bytes += w.items[i].count * w.items[i].size;
        }
        assert_int_equal(all, w.running);
        assert_int_equal(bytes, text.size);
        assert_int_equal(count_of(&w, " waaaa", 6), 3);
        assert_int_equal(count_of(&w, " wzzzb", 6), 3);
        assert_int_equal(count_of(&w, "wfaaa", 5), 3);
        assert_int_equal(w.count, DIFFERENT + 2); /* the line end and the long one */
        tok_words_free(&w);
    }
    base_buf_free(&text);
}

/* A line of 40 MB without end is cut, and nothing of it lost. */
static void test_endless_line(void **state)
{
    (void)state;
    size_t size = (size_t)40 << 20;
    char *text = malloc(size);
    for (size_t i = 0; i < size; i++)
        text[i] = "the cat "[i % 8];
    tok_words w;
    count_raw(text, size, 2, &w);
    assert_int_equal(count_of(&w, " cat", 4), size / 8);
    assert_int_equal(count_of(&w, " the", 4) + count_of(&w, "the", 3), size / 8);
    tok_words_free(&w);
    free(text);
}

/* ---- seeds of Unigram ------------------------------------------------------------------------ */

typedef struct place {
    const tok_word *word;
    size_t at;
} place;

/* By the definition: does text[0..n) occur twice with different characters (or ends) behind it, or is it a
 * word that occurs twice? Also how often it occurs. */
static bool is_seed(const tok_words *words, const char *text, size_t n, uint64_t *count)
{
    place first = {0};
    bool branches = false;
    *count = 0;
    for (size_t i = 0; i < words->count; i++)
        for (size_t at = 0; at + n <= words->items[i].size; at++) {
            const tok_word *w = &words->items[i];
            if (memcmp(w->text + at, text, n) != 0)
                continue;
            *count += w->count;
            branches = branches || (n == w->size && w->count > 1);
            if (first.word)
                branches = branches || at + n == w->size || first.at + n == first.word->size ||
                           w->text[at + n] != first.word->text[first.at + n];
            else
                first = (place){w, at};
        }
    return branches;
}

static void test_seeds(void **state)
{
    (void)state;
    base_rng rng = base_rng_make(5, 0);
    for (int round = 0; round < 60; round++) {
        tok_word items[40];
        char texts[40][8];
        tok_words words = {.items = items};
        for (int i = 0; i < 40; i++) {
            size_t n = 1 + base_rng_below(&rng, 7);
            for (size_t k = 0; k < n; k++)
                texts[i][k] = (char)('a' + base_rng_below(&rng, 3));
            bool known = false;
            for (size_t k = 0; k < words.count; k++)
                known = known || (items[k].size == n && memcmp(items[k].text, texts[i], n) == 0);
            if (!known)
                items[words.count++] = (tok_word){texts[i], 1 + base_rng_below(&rng, 4), (uint32_t)n, 0};
        }
        base_arena *keep = base_arena_new();
        tok_candidate *got = NULL;
        size_t count = 0, expected = 0;
        by_vocab_spec spec = {.max_token_length = 5, .seed_size = 100000};
        assert_int_equal(
            tok_unigram_seeds(&spec, &words, (const uint32_t[]){'a', 'b', 'c'}, 3, keep, &got, &count),
            BY_OK);
        double sum = 0;
        for (size_t i = 0; i < count; i++) {
            uint64_t n;
            sum += exp(got[i].score);
            bool seed = is_seed(&words, got[i].text, got[i].size, &n);
            assert_true(got[i].size == 1 || (seed && got[i].size <= 5));
            for (size_t k = 0; k < i; k++)
                assert_false(got[k].size == got[i].size &&
                             memcmp(got[k].text, got[i].text, got[i].size) == 0);
        }
        assert_true(fabs(sum - 1) < 1e-9);
        for (int code = 0; code < 4 * 4 * 4 * 4 * 4; code++) { /* all strings of 2 to 5 letters */
            char text[6];
            size_t n = 0;
            for (int c = code; c % 4; c /= 4)
                text[n++] = (char)('a' + c % 4 - 1);
            bool whole = (code >> (2 * n)) == 0;
            uint64_t times;
            expected += whole && n >= 2 && is_seed(&words, text, n, &times);
        }
        size_t longer = 0;
        for (size_t i = 0; i < count; i++)
            longer += got[i].size > 1;
        assert_int_equal(longer, expected);
        base_free(got);
        base_arena_free(keep);
    }
}

/* ---- limits ---------------------------------------------------------------------------------- */

static void test_small_cases(void **state)
{
    (void)state;
    /* ab and cd are equally frequent: the lower ids come first; xy is too rare */
    by_tokenizer *t =
        train_text(&(by_vocab_spec){.kind = BY_VOCAB_BPE, .size = 100, .suffix = "_"}, "cd ab cd ab xy\n");
    assert_int_equal(by_tokenizer_find(t, "ab_"), by_tokenizer_find(t, "cd_") - 1);
    assert_int_equal(by_tokenizer_find(t, "xy_"), -1);
    by_tokenizer_free(t);
    /* one word in full */
    t = train_text(&(by_vocab_spec){.like = "bert", .size = 60}, "Banana banana, BANANA!\n");
    assert_int_equal(by_tokenizer_find(t, "[PAD]"), 0);
    assert_int_equal(by_tokenizer_find(t, "[MASK]"), 4);
    assert_true(by_tokenizer_find(t, "banana") >= 0);
    assert_true(by_tokenizer_find(t, "##a") >= 0);
    by_tokenizer_free(t);
    /* a special token of one character is that character */
    const char *special[] = {"a", "a", "b"};
    t = train_text(&(by_vocab_spec){.size = 50, .special = special, .special_count = 3}, "ab ab ab ba\n");
    assert_int_equal(by_tokenizer_find(t, "<unk>"), 0);
    assert_int_equal(by_tokenizer_find(t, "a"), 1);
    assert_int_equal(by_tokenizer_find(t, "b"), 2);
    by_tokenizer_free(t);
    /* too many characters, with and without a limit */
    const char *file = file_of("the quick brown fox\n", 20);
    assert_refused(&(by_vocab_spec){.size = 10}, file, BY_ERR_ARGUMENT, "too small");
    assert_refused(&(by_vocab_spec){.kind = BY_VOCAB_UNIGRAM, .size = 10}, file, BY_ERR_ARGUMENT,
                   "too small");
    assert_refused(&(by_vocab_spec){.like = "gpt2", .size = 256}, file, BY_ERR_ARGUMENT, "257");
    for (int kind = BY_VOCAB_BPE; kind <= BY_VOCAB_UNIGRAM; kind += 2) {
        t = train(&(by_vocab_spec){.kind = (by_vocab_kind)kind, .size = 10, .limit_alphabet = 4}, file);
        assert_true(by_tokenizer_vocab_size(t) <= 10);
        assert_true(by_tokenizer_find(t, "o") > 0);
        assert_int_equal(by_tokenizer_find(t, "q"), -1);
        by_tokenizer_free(t);
    }
}

/* By count, equals by their bytes; the end of a line is a word, a word with a NUL is none. */
static void test_word_level(void **state)
{
    (void)state;
    static const char text[] = "b a c a\nb b, a\0a d\n";
    const char *file = file_of(text, sizeof text - 1);
    const char *const order[] = {"<unk>", "\n", "a", "b", "b,", "c", "d"};
    by_tokenizer *t = train(&(by_vocab_spec){.kind = BY_VOCAB_WORD, .size = 100}, file);
    assert_int_equal(by_tokenizer_vocab_size(t), BY_COUNT(order));
    for (int i = 0; i < BY_COUNT(order); i++)
        assert_int_equal(by_tokenizer_find(t, order[i]), i);
    by_tokenizer_free(t);
    t = train(&(by_vocab_spec){.kind = BY_VOCAB_WORD, .size = 100, .min_frequency = 2}, file);
    assert_int_equal(by_tokenizer_vocab_size(t), 4);
    by_tokenizer_free(t);
    t = train(&(by_vocab_spec){.kind = BY_VOCAB_WORD, .size = 2}, file);
    assert_int_equal(by_tokenizer_vocab_size(t), 2);
    by_tokenizer_free(t);
    assert_refused(&(by_vocab_spec){.kind = BY_VOCAB_WORD, .size = 1}, file, BY_ERR_ARGUMENT, "too small");
    assert_refused(&(by_vocab_spec){.kind = BY_VOCAB_WORD, .suffix = "_"}, file, BY_ERR_ARGUMENT, "suffix");
}

static void test_no_text(void **state)
{
    (void)state;
    static const char *const likes[] = {"gpt2", "roberta", "gpt", "bert", "bert-cased", "t5"};
    for (int i = 0; i < BY_COUNT(likes); i++) {
        by_tokenizer *t = train_text(&(by_vocab_spec){.like = likes[i], .size = 500}, "");
        int special = by_tokenizer_vocab_size(t);
        assert_true(special > 0 && special < 300);
        by_ids ids = {0};
        assert_int_equal(tok_encode(t, "a b", 3, &ids), BY_OK);
        assert_true(ids.count > 0);
        tok_ids_free(&ids);
        by_tokenizer_free(t);
    }
}

static bool stop_soon(void *user, const by_vocab_progress *p)
{
    (void)p;
    return --*(int *)user > 0;
}

static void test_refusals(void **state)
{
    (void)state;
    const char *file = file_of("some text\n", 10);
    assert_refused(&(by_vocab_spec){0}, NULL, BY_ERR_ARGUMENT, "no files");
    assert_refused(&(by_vocab_spec){0}, "/no/such/file", BY_ERR_IO, "/no/such/file");
    assert_refused(&(by_vocab_spec){0}, folder, BY_ERR_IO, "directory");
    assert_refused(&(by_vocab_spec){.like = "nothing"}, file, BY_ERR_ARGUMENT, "nothing");
    assert_refused(&(by_vocab_spec){.like = "t5", .kind = BY_VOCAB_BPE}, file, BY_ERR_ARGUMENT, "Unigram");
    assert_refused(&(by_vocab_spec){.size = -1}, file, BY_ERR_ARGUMENT, "-1");
    assert_refused(&(by_vocab_spec){.byte_level = true, .suffix = "</w>"}, file, BY_ERR_ARGUMENT, "suffix");
    assert_refused(&(by_vocab_spec){.suffix = "\xff"}, file, BY_ERR_ARGUMENT, "UTF-8");
    assert_refused(&(by_vocab_spec){.prefix = "\""}, file, BY_ERR_ARGUMENT, "quote");
    assert_refused(&(by_vocab_spec){.initial_alphabet = "\xff"}, file, BY_ERR_ARGUMENT, "alphabet");
    assert_refused(&(by_vocab_spec){.pre_tokenizer = "{"}, file, BY_ERR_ARGUMENT, "JSON");
    assert_refused(&(by_vocab_spec){.pre_tokenizer = "{\"type\":\"Odd\"}"}, file, BY_ERR_UNSUPPORTED, "Odd");
    const char *special[] = {"[CLS]"};
    assert_refused(&(by_vocab_spec){.like = "bert", .special = special, .special_count = 1}, file,
                   BY_ERR_ARGUMENT, "[SEP]");
    for (int kind = BY_VOCAB_BPE; kind <= BY_VOCAB_UNIGRAM; kind++)
        for (int calls = 1; calls <= 2; calls++) {
            int left = calls;
            by_vocab_spec spec = {.kind = (by_vocab_kind)kind, .progress = stop_soon, .user = &left};
            if (calls == 1 || kind == BY_VOCAB_UNIGRAM)
                assert_refused(&spec, file, BY_ERR_CANCELLED, "stopped");
        }
}

/* ---- the files ------------------------------------------------------------------------------- */

static const char odd_text[] =
    "Grüße, \"wörld\"! \\ 中文 字 \xf0\x9f\x98\x80\t1234\r\nnaïve café \x7f \x01 x\xef\xbf\xbdy\n";

/* Written, read, written: the same ids and the same text. */
static void check_file(const by_vocab_spec *spec, const char *file, bool exact)
{
    by_tokenizer *t = train(spec, file);
    char *dir = base_path_join(folder, "made"), *json = base_path_join(folder, "made/tokenizer.json");
    assert_int_equal(by_tokenizer_save(t, dir), BY_OK);
    by_tokenizer *again = by_tokenizer_load(dir);
    if (!again)
        fail_msg("%s", by_error_message());
    assert_int_equal(by_tokenizer_vocab_size(t), by_tokenizer_vocab_size(again));
    assert_int_equal(tok_hash(t), tok_hash(again));
    by_ids a = {0}, b = {0};
    base_buf back = {0};
    assert_int_equal(tok_encode(t, odd_text, sizeof(odd_text) - 1, &a), BY_OK);
    assert_int_equal(tok_encode(again, odd_text, sizeof(odd_text) - 1, &b), BY_OK);
    assert_true(a.count > 0 && a.count == b.count);
    assert_memory_equal(a.data, b.data, a.count * sizeof(*a.data));
    assert_int_equal(tok_decode(again, b.data, b.count, &back), BY_OK);
    if (exact) {
        assert_int_equal(back.size, sizeof(odd_text) - 1);
        assert_memory_equal(back.data, odd_text, back.size);
    }
    assert_int_equal(by_tokenizer_write(again, json), BY_OK);
    base_buf_free(&back);
    tok_ids_free(&a);
    tok_ids_free(&b);
    by_tokenizer_free(again);
    by_tokenizer_free(t);
    assert_int_equal(base_dir_remove(dir), BY_OK);
    base_free(dir);
    base_free(json);
}

static void test_files(void **state)
{
    (void)state;
    base_buf text = {0};
    for (int i = 0; i < 5; i++)
        base_buf_puts(&text, odd_text);
    base_buf_put(&text, "\0 \xff\xc0\x80 \0\n", 8);
    const char *file = file_of(text.data, text.size);
    check_file(&(by_vocab_spec){.like = "gpt2", .size = 300}, file, true);
    check_file(&(by_vocab_spec){.like = "roberta", .size = 300}, file, true);
    check_file(&(by_vocab_spec){.byte_level = true, .size = 300, .lowercase = true}, file, false);
    check_file(&(by_vocab_spec){.like = "gpt", .size = 150}, file, false);
    check_file(&(by_vocab_spec){.like = "bert", .size = 150}, file, false);
    check_file(&(by_vocab_spec){.like = "bert-cased", .size = 150}, file, false);
    check_file(&(by_vocab_spec){.like = "t5", .size = 150}, file, false);
    check_file(&(by_vocab_spec){.size = 150}, file, false);
    check_file(&(by_vocab_spec){.size = 150, .prefix = "@@"}, file, false);
    check_file(&(by_vocab_spec){.kind = BY_VOCAB_WORDPIECE, .size = 150, .prefix = "+"}, file, false);
    check_file(&(by_vocab_spec){.kind = BY_VOCAB_UNIGRAM, .size = 150, .limit_alphabet = 20}, file, false);
    base_buf_free(&text);
}

/* A file that cannot be replaced stays as it is, and nothing else is left behind. */
static void test_unwritable(void **state)
{
    (void)state;
    by_tokenizer *t = train_text(&(by_vocab_spec){.size = 50}, "ab ab\n");
    assert_int_equal(by_tokenizer_write(t, "/no/such/folder/t.json"), BY_ERR_IO);
    assert_non_null(strstr(by_error_message(), "/no/such/folder/t.json"));
    assert_int_equal(by_tokenizer_write(t, "/dev/full/t.json"), BY_ERR_IO);
    assert_int_equal(by_tokenizer_save(t, "/dev/null/dir"), BY_ERR_IO);
    by_tokenizer_free(t);
}

/* The same bytes for any number of threads. */
static void test_threads(void **state)
{
    (void)state;
    static const char *const likes[] = {"gpt2", "gpt", "bert", "t5"};
    char *path = fixture("tasks/multi30k/val.de");
    for (int i = 0; i < BY_COUNT(likes) && path; i++) {
        uint64_t hash = 0;
        for (int threads = 1; threads <= 7; threads += 3) {
            by_tokenizer *t =
                train(&(by_vocab_spec){.like = likes[i], .size = 1500, .threads = threads}, path);
            assert_true(threads == 1 || tok_hash(t) == hash);
            hash = tok_hash(t);
            by_tokenizer_free(t);
        }
    }
    base_free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_real_text),    cmocka_unit_test(test_random_text),
        cmocka_unit_test(test_reference),    cmocka_unit_test(test_unigram_quality),
        cmocka_unit_test(test_words),        cmocka_unit_test(test_many_words),
        cmocka_unit_test(test_endless_line), cmocka_unit_test(test_seeds),
        cmocka_unit_test(test_small_cases),  cmocka_unit_test(test_word_level),
        cmocka_unit_test(test_no_text),      cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_files),        cmocka_unit_test(test_unwritable),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
