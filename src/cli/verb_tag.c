/* verb_tag.c - banyan tag: names, places and other stretches of a text that a model was taught to find. */
#include <stdio.h>

#include "cli/read.h"
#include "cli/verbs.h"
#include "base/json.h"

typedef struct tag_options {
    cli_read_options read;
    bool tokens;
} tag_options;

static const cli_option options[] = {
    {CLI_AT(tag_options, tokens), .name = "tokens",
     .help = "print the label of every token, not only entities", .group = "Labels"},
    CLI_READ_ROWS(tag_options),
};

typedef struct job {
    tag_options o;
    cli_reading r;
} job;

/* A labelled stretch of the text, a token or an entity. */
static void put_stretch(const job *j, base_buf *out, const char *text, const char *label, by_offset at,
                        float score, bool first)
{
    const int size = (int)(at.end - at.start);
    if (!j->o.read.json) {
        base_buf_printf(out, "  %-12s %6.2f %%  %.*s\n", label, 100 * (double)score, size, text + at.start);
        return;
    }
    base_buf_puts(out, first ? "{\"label\":" : ",{\"label\":");
    base_json_quote(out, label);
    base_buf_printf(out, ",\"start\":%u,\"end\":%u,\"score\":", at.start, at.end);
    base_json_put_number(out, (double)score, 6);
    base_buf_puts(out, ",\"text\":");
    base_json_quote_bytes(out, text + at.start, (size_t)size);
    base_buf_puts(out, "}");
}

static void put_text(const job *j, base_buf *out, const char *text, const by_tags *t, int i)
{
    const bool json = j->o.read.json;
    if (json) {
        base_buf_puts(out, "{\"text\":");
        base_json_quote(out, text);
        base_buf_puts(out, j->o.tokens ? ",\"tokens\":[" : ",\"entities\":[");
    } else {
        base_buf_printf(out, "%s\n", text);
    }
    for (size_t k = t->first_token[i]; j->o.tokens && k < t->first_token[i + 1]; k++)
        put_stretch(j, out, text, by_model_label_name(j->r.model, t->tokens[k].label), t->tokens[k].at,
                    t->tokens[k].score, k == t->first_token[i]);
    for (size_t k = t->first_entity[i]; !j->o.tokens && k < t->first_entity[i + 1]; k++)
        put_stretch(j, out, text, t->entities[k].name, t->entities[k].at, t->entities[k].score,
                    k == t->first_entity[i]);
    base_buf_puts(out, json ? "]}\n" : "");
}

static by_status tag(void *user, const cli_texts *t)
{
    job *j = user;
    by_tags tags;
    base_buf out = {0};
    BY_TRY(by_predictor_tag(j->r.predictor, (const char *const *)t->texts, t->count, &tags));
    for (int i = 0; i < t->count; i++)
        put_text(j, &out, t->texts[i], &tags, i);
    by_tags_free(&tags);
    return cli_put(&out);
}

static int run(int argc, char **argv)
{
    job j = {0};
    cli_args args;
    int code;
    if (!cli_parse(&cli_tag, argc, argv, &j.o, &args, &code) || !cli_one_source(j.o.read.file, &args, &code))
        return code;
    cli_interrupt_install();
    cli_texts texts = {.arguments = args.items + 1, .n_arguments = args.count - 1, .path = j.o.read.file};
    by_status s = cli_read_open(&j.r, args.items[0], BY_TASK_TAG, &j.o.read);
    code = cli_texts_run(&texts, s, tag, &j);
    cli_read_close(&j.r);
    cli_args_free(&args);
    return code;
}

const cli_verb cli_tag = {
    .name = "tag",
    .summary = "find names and other entities in texts",
    .args = "MODEL [TEXT...]",
    .description =
        "Labels the words of each TEXT or, without TEXT, of each line of the input. Consecutive B- and I- "
        "labels form one entity. A word takes the label of its first token. Positions are in bytes.",
    .examples = "banyan tag runs/conll \"Angela Merkel was born in Hamburg.\"\n"
                "banyan tag runs/conll --json < texts.txt > entities.jsonl\n",
    .options = options,
    .option_count = BY_COUNT(options),
    .run = run,
};
