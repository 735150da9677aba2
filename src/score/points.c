/* points.c - texts as code points (see score.h). */
#include "score/score.h"
#include "text/unicode.h"

void score_points_put(score_points *p, uint32_t c)
{
    if (p->count == p->room && !p->failed) {
        size_t room = BY_MAX(p->room * 2, (size_t)256);
        uint32_t *more = base_resize(p->c, room, sizeof *more);
        p->failed = !more;
        if (more) {
            p->c = more;
            p->room = room;
        }
    }
    if (!p->failed)
        p->c[p->count++] = c;
}

void score_points_free(score_points *p)
{
    base_free(p->c);
    *p = (score_points){0};
}

by_status score_points_read(score_points *p, const char *text)
{
    p->count = 0;
    p->failed = false;
    const size_t size = strlen(text);
    for (size_t i = 0; i < size && !p->failed;) {
        uint32_t c;
        int n = tok_utf8_decode((const uint8_t *)text + i, size - i, &c);
        if (n == 0)
            return base_fail(BY_ERR_FORMAT, "invalid UTF-8 at byte %zu", i + 1);
        score_points_put(p, c);
        i += (size_t)n;
    }
    return p->failed ? BY_ERR_MEMORY : BY_OK;
}

by_status score_points_read_part(score_points *p, const char *text, int reference)
{
    by_status s = score_points_read(p, text);
    if (s != BY_OK && reference >= 0)
        return base_fail_context("reference %d", reference + 1);
    return s == BY_OK ? BY_OK : base_fail_context("hypothesis");
}

void score_points_lower(const score_points *p, score_points *out)
{
    out->count = 0;
    out->failed = false;
    for (size_t i = 0; i < p->count; i++) {
        uint32_t c = p->c[i];
        if (c < 0x80) {
            score_points_put(out, c >= 'A' && c <= 'Z' ? c + 32 : c);
        } else if (c == 0x130) { /* capital I with dot above: the only character that becomes two */
            score_points_put(out, 'i');
            score_points_put(out, 0x307);
        } else if (c == 0x3a3 && tok_is_final_sigma(p->c, p->count, i)) {
            score_points_put(out, 0x3c2);
        } else {
            score_points_put(out, (uint32_t)utf8proc_tolower((utf8proc_int32_t)c));
        }
    }
}

bool score_space(uint32_t c)
{
    return tok_is_space(c) || (c >= 0x1c && c <= 0x1f);
}

void score_put_references(base_buf *out, int references)
{
    if (references < 0)
        base_buf_puts(out, "nrefs:var|");
    else
        base_buf_printf(out, "nrefs:%d|", references);
}

by_status score_check(const char *hypothesis, const char *const *references, int count)
{
    if (count < 1)
        return base_fail(BY_ERR_ARGUMENT, "a hypothesis needs at least one reference");
    bool missing = !hypothesis || !references;
    for (int i = 0; i < count && !missing; i++)
        missing = !references[i];
    return missing ? base_fail(BY_ERR_ARGUMENT, "the hypothesis or a reference is NULL") : BY_OK;
}
