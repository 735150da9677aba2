/* relative.c - relative frequencies in the form of a back-off model.
 *
 *   add-k            highest order p = (c(h w) + k) / (c(h) + k |V|), b(h) = k |V| / (c(h) + k |V|); below it, every word has
 *                    1 / |V|. So b(h) p(w) is the share of a word that was not seen after h
 *   stupid back-off  every order p = c(h w) / c(h); every weight is 0.4, also those of contexts that are not listed */
#include <math.h>

#include "ngram/ngram.h"

static double vocabulary(const ngram_job *j)
{
    return j->vocabulary->count - 1; /* <s> is not predicted */
}

double ngram_relative_probability(const ngram_job *j, int n, double count, double total)
{
    if (j->spec->smoothing == BY_SMOOTHING_STUPID)
        return count / total;
    if (n < j->order)
        return 1 / vocabulary(j);
    return (count + j->spec->k) / (total + j->spec->k * vocabulary(j));
}

double ngram_relative_weight(const ngram_job *j, int n, double total)
{
    const double share = j->spec->k * vocabulary(j);
    if (j->spec->smoothing == BY_SMOOTHING_STUPID)
        return NGRAM_STUPID;
    return n == j->order - 1 ? share / (total + share) : 1;
}
