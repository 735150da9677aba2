/* article.c - the indefinite article of a name. */
#include <strings.h>

#include "base/base.h"

/* Does a name begin with the sound of a vowel? Abbreviations are spelled out: an RNN, an MT5. U sounds as in "unit". */
static bool begins_with_vowel(const char *name)
{
    static const char *const spelled[] = {"LSTM", "MBart", "MT5", "n-", "RNN", "XL"};
    for (int i = 0; i < BY_COUNT(spelled); i++)
        if (strncasecmp(name, spelled[i], strlen(spelled[i])) == 0)
            return true;
    return *name && strchr("AEIOaeio", *name);
}

base_phrase base_a(const char *name)
{
    base_phrase p = {""};
    base_format(p.text, sizeof p.text, "%s %s", begins_with_vowel(name) ? "an" : "a", name);
    return p;
}
