/* arpa.c - reads ARPA files: n-grams as text, order by order.
 *
 *   \data\
 *   ngram 1=5
 *   \1-grams:
 *   -1.25<tab>word<tab>-0.30       log10 probability, words, log10 back-off weight where there is one
 *   \end\
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/input.h"
#include "ngram/ngram.h"

/* ---- reading ----------------------------------------------------------------------------------------- */

typedef struct reader {
    base_lines lines;
    const char *path;
    int order;
    int64_t counts[BY_NGRAM_MAX_ORDER];
    ngram_words words;
    float (*unigrams)[2]; /* by id, until the image can be made */
    ngram_image image;
} reader;

static by_status bad(const reader *r, const char *what)
{
    return base_fail(BY_ERR_FORMAT, "line %lld: %s", (long long)r->lines.number, what);
}

/* The next line that is not empty, without white space at its ends. */
static by_status next_line(reader *r, char **text)
{
    bool more;
    for (;;) {
        BY_TRY(base_lines_next(&r->lines, &more));
        if (!more)
            return bad(r, r->lines.number ? "the file ends before \\end\\" : "the file is empty");
        while (r->lines.size && ngram_is_space(r->lines.text[r->lines.size - 1]))
            r->lines.text[--r->lines.size] = '\0';
        if (r->lines.size)
            break;
    }
    if (strlen(r->lines.text) != r->lines.size)
        return bad(r, "a NUL byte");
    *text = r->lines.text;
    return BY_OK;
}

static by_status read_counts(reader *r, char **line)
{
    BY_TRY(next_line(r, line));
    if (strcmp(*line, "\\data\\") != 0)
        return bad(r, "not an ARPA file: \\data\\ is missing");
    for (;;) {
        int n, used = 0;
        long long count;
        BY_TRY(next_line(r, line));
        if (sscanf(*line, "ngram %d = %lld%n", &n, &count, &used) < 2)
            break;
        if ((*line)[used] != '\0' || n != r->order + 1 || count < 0 || count > (int64_t)1 << 40)
            return bad(r, "an invalid count");
        if (n > BY_NGRAM_MAX_ORDER)
            return base_fail(BY_ERR_UNSUPPORTED, "line %lld: n-grams of order %d; the highest order is %d",
                             (long long)r->lines.number, n, BY_NGRAM_MAX_ORDER);
        r->counts[r->order++] = count;
    }
    return r->order ? BY_OK : bad(r, "no counts");
}

static char *next_field(char **at)
{
    char *begin = *at + strspn(*at, " \t"), *end = begin + strcspn(begin, " \t");
    *at = *end ? end + 1 : end;
    *end = '\0';
    return begin;
}

static bool read_number(const char *text, float *out)
{
    char *end;
    *out = base_strtof(text, &end);
    return end != text && *end == '\0' && !isnan(*out);
}

static by_status read_values(const reader *r, const char *probability, const char *weight, float *out)
{
    out[1] = 0;
    if (!read_number(probability, &out[0]) || out[0] > 0)
        return bad(r, "a probability that is not a number, or above 0");
    if (*weight && !read_number(weight, &out[1]))
        return bad(r, "a back-off weight that is not a number");
    for (int i = 0; i < 2; i++)
        out[i] = isfinite(out[i]) ? out[i] : out[i] < 0 ? NGRAM_NEVER : 0;
    return BY_OK;
}

/* A word's first occurrence gives it an id; the special three have theirs. */
static by_status read_unigram(reader *r, char *text)
{
    char *probability = next_field(&text);
    const char *word = next_field(&text);
    char *weight = next_field(&text);
    const uint32_t before = r->words.count;
    uint32_t id;
    float values[2];
    if (!*word || *next_field(&text))
        return bad(r, "expected a probability, a word and optionally a weight");
    BY_TRY(read_values(r, probability, weight, values));
    if (strcasecmp(word, "<unk>") == 0)
        word = "<unk>";
    BY_TRY(ngram_words_add(&r->words, word, strlen(word), ngram_words_hash(word, strlen(word)), &id));
    if (id >= NGRAM_SPECIAL && id < before)
        return bad(r, "a word is listed twice");
    memcpy(r->unigrams[id], values, sizeof values);
    return BY_OK;
}

