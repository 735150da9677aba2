/* moses.c - word splitting for XLM (Lample and Conneau 2019): the cleaning and tokenisation of the Moses
 * scripts for English, then lower case without accents. It is a list of rewriting rules, each applied to the
 * whole text before the next, and later ones see the output of earlier ones: the order is the definition. */
#include "text/pipeline.h"
#include "text/unicode.h"

typedef struct line {
    uint32_t *c;
    tok_at *at; /* origin of each character */
    size_t count, capacity;
} line;

typedef struct moses {
    line text, next;
    bool failed;
} moses;

/* ---- classes of characters ------------------------------------------------------------------- */

enum { ALPHA = 1, NUMBER = 2, LOWER = 4 };
static const struct class_range {
    uint32_t first, last;
    int flags;
} classes[] = {
#include "text/legacy/moses.h"
};

static int class_of(uint32_t c)
{
    int low = 0, high = BY_COUNT(classes);
    while (low < high) {
        int middle = (low + high) / 2;
        if (classes[middle].last < c)
            low = middle + 1;
        else
            high = middle;
    }
    return low < BY_COUNT(classes) && classes[low].first <= c ? classes[low].flags : 0;
}

/* White space as defined by Python strings, which includes four more control characters. */
static bool is_space(uint32_t c)
{
    return tok_is_space(c) || (c >= 0x1c && c <= 0x1f);
}

static bool is_digit(uint32_t c)
{
    return c < 0x80 ? c >= '0' && c <= '9' : utf8proc_category((utf8proc_int32_t)c) == UTF8PROC_CATEGORY_ND;
}

/* ---- lines ----------------------------------------------------------------------------------- */

static void put(moses *m, uint32_t c, tok_at at)
{
    line *v = &m->next;
    if (v->count == v->capacity) {
        size_t capacity = BY_MAX(v->capacity * 2, (size_t)256);
        uint32_t *points = base_resize(v->c, capacity, sizeof(*points));
        if (points)
            v->c = points;
        tok_at *places = base_resize(v->at, capacity, sizeof(*places));
        if (places)
            v->at = places;
        if (!points || !places) {
            m->failed = true;
            return;
        }
        v->capacity = capacity;
    }
    v->c[v->count] = c;
    v->at[v->count++] = at;
}

static void put_own(moses *m, size_t i)
{
    put(m, m->text.c[i], m->text.at[i]);
}

static void put_text(moses *m, const char *text, tok_at at)
{
    for (; *text && !m->failed; text++)
        put(m, (uint8_t)*text, at);
}

/* The output becomes the text. */
static void turn(moses *m)
{
    line t = m->text;
    m->text = m->next;
    m->next = t;
    m->next.count = 0;
}

static void strip(moses *m)
{
    line *v = &m->text;
    size_t from = 0;
    while (v->count && is_space(v->c[v->count - 1]))
        v->count--;
    while (from < v->count && is_space(v->c[from]))
        from++;
    if (!from)
        return;
    v->count -= from;
    memmove(v->c, v->c + from, v->count * sizeof(*v->c));
    memmove(v->at, v->at + from, v->count * sizeof(*v->at));
}

/* ---- rules ----------------------------------------------------------------------------------- */

/* In the pattern of a rule these stand for a class of characters; in its replacement, for what they matched,
 * in order. */
#define DIGIT     "\x01"
#define STOP      "\x02" /* . ! : ? ; , */
#define STOPS     "\x03" /* one or more of , and . */
#define SPACES    "\x04" /* any number */
#define BLANKS    "\x05" /* plain spaces, one or more */
#define NUM       "\x06"
#define NOT_NUM   "\x07"
#define ALPHABET  "\x08"
#define NOT_ALPHA "\x0b"
#define SYMBOL    "\x0c" /* neither letter nor number */
#define END       "\x0e" /* end of the text */
#define NBSP      "\xc2\xa0"

