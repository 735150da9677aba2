/* ngram_files.c - n-gram models in `inspect` and `convert` (ngram_verbs.h). */
#include "cli/ngram_verbs.h"

#include <unistd.h>

#include "base/file.h"
#include "cli/format.h"
#include "cli/report.h"
#include "cli/show.h"

/* ---- inspect ----------------------------------------------------------------------------------------- */

static void print_text(const by_ngram *m, const char *path)
{
    printf("%s: n-gram model of order %d, %s\n", path, by_ngram_order(m),
           by_ngram_smoothing(m) == BY_SMOOTHING_UNKNOWN ? "from an ARPA file"
                                                         : by_smoothing_name(by_ngram_smoothing(m)));
    if (by_ngram_tokens(m))
        printf("tokens      %14s\n", cli_count_text(by_ngram_tokens(m)).s);
    else
        printf("vocabulary  %14s, with <unk>, <s> and </s>\n", cli_count_text(by_ngram_words(m)).s);
    for (int n = 1; n <= by_ngram_order(m); n++)
        printf("%2d-grams    %14s\n", n, cli_count_text(by_ngram_count(m, n)).s);
    printf("memory      %14s, mapped\n", cli_bytes_text(by_ngram_bytes(m)).s);
}

static int print_json(const by_ngram *m, const char *path)
{
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "model", path);
    cJSON_AddStringToObject(o, "family", "ngram");
    cJSON_AddNumberToObject(o, "order", by_ngram_order(m));
    cJSON_AddStringToObject(o, "smoothing", by_smoothing_name(by_ngram_smoothing(m)));
    cJSON_AddStringToObject(o, "units", by_ngram_tokens(m) ? "tokens" : "words");
    cJSON_AddNumberToObject(o, "vocabulary", by_ngram_tokens(m) ? by_ngram_tokens(m) : by_ngram_words(m));
    cJSON *counts = cJSON_AddArrayToObject(o, "ngrams");
    for (int n = 1; counts && n <= by_ngram_order(m); n++)
        cJSON_AddItemToArray(counts, cJSON_CreateNumber((double)by_ngram_count(m, n)));
    cJSON_AddNumberToObject(o, "bytes", (double)by_ngram_bytes(m));
    return cli_print_json(o);
}

int cli_ngram_inspect(const char *path, bool words, bool json)
{
    by_ngram *m = by_ngram_open(path);
    if (!m)
        return cli_fail(NULL);
    int code = CLI_OK;
    if (json)
        code = print_json(m, path);
    else
        print_text(m, path);
    for (int32_t id = 0; words && !json && id < by_ngram_words(m); id++) {
        double p, weight;
        by_ngram_entry(m, &id, 1, &p, &weight);
        printf("%8d  %11.6f  %11.6f  %s\n", (int)id, p, weight, by_ngram_word(m, id));
    }
    by_ngram_free(m);
    return code;
}

/* ---- convert ----------------------------------------------------------------------------------------- */

int cli_ngram_convert(const char *from, const char *to, bool json)
{
    if (by_ngram_convert(from, to) != BY_OK)
        return cli_fail(NULL);
    by_ngram *m = by_ngram_open(to);
    if (!m)
        return cli_fail(NULL);
    int code = CLI_OK;
    if (json)
        code = print_json(m, to);
    else
        printf("wrote %s: order %d, %s unigrams, %s in memory\n", to, by_ngram_order(m),
               cli_count_text(by_ngram_count(m, 1)).s, cli_bytes_text(by_ngram_bytes(m)).s);
    by_ngram_free(m);
    return code;
}
