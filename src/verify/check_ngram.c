/* check_ngram.c - cases of kind "ngram": estimates the recorded models from their corpora, and compares every
 * n-gram with the recorded ARPA files, scores and perplexities with those of the reference, and sums of
 * probabilities with 1. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "banyan/ngram.h"
#include "base/file.h"
#include "base/input.h"
#include "base/json.h"
#include "verify/check.h"

/* The reference computes in f32 and prints seven digits. */
#define LOG_BOUND   1e-4
#define SUM_BOUND   1e-6
#define FOUR_DIGITS 5e-5

typedef struct ngram_case {
    verify_case *c;
    const char *name; /* of the model */
    const cJSON *record;
    char *folder, *binary; /* temporary */
    by_ngram *model;
} ngram_case;

static void say(const ngram_case *n, const char *what, double error, double bound, const char *note)
{
    char name[128];
    base_format(name, sizeof name, "%s.%s", n->name, what);
    verify_say(n->c, &(by_weight){.name = name}, &(verify_rule){BY_MEASURE_MAX, bound, 0}, error, note);
}

/* ---- estimation -------------------------------------------------------------------------------------- */

/* The options of lmplz: -o N, --prune LIST, --discount_fallback [LIST], --interpolate_unigrams 0. */
static by_status read_options(const char *text, by_ngram_spec *spec, int *prune)
{
    char words[256], *at = words, *save;
    double *list = NULL;
    int *counts = NULL;
    base_format(words, sizeof words, "%s", text);
    for (char *word = strtok_r(at, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        const bool number = word[0] >= '0' && word[0] <= '9';
        if (strcmp(word, "-o") == 0) {
            counts = &spec->order;
        } else if (strcmp(word, "--prune") == 0) {
            counts = prune;
            spec->prune = prune;
        } else if (strcmp(word, "--discount_fallback") == 0) {
            spec->discount_fallback = true;
            list = spec->fallback;
            counts = NULL;
        } else if (strcmp(word, "--interpolate_unigrams") == 0) {
            spec->plain_unigrams = true;
        } else if (number && counts && spec->prune_count < BY_NGRAM_MAX_ORDER) {
            *counts++ = atoi(word);
            spec->prune_count +=
                spec->prune != NULL && counts > prune && counts <= prune + BY_NGRAM_MAX_ORDER;
        } else if (number && list && list < spec->fallback + 3) {
            *list++ = base_strtod(word, NULL);
        } else if (!number) {
            return base_fail(BY_ERR_UNSUPPORTED, "unknown lmplz option %s", word);
        }
    }
    return BY_OK;
}

static by_status estimate(ngram_case *n, const char *corpus, const by_ngram_spec *spec)
{
    char *path = base_path_join(n->c->dir, corpus);
    by_ngram_free(n->model);
    n->model = NULL;
    by_status s = path ? by_ngram_train((const char *const *)&path, 1, NULL, spec, n->binary, NULL, NULL)
                       : BY_ERR_MEMORY;
    base_free(path);
    if (s == BY_OK && !(n->model = by_ngram_open(n->binary)))
        s = base_error_status();
    return s;
}

/* ---- the n-grams -------------------------------------------------------------------------------------- */

/* One line "p<tab>words[<tab>b]" of order k: the difference, or infinity if there is no such n-gram. */
static double line_error(const ngram_case *n, int k, char *text)
{
    char *tab = strchr(text, '\t'), *end = tab ? strchr(tab + 1, '\t') : NULL, *save;
    int32_t words[BY_NGRAM_MAX_ORDER];
    int count = 0;
    double p, b;
    if (!tab)
        return INFINITY;
    const double probability = base_strtod(text, NULL), weight = end ? base_strtod(end + 1, NULL) : 0;
    if (end)
        *end = '\0';
    for (char *w = strtok_r(tab + 1, " ", &save); w && count < BY_NGRAM_MAX_ORDER;
         w = strtok_r(NULL, " ", &save))
        words[count++] = by_ngram_find(n->model, w, strlen(w));
    if (count != k || !by_ngram_entry(n->model, words, count, &p, &b))
        return INFINITY;
    return fmax(fabs(p - probability), fabs(b - weight));
}

static by_status compare_arpa(const ngram_case *n)
{
    char file[128];
    base_format(file, sizeof file, "%s.arpa.gz", n->name);
    char *path = base_path_join(n->c->dir, file);
    base_lines l = {0};
    by_status s = path ? base_lines_open(&l, path) : BY_ERR_MEMORY;
    double worst = 0;
    int64_t seen = 0, all = 0;
    int order = 0;
    bool more = true;
    while (s == BY_OK && (s = base_lines_next(&l, &more)) == BY_OK && more) {
        if (l.text[0] == '\\')
            order = atoi(l.text + 1);
        else if (order && l.size) {
            worst = fmax(worst, line_error(n, order, l.text));
            seen++;
        }
    }
    base_lines_close(&l);
    base_free(path);
    for (int k = 1; k <= by_ngram_order(n->model); k++)
        all += by_ngram_count(n->model, k);
    char note[64];
    base_format(note, sizeof note, "%lld n-grams, %lld in the reference", (long long)all, (long long)seen);
    if (s == BY_OK)
        say(n, "arpa", all == seen ? worst : INFINITY, LOG_BOUND, note);
    return s;
}

/* ---- scores ------------------------------------------------------------------------------------------- */

/* Scores the words of a sentence and </s> against [log10, length, unknown] each. */
static double words_error(const ngram_case *n, const char *text, const cJSON *words)
{
    by_ngram_state state = by_ngram_begin(n->model);
    double worst = 0;
    const cJSON *w = words->child;
    for (const char *at = text + strspn(text, " "); w; w = w->next) {
        const size_t size = strcspn(at, " ");
        const int32_t id = *at ? by_ngram_find(n->model, at, size) : by_ngram_find(n->model, "</s>", 4);
        int matched;
        const double p = by_ngram_score(n->model, &state, id, &state, &matched);
        worst = fmax(worst, fabs(p - cJSON_GetArrayItem(w, 0)->valuedouble));
        if (matched != cJSON_GetArrayItem(w, 1)->valueint ||
            (id == 0) != (cJSON_GetArrayItem(w, 2)->valueint != 0))
            return INFINITY;
        at += size;
        at += strspn(at, " ");
    }
    return worst;
}

static double sentence_error(const ngram_case *n, const char *text, const cJSON *record, by_ngram_sum *sum)
{
    const cJSON *words = cJSON_IsObject(record) ? cJSON_GetObjectItemCaseSensitive(record, "words") : NULL;
    by_ngram_sum own = {0};
    by_ngram_sentence(n->model, text, strlen(text), &own);
    sum->log10 += own.log10;
    sum->log10_known += own.log10_known;
    sum->words += own.words;
    sum->unknown += own.unknown;
    if (words)
        return words_error(n, text, words);
    if (cJSON_IsNull(record)) /* probability zero */
        return isinf(own.log10) ? 0 : INFINITY;
    const cJSON *score = cJSON_IsObject(record) ? cJSON_GetObjectItemCaseSensitive(record, "score") : record;
    return cJSON_IsNumber(score) ? fabs(own.log10 - score->valuedouble) : INFINITY;
}

/* The sentences of test.txt, or those that are listed. */
static by_status compare_sentences(const ngram_case *n, by_ngram_sum *sum)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(n->record, "sentences_from");
    const cJSON *record = cJSON_GetObjectItemCaseSensitive(n->record, "sentences")->child, *text;
    double worst = 0;
    if (cJSON_IsArray(list)) {
        cJSON_ArrayForEach(text, list)
        {
            worst = fmax(worst, record ? sentence_error(n, text->valuestring, record, sum) : INFINITY);
            record = record ? record->next : NULL;
        }
        say(n, "sentences", record ? INFINITY : worst, LOG_BOUND, NULL);
        return BY_OK;
    }
    char *path = base_path_join(n->c->dir, "test.txt");
    base_lines l = {0};
    bool more = true;
    by_status s = path ? base_lines_open(&l, path) : BY_ERR_MEMORY;
    while (s == BY_OK && (s = base_lines_next(&l, &more)) == BY_OK && more) {
        worst = fmax(worst, record ? sentence_error(n, l.text, record, sum) : INFINITY);
        record = record ? record->next : NULL;
    }
    base_lines_close(&l);
    base_free(path);
    if (s == BY_OK)
        say(n, "sentences", record ? INFINITY : worst, LOG_BOUND, NULL);
    return s;
}