typedef struct rule {
    const char *from, *to;
} rule;

static const rule cleaning[] = {
    {"\xef\xbc\x8c", ","},
    {"\xe3\x80\x82" SPACES, ". "},
    {"\xe3\x80\x81", ","},
    {"\xe2\x80\x9d", "\""},
    {"\xe2\x80\x9c", "\""},
    {"\xe2\x88\xb6", ":"},
    {"\xef\xbc\x9a", ":"},
    {"\xef\xbc\x9f", "?"},
    {"\xe3\x80\x8a", "\""},
    {"\xe3\x80\x8b", "\""},
    {"\xef\xbc\x89", ")"},
    {"\xef\xbc\x81", "!"},
    {"\xef\xbc\x88", "("},
    {"\xef\xbc\x9b", ";"},
    {"\xe3\x80\x8d", "\""},
    {"\xe3\x80\x8c", "\""},
    {"\xef\xbc\x90", "0"},
    {"\xef\xbc\x91", "1"},
    {"\xef\xbc\x92", "2"},
    {"\xef\xbc\x93", "3"},
    {"\xef\xbc\x94", "4"},
    {"\xef\xbc\x95", "5"},
    {"\xef\xbc\x96", "6"},
    {"\xef\xbc\x97", "7"},
    {"\xef\xbc\x98", "8"},
    {"\xef\xbc\x99", "9"},
    {"\xef\xbc\x8e" SPACES, ". "},
    {"\xef\xbd\x9e", "~"},
    {"\xe2\x80\x99", "'"},
    {"\xe2\x80\xa6", "..."},
    {"\xe2\x94\x81", "-"},
    {"\xe3\x80\x88", "<"},
    {"\xe3\x80\x89", ">"},
    {"\xe3\x80\x90", "["},
    {"\xe3\x80\x91", "]"},
    {"\xef\xbc\x85", "%"},
    {"\r", ""},
    {"(", " ("},
    {")", ") "},
    {BLANKS, " "},
    {") " STOP, ")" STOP},
    {"( ", "("},
    {" )", ")"},
    {DIGIT " %", DIGIT "%"},
    {" :", ":"},
    {" ;", ";"},
    {"`", "'"},
    {"''", " \" "},
    {"\xe2\x80\x9e", "\""},
    {"\xe2\x80\x93", "-"},
    {"\xe2\x80\x94", " - "},
    {BLANKS, " "},
    {"\xc2\xb4", "'"},
    {"\xe2\x80\x98", "'"},
    {"\xe2\x80\x9a", "'"},
    {"''", "\""},
    {NBSP "\xc2\xab" NBSP, "\""},
    {"\xc2\xab" NBSP, "\""},
    {"\xc2\xab", "\""},
    {NBSP "\xc2\xbb" NBSP, "\""},
    {NBSP "\xc2\xbb", "\""},
    {"\xc2\xbb", "\""},
    {NBSP "%", "%"},
    {"n\xc2\xba" NBSP, "n\xba "},
    {NBSP ":", ":"},
    {NBSP "\xc2\xba"
          "C",
     " \xba"
     "C"},
    {NBSP "cm", " cm"},
    {NBSP "?", "?"},
    {NBSP "!", "!"},
    {NBSP ";", ";"},
    {"," NBSP, ", "},
    {BLANKS, " "},
    {"\"" STOPS, STOPS "\""},
    {DIGIT NBSP DIGIT, DIGIT "." DIGIT},
};

/* Commas are separated except inside numbers; an apostrophe stays with the letters after it. */
static const rule splitting[] = {
    {NOT_NUM ",", NOT_NUM " , "},
    {"," NOT_NUM, " , " NOT_NUM},
    {NUM "," END, NUM " , "},
    {NOT_ALPHA "'" NOT_ALPHA, NOT_ALPHA " ' " NOT_ALPHA},
    {SYMBOL "'" ALPHABET, SYMBOL " ' " ALPHABET},
    {ALPHABET "'" NOT_ALPHA, ALPHABET " ' " NOT_ALPHA},
    {ALPHABET "'" ALPHABET, ALPHABET " '" ALPHABET},
    {NUM "'s", NUM " 's"},
};

