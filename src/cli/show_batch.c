/* show_batch.c - displays rows of a batch: the text, with masked tokens marked in place.
 *
 *     [MASK:was]   the mask token stands there
 *     [now:was]    another token stands there
 *     [=was]       it stands there still, and is to be predicted all the same
 *     [3:was]      plm: it is predicted as the third of the row */
#include "train/preview.h"

#include <unistd.h>

#include "base/json.h"
#include "cli/common.h"
#include "cli/show_batch.h"
#include "cli/report.h"

typedef struct printer {
    const by_run_spec *spec;
    bool json, colour;
} printer;

/* The token's text without surrounding spaces, or its id if that is empty or there is no tokenizer. */
static by_status put_token(base_buf *out, const train_preview_row *e, int32_t id)
{
    if (!e->tokenizer) {
        base_buf_printf(out, "%d", (int)id);
        return BY_OK;
    }
    base_buf text = {0};
    by_status s = tok_decode_with(e->tokenizer, &id, 1, &(tok_decode_spec){.lossy = true}, &text);
    size_t from = 0, to = text.size;
    while (from < to && text.data[from] == ' ')
        from++;
    while (to > from && text.data[to - 1] == ' ')
        to--;
    if (from < to)
        base_buf_put(out, text.data + from, to - from);
    else
        base_buf_printf(out, "#%d", (int)id); /* nothing but space */
    base_buf_free(&text);
    return s;
}

/* Tokens [from, to) as text, a space before it when it needs one. */
static by_status put_text(base_buf *out, const train_preview_row *e, const int32_t *tokens, int from, int to)
{
    const bool source = e->rows->source && tokens == e->rows->source;
    if (from >= to)
        return BY_OK;
    bool apart = out->size > 0;
    if (!e->tokenizer) {
        for (int t = from; t < to; t++)
            base_buf_printf(out, "%s%d", apart || t > from ? " " : "", (int)tokens[t]);
        return BY_OK;
    }
    base_buf text = {0};
    by_status s = tok_decode_with(e->tokenizer, tokens + from, (size_t)(to - from),
                                  &(tok_decode_spec){.lossy = true, .source = source}, &text);
    if (s == BY_OK && text.size) {
        if (apart && text.data[0] != ' ')
            base_buf_puts(out, " ");
        base_buf_put(out, text.data, text.size);
    }
    base_buf_free(&text);
    return s;
}

/* ---- masked tokens --------------------------------------------------------------------------- */

typedef enum how { MASKED, REPLACED, KEPT } how;
static const char *const how_names[] = {"masked", "replaced", "kept"};
static const char *const colours[] = {"\033[1;33m", "\033[1;31m", "\033[1;32m"};

static how how_hidden(const train_preview_row *e, int32_t now, int32_t was)
{
    if (now == was)
        return KEPT;
    return now == by_tokenizer_special(e->tokenizer, BY_SPECIAL_MASK) ? MASKED : REPLACED;
}

/* The place of target k in the order of prediction, counted from 1. */
static int rank_of(const data_samples *r, int k)
{
    int rank = 1;
    for (int i = 0; i < r->picks; i++)
        rank += r->order[r->pick[i]] < r->order[r->pick[k]];
    return rank;
}

static by_status put_permuted(base_buf *out, const printer *p, const train_preview_row *e, int k)
{
    base_buf_printf(out, " %s[%d:", p->colour ? colours[MASKED] : "", rank_of(e->rows, k));
    BY_TRY(put_token(out, e, e->rows->targets[k]));
    base_buf_printf(out, "]%s", p->colour ? "\033[0m" : "");
    return BY_OK;
}

static by_status put_hidden(base_buf *out, const printer *p, const train_preview_row *e, int32_t now,
                            int32_t was)
{
    how h = how_hidden(e, now, was);
    base_buf_printf(out, " %s[%s", p->colour ? colours[h] : "", h == MASKED ? "MASK:" : h == KEPT ? "=" : "");
    if (h == REPLACED) {
        BY_TRY(put_token(out, e, now));
        base_buf_puts(out, ":");
    }
    BY_TRY(put_token(out, e, was));
    base_buf_printf(out, "]%s", p->colour ? "\033[0m" : "");
    return BY_OK;
}