static void compare_number(const ngram_case *n, const cJSON *record, const char *key, double here)
{
    const cJSON *there = cJSON_GetObjectItemCaseSensitive(record, key);
    if (cJSON_IsNumber(there))
        say(n, key, fabs(here / there->valuedouble - 1), FOUR_DIGITS, NULL);
    else if (cJSON_IsNull(there))
        say(n, key, isinf(here) ? 0 : INFINITY, FOUR_DIGITS, "probability zero");
}

/* In contexts of random words, probabilities of all words but <s> add up to 1. */
static void compare_sums(const ngram_case *n)
{
    base_rng random = base_rng_make(1, 1);
    const int words = by_ngram_words(n->model);
    double worst = 0;
    for (int i = 0; i < 32; i++) {
        by_ngram_state state = i % 2 ? by_ngram_begin(n->model) : by_ngram_nothing(n->model);
        for (int k = 0; k < i % 5; k++)
            by_ngram_score(n->model, &state, (int32_t)base_rng_below(&random, (uint64_t)words), &state, NULL);
        double sum = 0;
        for (int32_t w = 0; w < words; w++)
            sum += strcmp(by_ngram_word(n->model, w), "<s>")
                       ? pow(10, by_ngram_score(n->model, &state, w, NULL, NULL))
                       : 0;
        worst = fmax(worst, fabs(sum - 1));
    }
    say(n, "sum", worst, SUM_BOUND, NULL);
}