static bool in_class(char class, uint32_t c)
{
    if (class == *DIGIT)
        return is_digit(c);
    if (class == *STOP || class == *STOPS)
        return c && c < 0x80 && strchr(class == *STOP ? ".!:?;," : ",.", (int)c);
    if (class == *SPACES || class == *BLANKS)
        return class == *BLANKS ? c == ' ' : is_space(c);
    int flags = class_of(c);
    if (class == *NUM || class == *NOT_NUM)
        return !(flags & NUMBER) == (class == *NOT_NUM);
    if (class == *ALPHABET || class == *NOT_ALPHA)
        return !(flags & ALPHA) == (class == *NOT_ALPHA);
    return !(flags & (ALPHA | NUMBER)); /* SYMBOL */
}

static bool is_class(char c)
{
    return c > 0 && c < 0x20 && c != '\r';
}

typedef struct met {
    size_t start, end;
} met;

/* Returns true if the pattern matches at text[i], and sets *end; found receives what the classes matched. */
static bool match(const moses *m, const char *from, size_t i, size_t *end, met found[4])
{
    const line *v = &m->text;
    int count = 0;
    for (const char *p = from; *p;) {
        size_t start = i;
        uint32_t c;
        if (*p == *END) {
            if (i != v->count)
                return false;
            p++;
            continue;
        }
        if (!is_class(*p)) {
            p += tok_utf8_next(p, strlen(p), &c);
            if (i >= v->count || v->c[i++] != c)
                return false;
            continue;
        }
        bool many = *p == *STOPS || *p == *SPACES || *p == *BLANKS;
        while (i < v->count && in_class(*p, v->c[i]) && (many || i == start))
            i++;
        if (i == start && *p != *SPACES)
            return false;
        found[count++] = (met){start, i};
        p++;
    }
    *end = i;
    return true;
}

/* Replacements are Latin-1, so that each byte is a character. */
static void put_match(moses *m, const char *to, tok_at at, const met *found)
{
    for (; *to; to++) {
        if (!is_class(*to)) {
            put(m, (uint8_t)*to, at);
            continue;
        }
        for (size_t k = found->start; k < found->end; k++)
            put_own(m, k);
        found++;
    }
}

static void apply(moses *m, const rule *r)
{
    const line *v = &m->text;
    uint32_t first;
    size_t i = 0, end;
    tok_utf8_next(r->from, strlen(r->from), &first);
    while (!is_class(r->from[0]) && i < v->count && v->c[i] != first)
        i++;
    if (i == v->count)
        return; /* most rules concern characters that are absent */
    for (i = 0; i < v->count && !m->failed;) {
        met found[4];
        bool hit = (is_class(r->from[0]) || v->c[i] == first) && match(m, r->from, i, &end, found);
        if (hit)
            put_match(m, r->to, v->at[i], found);
        else
            put_own(m, i);
        i = hit ? end : i + 1;
    }
    turn(m);
}

/* ---- special cases --------------------------------------------------------------------------- */

static bool is_unprintable(uint32_t c)
{
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
    return k == UTF8PROC_CATEGORY_CN || k >= UTF8PROC_CATEGORY_CC;
}

static void drop_unprintable(moses *m)
{
    for (size_t i = 0; i < m->text.count; i++)
        if (!is_unprintable(m->text.c[i]))
            put_own(m, i);
    turn(m);
}

/* Puts spaces around everything that is not part of a word. */
static void set_apart(moses *m)
{
    for (size_t i = 0; i < m->text.count && !m->failed; i++) {
        uint32_t c = m->text.c[i];
        bool inside =
            is_space(c) || (c < 0x80 && c && strchr(".'`,-", (int)c)) || (class_of(c) & (ALPHA | NUMBER));
        if (!inside)
            put(m, ' ', m->text.at[i]);
        put_own(m, i);
        if (!inside)
            put(m, ' ', m->text.at[i]);
    }
    turn(m);
}