/* Segments or languages are named where they begin. */
static const char *segment_name(const printer *p, const train_preview_row *e, int segment, char small[16])
{
    const by_objective_choice *c = &p->spec->objective;
    if (!data_objective_label(e->kind, 0) && segment < c->language_count)
        return c->languages[segment];
    small[0] = (char)('A' + segment % 26);
    small[1] = 0;
    return small;
}

/* Tokens [from, to) with marks. */
static by_status put_marked(base_buf *out, const printer *p, const train_preview_row *e, int from, int to)
{
    const data_samples *r = e->rows;
    for (int k = 0; k < r->picks; k++) {
        const int at = r->pick[k];
        if (r->targets[k] < 0 || at < from || at >= to)
            continue;
        BY_TRY(put_text(out, e, r->tokens, from, at));
        BY_TRY(r->order ? put_permuted(out, p, e, k) : put_hidden(out, p, e, r->tokens[at], r->targets[k]));
        from = at + 1;
    }
    return put_text(out, e, r->tokens, from, to);
}

/* ---- terminal -------------------------------------------------------------------------------- */

static int hidden_count(const train_preview_row *e)
{
    int n = 0;
    for (int k = 0; k < e->rows->picks; k++)
        n += e->rows->targets[k] >= 0;
    return n;
}

static by_status print_text(const printer *p, const train_preview_row *e)
{
    const data_samples *r = e->rows;
    by_status s = BY_OK;
    for (int from = 0, to; from < e->used && s == BY_OK; from = to) {
        base_buf text = {0};
        char small[16];
        for (to = from + 1; to < e->used && (!r->segments || r->segments[to] == r->segments[from]);)
            to++;
        s = put_marked(&text, p, e, from, to);
        if (r->segments)
            printf("  %s:", segment_name(p, e, r->segments[from], small));
        else
            printf(" ");
        if (r->positions)
            printf(" (positions %d to %d)", (int)r->positions[from], (int)r->positions[to - 1]);
        printf("%s%s\n", text.data && text.data[0] == ' ' ? "" : " ", text.data ? text.data : "");
        base_buf_free(&text);
    }
    return s;
}

/* An encoder-decoder's two texts. */
static by_status print_two(const train_preview_row *e)
{
    const data_samples *r = e->rows;
    base_buf source = {0}, target = {0};
    by_status s = put_text(&source, e, r->source, 0, e->source_used);
    if (s == BY_OK)
        s = put_text(&target, e, r->targets, 0, e->used);
    printf("row %lld: %s, %d source and %d target tokens, padded to %d by %d\n  source: %s\n  target: %s\n\n",
           (long long)e->number + 1, data_objective_name(e->kind), e->source_used, e->used, r->source_seq,
           r->seq, source.data ? source.data : "", target.data ? target.data : "");
    base_buf_free(&source);
    base_buf_free(&target);
    return s;
}