/* ---- the case ----------------------------------------------------------------------------------------- */

static by_status check_estimate(ngram_case *n)
{
    int prune[BY_NGRAM_MAX_ORDER] = {0};
    by_ngram_spec spec = {0};
    by_ngram_sum sum = {0};
    const char *options, *corpus;
    BY_TRY(base_json_string(n->record, "lmplz", "", &options));
    BY_TRY(base_json_string(n->record, "corpus_file", "", &corpus));
    BY_TRY(read_options(options, &spec, prune));
    BY_TRY(estimate(n, corpus, &spec));
    BY_TRY(compare_arpa(n));
    BY_TRY(compare_sentences(n, &sum));
    const cJSON *whole = cJSON_GetObjectItemCaseSensitive(n->record, "corpus");
    compare_number(n, whole, "perplexity", by_ngram_perplexity(&sum, false));
    compare_number(n, whole, "perplexity_without_oov", by_ngram_perplexity(&sum, true));
    compare_number(n, whole, "oov", (double)sum.unknown);
    compare_sums(n);
    return BY_OK;
}

static by_status check_counting(ngram_case *n)
{
    by_ngram_sum sum = {0};
    by_ngram_spec spec = {.smoothing = BY_SMOOTHING_ADD_K};
    int64_t order;
    BY_TRY(base_json_int(n->record, "order", 0, 1, BY_NGRAM_MAX_ORDER, &order));
    BY_TRY(base_json_double(n->record, "k", 0, 0, 1e9, &spec.k));
    spec.order = (int)order;
    BY_TRY(estimate(n, "train.txt", &spec));
    BY_TRY(compare_sentences(n, &sum));
    compare_number(n, n->record, "perplexity", by_ngram_perplexity(&sum, false));
    return BY_OK;
}

static by_status check_file(ngram_case *n, const char *file, by_status (*check)(ngram_case *))
{
    char *path = base_path_join(n->c->dir, file);
    cJSON *all = path ? base_json_load(path) : NULL;
    by_status s = all ? BY_OK : base_error_status();
    const cJSON *models = cJSON_GetObjectItemCaseSensitive(all, "models");
    for (const cJSON *m = models ? models->child : NULL; m && s == BY_OK; m = m->next) {
        n->name = m->string;
        n->record = m;
        s = cJSON_IsArray(cJSON_GetObjectItemCaseSensitive(m, "sentences"))
                ? check(n)
                : base_fail(BY_ERR_FORMAT, "%s: %s has no sentences", file, m->string);
    }
    cJSON_Delete(all);
    base_free(path);
    return s;
}

by_status verify_ngram(verify_case *c)
{
    ngram_case n = {.c = c, .folder = base_dir_temporary("verify-ngram")};
    n.binary = n.folder ? base_path_join(n.folder, "model.bin") : NULL;
    by_status s = n.binary ? check_file(&n, "scores.json", check_estimate) : base_error_status();
    if (s == BY_OK)
        s = check_file(&n, "counting.json", check_counting);
    by_ngram_free(n.model);
    if (n.folder)
        base_dir_remove(n.folder);
    base_free(n.folder);
    base_free(n.binary);
    return s;
}