static by_status make_image(reader *r, const char *binary)
{
    BY_TRY(ngram_image_make(&r->image, binary, &r->words, r->order, r->counts,
                            (ngram_traits){.smoothing = BY_SMOOTHING_UNKNOWN, .eos = -1}));
    for (uint32_t i = 0; i < r->words.count; i++)
        BY_TRY(ngram_image_put(&r->image, 1, &i, r->unigrams[i][0], r->unigrams[i][1]));
    return BY_OK;
}

static by_status read_ngram(reader *r, int n, char *text)
{
    uint32_t words[BY_NGRAM_MAX_ORDER];
    float values[2];
    char *probability = next_field(&text);
    for (int i = 0; i < n; i++) {
        const char *word = next_field(&text);
        words[i] = ngram_words_find(&r->words, word, strlen(word));
        if (!*word || (words[i] == NGRAM_UNK && strcasecmp(word, "<unk>") != 0))
            return bad(r, *word ? "a word that is not among the unigrams" : "too few words");
    }
    char *weight = next_field(&text);
    if (*next_field(&text) || (n == r->order && *weight))
        return bad(r, "too many words");
    BY_TRY(read_values(r, probability, weight, values));
    return ngram_image_put(&r->image, n, words, values[0], values[1]) == BY_OK
               ? BY_OK
               : base_fail_context("line %lld", (long long)r->lines.number);
}

static by_status read_order(reader *r, int n, char **line)
{
    char title[32];
    base_format(title, sizeof title, "\\%d-grams:", n);
    if (strcmp(*line, title) != 0)
        return bad(r, "expected the next order; the counts do not match the n-grams");
    for (int64_t i = 0; i < r->counts[n - 1]; i++) {
        BY_TRY(next_line(r, line));
        if (**line == '\\')
            return bad(r, "fewer n-grams than the header says");
        BY_TRY(n == 1 ? read_unigram(r, *line) : read_ngram(r, n, *line));
    }
    return next_line(r, line);
}

/* The most that gzip packs. */
#define RATIO 1032

/* A file that claims more n-grams than it can hold is refused before memory is taken for them: an n-gram of n
 * words has at least 2 n + 2 bytes. */
static by_status check_counts(const reader *r)
{
    struct stat st;
    if (stat(r->path, &st) != 0 || !S_ISREG(st.st_mode))
        return BY_OK;
    for (int n = 1; n <= r->order; n++)
        if (r->counts[n - 1] > st.st_size / (2 * n + 2) * RATIO + RATIO)
            return bad(r, "the file is too short for the n-grams that it declares");
    return BY_OK;
}

static by_status make_unigrams(reader *r)
{
    if (r->counts[0] > (int64_t)UINT32_MAX / 8)
        return bad(r, "more unigrams than are possible");
    r->unigrams = base_alloc_zero((size_t)r->counts[0] + NGRAM_SPECIAL, sizeof *r->unigrams);
    if (!r->unigrams)
        return BY_ERR_MEMORY;
    for (int i = 0; i < NGRAM_SPECIAL; i++)
        r->unigrams[i][0] = NGRAM_NEVER; /* unless the file has it */
    return BY_OK;
}

static by_status read_all(reader *r, const char *binary)
{
    char *line;
    BY_TRY(base_lines_open(&r->lines, r->path));
    BY_TRY(ngram_words_make(&r->words));
    BY_TRY(read_counts(r, &line));
    BY_TRY(check_counts(r));
    BY_TRY(make_unigrams(r));
    for (int n = 1; n <= r->order; n++) {
        BY_TRY(read_order(r, n, &line));
        if (n == 1)
            BY_TRY(make_image(r, binary));
    }
    return strcmp(line, "\\end\\") == 0 ? BY_OK : bad(r, "more n-grams than the header says, or no \\end\\");
}

by_status ngram_arpa_read(const char *path, const char *binary, ngram_image *out)
{
    reader r = {.path = path};
    by_status s = read_all(&r, binary);
    base_lines_close(&r.lines);
    ngram_words_free(&r.words);
    base_free(r.unigrams);
    if (s != BY_OK)
        ngram_image_abort(&r.image);
    *out = r.image;
    return s;
}