static by_status print_example(const printer *p, const train_preview_row *e)
{
    const data_samples *r = e->rows;
    if (r->source)
        return print_two(e);
    printf("row %lld: %s, %d tokens", (long long)e->number + 1, data_objective_name(e->kind), e->used);
    if (e->used < r->seq)
        printf(", %d of padding", r->seq - e->used);
    if (r->picks)
        printf(", %d %s", hidden_count(e), r->order ? "predicted" : "masked");
    if (r->reversed && r->reversed[0])
        printf(", read from the end");
    if (r->second)
        printf(", label %d: %s", (int)r->second[0], data_objective_label(e->kind, r->second[0]));
    printf("\n");
    BY_TRY(print_text(p, e));
    if (!r->picks) { /* every token predicts the next; the target of the last one is not shown above */
        base_buf text = {0};
        int last = e->used - 1;
        while (last > 0 && r->targets[last] < 0)
            last--;
        by_status s = put_token(&text, e, r->targets[last]);
        printf("  every token predicts the next one; the last predicts \"%s\"\n", text.data ? text.data : "");
        base_buf_free(&text);
        BY_TRY(s);
    }
    printf("\n");
    return BY_OK;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static cJSON *numbers(const int32_t *v, int n)
{
    return v ? cJSON_CreateIntArray(v, n) : NULL;
}

static by_status add_hidden(cJSON *list, const train_preview_row *e)
{
    const data_samples *r = e->rows;
    by_status s = BY_OK;
    for (int k = 0; k < r->picks && s == BY_OK; k++) {
        if (r->targets[k] < 0)
            continue;
        base_buf text = {0};
        int32_t now = r->tokens[r->pick[k]];
        s = put_token(&text, e, r->targets[k]);
        cJSON *item = cJSON_CreateObject();
        cJSON_AddNumberToObject(item, "at", r->pick[k]);
        cJSON_AddNumberToObject(item, "was", r->targets[k]);
        base_json_add_bytes(item, "text", text.data ? text.data : "", text.size);
        cJSON_AddNumberToObject(item, "now", now);
        cJSON_AddStringToObject(item, "how",
                                r->order ? "predicted" : how_names[how_hidden(e, now, r->targets[k])]);
        cJSON_AddItemToArray(list, item);
        base_buf_free(&text);
    }
    return s;
}

static by_status add_text(cJSON *j, const char *key, const train_preview_row *e, const int32_t *ids, int n)
{
    base_buf text = {0};
    by_status s = put_text(&text, e, ids, 0, n);
    base_json_add_bytes(j, key, text.data ? text.data : "", text.size);
    base_buf_free(&text);
    return s;
}

static by_status print_two_json(const train_preview_row *e)
{
    const data_samples *r = e->rows;
    cJSON *j = cJSON_CreateObject();
    cJSON_AddNumberToObject(j, "row", (double)e->number);
    cJSON_AddStringToObject(j, "objective", data_objective_name(e->kind));
    by_status s = add_text(j, "source", e, r->source, e->source_used);
    if (s == BY_OK)
        s = add_text(j, "target", e, r->targets, e->used);
    cJSON_AddItemToObject(j, "source_ids", numbers(r->source, e->source_used));
    cJSON_AddItemToObject(j, "ids", numbers(r->tokens, e->used));
    cJSON_AddItemToObject(j, "targets", numbers(r->targets, e->used));
    if (s == BY_OK)
        return cli_print_json(j) == CLI_OK ? BY_OK : base_error_status();
    cJSON_Delete(j);
    return s;
}

static by_status print_json(const printer *p, const train_preview_row *e)
{
    const data_samples *r = e->rows;
    if (r->source)
        return print_two_json(e);
    base_buf text = {0};
    cJSON *j = cJSON_CreateObject();
    by_status s = put_marked(&text, p, e, 0, e->used);
    cJSON_AddNumberToObject(j, "row", (double)e->number);
    cJSON_AddStringToObject(j, "objective", data_objective_name(e->kind));
    base_json_add_bytes(j, "text", text.data ? text.data : "", text.size);
    cJSON_AddItemToObject(j, "ids", numbers(r->tokens, e->used));
    if (r->segments)
        cJSON_AddItemToObject(j, data_objective_label(e->kind, 0) || r->order ? "segments" : "languages",
                              numbers(r->segments, e->used));
    if (r->positions)
        cJSON_AddItemToObject(j, "positions", numbers(r->positions, e->used));
    if (r->order) {
        cJSON_AddItemToObject(j, "order", numbers(r->order, e->used));
        cJSON_AddBoolToObject(j, "reversed", r->reversed[0]);
    }
    if (!r->picks)
        cJSON_AddItemToObject(j, "targets", numbers(r->targets, e->used));
    else if (s == BY_OK)
        s = add_hidden(cJSON_AddArrayToObject(j, "hidden"), e);
    if (r->second) {
        cJSON_AddNumberToObject(j, "label", r->second[0]);
        cJSON_AddStringToObject(j, "label_name", data_objective_label(e->kind, r->second[0]));
    }
    base_buf_free(&text);
    if (s != BY_OK) {
        cJSON_Delete(j);
        return s;
    }
    return cli_print_json(j) == CLI_OK ? BY_OK : base_error_status();
}

static by_status show(void *user, const train_preview_row *e)
{
    const printer *p = user;
    return p->json ? print_json(p, e) : print_example(p, e);
}

int cli_show_examples(by_device *d, const by_run_spec *spec, int count, bool json)
{
    printer p = {spec, json, !json && cli_has_colour(STDOUT_FILENO)};
    return train_preview(d, spec, count, show, &p) == BY_OK ? CLI_OK : cli_fail(NULL);
}
