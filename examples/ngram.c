/* ngram.c - estimate a 3-gram model of a text and ask it for probabilities.
 *
 *   ngram TEXT "the cat sat" */
#include <banyan/banyan.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static int fail(void)
{
    fprintf(stderr, "ngram: %s\n", by_error_message());
    return 1;
}

/* Every word of the sentence, the length of the n-gram that was found for it, and its probability. */
static void print_word(void *user, const char *word, size_t bytes, int32_t id, int matched, double log10)
{
    (void)user;
    (void)id;
    printf("%-16.*s %d  %.6f\n", (int)bytes, word, matched, pow(10, log10));
}

/* The likeliest word after the words of a sentence. */
static const char *guess(const by_ngram *m, const char *sentence)
{
    by_ngram_state state = by_ngram_begin(m);
    char words[1024];
    snprintf(words, sizeof words, "%s", sentence);
    for (char *word = strtok(words, " "); word; word = strtok(NULL, " "))
        by_ngram_score(m, &state, by_ngram_find(m, word, strlen(word)), &state, NULL);
    int32_t best = 0;
    double most = -INFINITY;
    for (int32_t w = 2; w < by_ngram_words(m); w++) { /* after <unk> and <s> */
        const double p = by_ngram_score(m, &state, w, NULL, NULL);
        best = p > most ? w : best;
        most = p > most ? p : most;
    }
    return by_ngram_word(m, best);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: ngram TEXT SENTENCE\n");
        return 2;
    }
    const char *files[] = {argv[1]}, *sentence = argv[2];
    /* A small text may lack n-grams of some counts, from which discounts are estimated. */
    const by_ngram_spec spec = {.order = 3, .discount_fallback = true, .skip_symbols = true};
    by_ngram_result result;
    if (by_ngram_train(files, 1, NULL, &spec, "ngram.bin", NULL, &result) != BY_OK)
        return fail();
    printf("%lld words, %lld trigrams\n", (long long)result.tokens, (long long)result.ngrams[2]);
    by_ngram *model = by_ngram_open("ngram.bin");
    if (!model)
        return fail();
    by_ngram_sum sum = {0};
    by_ngram_sentence_words(model, sentence, strlen(sentence), print_word, NULL, &sum);
    printf("perplexity %.2f\n", by_ngram_perplexity(&sum, false));
    printf("%s ... %s\n", sentence, guess(model, sentence));
    by_ngram_free(model);
    return 0;
}