/* Consecutive dots stay together: they are represented by a word, which the text itself may contain. */
static void hide_dots(moses *m)
{
    const line *v = &m->text;
    for (size_t i = 0, end; i < v->count && !m->failed; i = end) {
        for (end = i; end < v->count && v->c[end] == '.';)
            end++;
        if (end < i + 2) {
            put_own(m, i);
            end = i + 1;
            continue;
        }
        put(m, ' ', v->at[i]);
        for (; i < end; i++)
            put_text(m, "DOT", v->at[i]);
        put_text(m, end < v->count ? "MULTI " : "MULTI", v->at[end - 1]);
    }
    turn(m);
}

static bool starts_with(const line *v, size_t i, const char *text)
{
    for (; *text; text++, i++)
        if (i >= v->count || v->c[i] != (uint8_t)*text)
            return false;
    return true;
}

static void show_dots(moses *m)
{
    const line *v = &m->text;
    for (size_t i = 0; i < v->count && !m->failed;) {
        size_t end = i;
        while (starts_with(v, end, "DOT"))
            end += 3;
        if (end == i) {
            put_own(m, i++);
            continue;
        }
        bool marker = starts_with(v, end, "MULTI");
        for (; i < end; i += marker ? 3 : 1)
            put(m, marker ? '.' : v->c[i], v->at[i]);
        i = marker ? end + 5 : end;
    }
    turn(m);
}

/* English abbreviations that keep their period; those in `numbered` only before a number. */
static const char *const abbreviations = " A B C D E F G H I J K L M N O P Q R S T U V W X Y Z Adj Adm Adv "
                                         "Asst Bart Bldg Brig Bros Capt Cmdr Col Comdr "
                                         "Con Corp Cpl DR Dr Drs Ens Gen Gov Hon Hr Hosp Insp Lt MM MR MRS "
                                         "MS Maj Messrs Mlle Mme Mr Mrs Ms Msgr Op Ord "
                                         "Pfc Ph Prof Pvt Rep Reps Res Rev Rt Sen Sens Sfc Sgt Sr St Supt "
                                         "Surg v vs i.e rev e.g Rs Nos Nr Jan Feb Mar "
                                         "Apr Jun Jul Aug Sep Oct Nov Dec ";
static const char *const numbered = " No Art pp ";

static bool is_listed(const char *list, const line *v, size_t start, size_t end)
{
    char word[16] = " ";
    size_t n = 1;
    if (end - start > 10)
        return false;
    for (size_t i = start; i < end; i++) {
        if (v->c[i] >= 0x80 || v->c[i] <= ' ')
            return false;
        word[n++] = (char)v->c[i];
    }
    word[n] = ' ';
    return strstr(list, word) != NULL;
}

/* Returns true if the period after the word [start, end) belongs to it. next: start of the next word. */
static bool keeps_period(const line *v, size_t start, size_t end, size_t next)
{
    bool dot = false, letter = false;
    for (size_t i = start; i < end; i++) {
        dot = dot || v->c[i] == '.';
        letter = letter || (class_of(v->c[i]) & ALPHA);
    }
    bool more = next < v->count;
    return (dot && letter) || is_listed(abbreviations, v, start, end) ||
           (more && (class_of(v->c[next]) & LOWER)) ||
           (more && v->c[next] >= '0' && v->c[next] <= '9' && is_listed(numbered, v, start, end));
}

