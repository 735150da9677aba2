/* explain.c - prints how a token was chosen (by_explanation), as text or JSON. */
#include <math.h>
#include <stdio.h>

#include <cjson/cJSON.h>

#include "base/json.h"
#include "cli/report.h"
#include "cli/show.h"
#include "cli/strategy.h"

enum { TEXT_WIDTH = 56, TOKEN_WIDTH = 16 };

/* ---- text ------------------------------------------------------------------------------------ */

/* Tokens as a quoted text, or as ids; unprintable characters are escaped. */
static void put_text(base_buf *out, const by_tokenizer *t, const int32_t *tokens, int count)
{
    base_buf text = {0};
    if (!t) {
        for (int i = 0; i < count; i++)
            base_buf_printf(out, "%s%d", i ? " " : "", (int)tokens[i]);
        return;
    }
    if (tok_decode_with(t, tokens, (size_t)count, &(tok_decode_spec){.lossy = true}, &text) != BY_OK)
        base_buf_free(&text);
    base_buf_put(&text, "", 1);
    base_json_quote(out, text.data ? text.data : "");
    base_buf_free(&text);
}

/* Characters that a terminal shows. */
static int columns(const char *text)
{
    int n = 0;
    for (; *text; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

/* In `width` columns: the end of a text that is too long, and spaces after a short one if `fill`. */
static void print_text(const by_tokenizer *t, const int32_t *tokens, int count, int width, bool fill)
{
    base_buf text = {0};
    put_text(&text, t, tokens, count);
    base_buf_put(&text, "", 1);
    const char *at = text.data ? text.data : "";
    const int long_by = columns(at) - width;
    for (int skip = long_by + 2; long_by > 0 && *at && skip > 0; skip--) /* room for a quote and the dots */
        for (at++; ((unsigned char)*at & 0xc0) == 0x80; at++)
            ;
    printf("%s%s%*s", long_by > 0 ? "\"…" : "", at, fill && long_by < 0 ? -long_by : 0, "");
    base_buf_free(&text);
}

static const char *colour(const char *code)
{
    return cli_has_colour(1) ? code : "";
}
#define BOLD  colour("\033[1m")
#define DIM   colour("\033[2m")
#define GREEN colour("\033[32m")
#define PLAIN colour("\033[0m")

/* The effects of rules on a candidate, in order. */
static void print_changes(const by_candidate *c)
{
    for (int i = 0; i < c->n_changes; i++)
        if (c->changes[i].share > 0)
            printf(" → %s %.2f %%", c->changes[i].rule, 100 * (double)c->changes[i].share);
        else
            printf(" → %s: out", c->changes[i].rule);
}

static void print_token(const by_tokenizer *t, const by_candidate *c)
{
    printf("%7.2f %%  ", 100 * (double)c->probability);
    print_text(t, &c->token, 1, TOKEN_WIDTH, true);
    print_changes(c);
}

static void print_sample(const by_tokenizer *t, const by_explanation *why)
{
    for (int i = 0; i < why->count; i++) {
        const by_candidate *c = &why->candidates[i];
        const bool chosen = c->fate == BY_FATE_CHOSEN;
        printf("%s%s ", chosen ? GREEN : c->fate == BY_FATE_RULED_OUT ? DIM : "", chosen ? "▸" : " ");
        print_token(t, c);
        if (c->share > 0)
            printf("  = %.2f %%", 100 * (double)c->share);
        if (chosen && why->draw < 0)
            printf("  ◂ the most likely of %d left", why->left);
        else if (chosen)
            printf("  ◂ sampled from %d left (%.4f)", why->left, why->draw);
        printf("%s\n", PLAIN);
    }
}

static void print_hypotheses(const by_tokenizer *t, const char *title, const by_hypothesis *h, int count)
{
    for (int i = 0; i < count; i++) {
        printf("  %s%-9s%s %2d %9.4f  ", DIM, i ? "" : title, PLAIN, i + 1, (double)h[i].score);
        print_text(t, h[i].tokens, h[i].count, TEXT_WIDTH, false);
        putchar('\n');
    }
}

static void print_fate(const by_candidate *c, int *next)
{
    switch (c->fate) {
    case BY_FATE_CHOSEN:
        printf("  ◂ continues as %d", ++*next);
        break;
    case BY_FATE_FINISHED:
        printf("  ◂ finished, score %.4f", (double)c->score);
        break;
    case BY_FATE_TOO_LATE:
        printf("  (an end, but not among the best)");
        break;
    case BY_FATE_PASSED:
    case BY_FATE_RULED_OUT:
        break;
    }
}

static void print_beams(const by_tokenizer *t, const by_explanation *why)
{
    int next = 0;
    if (why->step > 0)
        print_hypotheses(t, "beams", why->beams, why->n_beams);
    for (int i = 0; i < why->count; i++) {
        const by_candidate *c = &why->candidates[i];
        const bool taken = c->fate == BY_FATE_CHOSEN || c->fate == BY_FATE_FINISHED;
        printf("%s%s ", taken ? GREEN : DIM, taken ? "▸" : " ");
        if (why->step > 0)
            printf("%2d + ", c->beam + 1);
        print_token(t, c);
        if (c->fate != BY_FATE_RULED_OUT)
            printf("  = %.4f", (double)c->total);
        print_fate(c, &next);
        printf("%s\n", PLAIN);
    }
    print_hypotheses(t, "finished", why->finished, why->n_finished);
    if (why->end)
        printf("  %sends:%s %s\n", DIM, PLAIN, why->end);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void add_text(cJSON *o, const by_tokenizer *t, const int32_t *tokens, int count)
{
    base_buf text = {0};
    if (t && tok_decode_with(t, tokens, (size_t)count, &(tok_decode_spec){.lossy = true}, &text) == BY_OK)
        base_json_add_bytes(o, "text", text.data ? text.data : "", text.size);
    base_buf_free(&text);
}

static cJSON *candidate_json(const by_tokenizer *t, const by_candidate *c, bool beams)
{
    static const char *const fates[] = {"passed", "ruled out", "chosen", "finished", "too late"};
    cJSON *o = cJSON_CreateObject(), *list = cJSON_AddArrayToObject(o, "rules");
    cJSON_AddNumberToObject(o, "token", c->token);
    add_text(o, t, &c->token, 1);
    cli_json_number(o, "probability", (double)c->probability);
    for (int i = 0; i < c->n_changes; i++) {
        cJSON *change = cJSON_CreateObject();
        cJSON_AddStringToObject(change, "rule", c->changes[i].rule);
        cli_json_number(change, "probability", (double)c->changes[i].share);
        cJSON_AddItemToArray(list, change);
    }
    cJSON_AddStringToObject(o, "fate", fates[c->fate]);
    if (!beams)
        cli_json_number(o, "share", (double)c->share);
    if (beams) {
        cJSON_AddNumberToObject(o, "beam", c->beam);
        cli_json_number(o, "total", (double)c->total);
    }
    if (c->fate == BY_FATE_FINISHED)
        cli_json_number(o, "score", (double)c->score);
    return o;
}

static void add_hypotheses(cJSON *o, const char *key, const by_tokenizer *t, const by_hypothesis *h,
                           int count)
{
    cJSON *list = cJSON_AddArrayToObject(o, key);
    for (int i = 0; i < count; i++) {
        cJSON *one = cJSON_CreateObject();
        cJSON_AddItemToObject(one, "ids", cJSON_CreateIntArray(h[i].tokens, h[i].count));
        add_text(one, t, h[i].tokens, h[i].count);
        cli_json_number(one, "score", (double)h[i].score);
        cJSON_AddItemToArray(list, one);
    }
}

static int print_json(const by_tokenizer *t, const by_explanation *why)
{
    const bool beams = why->beams != NULL;
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "explain", beams ? "beams" : "token");
    cJSON_AddNumberToObject(o, "row", why->row);
    cJSON_AddNumberToObject(o, "step", why->step);
    if (beams) {
        cJSON_AddNumberToObject(o, "group", why->group);
        add_hypotheses(o, "beams", t, why->beams, why->n_beams);
    } else {
        cJSON_AddNumberToObject(o, "chosen", why->chosen);
        cJSON_AddNumberToObject(o, "left", why->left);
        cli_json_number(o, "draw", why->draw < 0 ? (double)NAN : why->draw);
    }
    cJSON *list = cJSON_AddArrayToObject(o, "candidates");
    for (int i = 0; i < why->count; i++)
        cJSON_AddItemToArray(list, candidate_json(t, &why->candidates[i], beams));
    if (beams) {
        add_hypotheses(o, "next", t, why->next, why->n_next);
        add_hypotheses(o, "finished", t, why->finished, why->n_finished);
        if (why->end)
            cJSON_AddStringToObject(o, "end", why->end);
    }
    return cli_print_json(o);
}

by_status cli_explain(const by_tokenizer *t, const by_explanation *why, int name, bool json)
{
    if (json)
        return print_json(t, why) == CLI_OK ? BY_OK : base_fail(BY_ERR_IO, "cannot write to standard output");
    printf("%sstep %d%s", BOLD, why->step + 1, PLAIN);
    if (name >= 0)
        printf("  text %d", name + 1);
    if (why->group > 0)
        printf("  group %d", why->group + 1);
    putchar('\n');
    if (why->beams)
        print_beams(t, why);
    else
        print_sample(t, why);
    return cli_flush() ? BY_OK : base_fail(BY_ERR_IO, "cannot write to standard output");
}