/* Separates words with single spaces and splits a final period off most of them. */
static void cut_periods(moses *m)
{
    const line *v = &m->text;
    for (size_t i = 0, end, next; i < v->count && !m->failed; i = next) {
        for (end = i; end < v->count && !is_space(v->c[end]);)
            end++;
        for (next = end; next < v->count && is_space(v->c[next]);)
            next++;
        if (end == i)
            continue;
        if (m->next.count)
            put(m, ' ', v->at[i]);
        bool cut = end > i + 1 && v->c[end - 1] == '.' && !keeps_period(v, i, end - 1, next);
        for (size_t k = i; k < end; k++) {
            if (cut && k == end - 1)
                put(m, ' ', v->at[k]);
            put_own(m, k);
        }
    }
    turn(m);
}

/* ---- lower case without accents -------------------------------------------------------------- */

static void lower(moses *m)
{
    for (size_t i = 0; i < m->text.count && !m->failed; i++) {
        uint32_t c = m->text.c[i];
        tok_at at = m->text.at[i];
        if (c == 0x130)
            put(m, 'i', at);
        put(m,
            c == 0x130                                                      ? 0x307
            : c == 0x3a3 && tok_is_final_sigma(m->text.c, m->text.count, i) ? 0x3c2
            : c < 0x80 ? c + (c >= 'A' && c <= 'Z' ? 32 : 0)
                       : (uint32_t)utf8proc_tolower((utf8proc_int32_t)c),
            at);
    }
    turn(m);
}

/* Canonical decomposition without nonspacing marks. The rest needs no reordering. */
static void drop_accents(moses *m)
{
    for (size_t i = 0; i < m->text.count && !m->failed; i++) {
        utf8proc_int32_t parts[32] = {(utf8proc_int32_t)m->text.c[i]};
        int last = 0;
        utf8proc_ssize_t n = m->text.c[i] < 0x80
                                 ? 1
                                 : utf8proc_decompose_char(parts[0], parts, BY_COUNT(parts),
                                                           UTF8PROC_DECOMPOSE | UTF8PROC_STABLE, &last);
        for (utf8proc_ssize_t k = 0; k < n; k++)
            if (parts[k] < 0x80 || utf8proc_category(parts[k]) != UTF8PROC_CATEGORY_MN)
                put(m, (uint32_t)parts[k], m->text.at[i]);
    }
    turn(m);
}

/* ---- the stage ------------------------------------------------------------------------------- */

static void rewrite(moses *m, bool lowercase)
{
    for (int i = 0; i < BY_COUNT(cleaning); i++)
        apply(m, &cleaning[i]);
    strip(m);
    drop_unprintable(m);
    strip(m);
    set_apart(m);
    hide_dots(m);
    for (int i = 0; i < BY_COUNT(splitting); i++)
        apply(m, &splitting[i]);
    cut_periods(m);
    apply(m, &(rule){".'" END, " . ' "});
    show_dots(m);
    if (!lowercase)
        return;
    lower(m);
    drop_accents(m);
    lower(m);
}

by_status tok_moses_run(const tok_stage *s, const tok_buffer *in, const tok_piece *p, tok_buffer *out)
{
    moses m = {0};
    for (size_t i = p->start, end = p->start + p->size; i < end && !m.failed;) {
        uint32_t c;
        int n = tok_utf8_next(in->text + i, end - i, &c);
        put(&m, c, tok_buffer_at(in, i));
        i += (size_t)n;
    }
    turn(&m);
    if (!m.failed)
        rewrite(&m, s->flags[0]);
    size_t start = out->size;
    for (size_t i = 0; i <= m.text.count && !m.failed; i++) {
        if (i < m.text.count && !is_space(m.text.c[i])) {
            tok_buffer_put_char(out, m.text.c[i], m.text.at[i]);
            continue;
        }
        tok_buffer_piece(out, start, out->size - start, -1);
        start = out->size;
    }
    base_free(m.text.c);
    base_free(m.text.at);
    base_free(m.next.c);
    base_free(m.next.at);
    return m.failed ? base_fail(BY_ERR_MEMORY, "out of memory while splitting a text into words") : BY_OK;
}
