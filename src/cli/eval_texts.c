/* eval_texts.c - `banyan eval` of encoder-decoders: write texts, compare them with references (see
 * eval_texts.h). */
#include "cli/eval_texts.h"

#include "banyan/rewrite.h"
#include "base/file.h"
#include "base/json.h"
#include "cli/report.h"
#include "cli/progress.h"
#include "cli/show.h"
#include "data/parallel_text.h"

enum { TOGETHER = 512 }; /* texts written between two looks at the clock */

static bool wants(const cli_texts_options *o, const char *name)
{
    const size_t n = strlen(name);
    for (const char *at = o->metric; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strncmp(at, name, n) == 0 && (at[n] == '\0' || at[n] == ','))
            return true;
    return false;
}

static by_status open_figures(cli_figures *f, const cli_texts_options *o)
{
    static const char *const known[] = {"bleu", "chrf", "rouge", "exact"};
    int count = 0;
    for (int i = 0; i < BY_COUNT(known); i++)
        count += wants(o, known[i]);
    int asked = 1;
    for (const char *c = o->metric; *c; c++)
        asked += *c == ',';
    if (count != asked)
        return base_fail(BY_ERR_ARGUMENT, "--metric %s: there are bleu, chrf, rouge and exact", o->metric);
    f->bleu = wants(o, "bleu") ? by_bleu_new(NULL) : NULL;
    f->chrf = wants(o, "chrf") ? by_chrf_new(NULL) : NULL;
    f->rouge = wants(o, "rouge") ? by_rouge_new(NULL) : NULL;
    return (wants(o, "bleu") && !f->bleu) || (wants(o, "chrf") && !f->chrf) ||
                   (wants(o, "rouge") && !f->rouge)
               ? BY_ERR_MEMORY
               : BY_OK;
}

void cli_figures_close(cli_figures *f)
{
    by_bleu_free(f->bleu);
    by_chrf_free(f->chrf);
    by_rouge_free(f->rouge);
}

static by_status count_text(cli_figures *f, const char *text, const char *reference)
{
    if (f->bleu)
        BY_TRY(by_bleu_add(f->bleu, text, &reference, 1));
    if (f->chrf)
        BY_TRY(by_chrf_add(f->chrf, text, &reference, 1));
    if (f->rouge)
        BY_TRY(by_rouge_add(f->rouge, text, &reference, 1));
    f->texts++;
    f->exact += strcmp(text, reference) == 0;
    return BY_OK;
}

/* ---- writing --------------------------------------------------------------------------------- */

static by_status read_pairs(const cli_list *files, const cli_texts_options *o, data_pairs *out)
{
    const bool table = data_parallel_is_table(files->items[0]);
    if (files->count != (table ? 1 : 2))
        return base_fail(BY_ERR_ARGUMENT,
                         "give a file of sources and one of references, or one table with both "
                         "(.tsv, .csv, .jsonl)");
    const data_parallel_item item = {
        .source = files->items[0], .target = table ? NULL : files->items[1], .prefix = ""};
    const data_parallel_spec spec = {
        .items = &item, .count = 1, .text = o->source_column, .label = o->target_column, .words = o->words};
    BY_TRY(data_parallel_read(&spec, out));
    return out->count ? BY_OK : base_fail(BY_ERR_FORMAT, "%s: there are no texts", files->items[0]);
}

static by_status put_prediction(base_writer *out, const char *source, const char *target,
                                const by_rewriting *r)
{
    base_buf line = {0};
    base_buf_puts(&line, "{\"source\":");
    base_json_quote(&line, source);
    base_buf_puts(&line, ",\"reference\":");
    base_json_quote(&line, target);
    base_buf_puts(&line, ",\"text\":");
    base_json_quote_bytes(&line, r->text, r->size);
    base_buf_puts(&line, ",\"score\":");
    base_json_put_number(&line, (double)r->score, 9);
    base_buf_puts(&line, "}\n");
    by_status s = line.failed ? base_fail(BY_ERR_MEMORY, "out of memory for a text") : BY_OK;
    if (s == BY_OK)
        s = base_writer_put(out, line.data, line.size);
    base_buf_free(&line);
    return s;
}

static by_status write_some(by_rewriter *r, const data_pairs *p, int first, int count, cli_figures *f,
                            base_writer *out)
{
    by_rewriting *list;
    double begin = base_seconds();
    BY_TRY(by_rewriter_run(r, (const char *const *)p->sources + first, count, &list));
    f->seconds += base_seconds() - begin;
    by_status s = BY_OK;
    for (int i = 0; i < count && s == BY_OK; i++) {
        s = count_text(f, list[i].text, p->targets[first + i]);
        if (s == BY_OK && out)
            s = put_prediction(out, p->sources[first + i], p->targets[first + i], &list[i]);
    }
    by_rewritings_free(list, count);
    return s;
}

static by_status write_all(by_rewriter *r, const data_pairs *p, const cli_texts_options *o, cli_figures *f)
{
    base_writer file = {0};
    by_status s = o->predictions ? base_writer_open(&file, o->predictions) : BY_OK;
    const int count = o->limit ? BY_MIN(o->limit, p->count) : p->count;
    cli_progress bar = {.label = "eval", .total = count, .quiet = o->quiet};
    cli_progress_start(&bar);
    for (int i = 0; i < count && s == BY_OK; i += TOGETHER) {
        s = cli_interrupted()
                ? base_fail(BY_ERR_CANCELLED, "interrupted")
                : write_some(r, p, i, BY_MIN(TOGETHER, count - i), f, o->predictions ? &file : NULL);
        cli_progress_update(&bar, f->texts, "%.1f a second", (double)f->texts / f->seconds);
    }
    cli_progress_end(&bar);
    if (o->predictions && s == BY_OK)
        s = base_writer_finish(&file);
    else if (o->predictions)
        base_writer_abort(&file);
    return s;
}

/* ---- telling --------------------------------------------------------------------------------- */

void cli_figures_json(cli_figures *f, cJSON *j)
{
    cJSON_AddNumberToObject(j, "texts", (double)f->texts);
    if (f->bleu) {
        by_bleu_score b;
        by_bleu_read(f->bleu, &b);
        cli_json_number(j, "bleu", b.score);
        cJSON_AddStringToObject(j, "bleu_signature", by_bleu_signature(f->bleu));
    }
    if (f->chrf)
        cli_json_number(j, "chrf", by_chrf_read(f->chrf));
    by_rouge_score rouge[BY_ROUGE_COUNT];
    if (f->rouge)
        by_rouge_read(f->rouge, rouge);
    for (int k = 0; f->rouge && k < BY_ROUGE_COUNT; k++)
        cli_json_number(j, by_rouge_name((by_rouge_kind)k), rouge[k].f1);
    cli_json_number(j, "exact", (double)f->exact / (double)f->texts);
}

static int print_json(cli_figures *f, const char *dir)
{
    cJSON *j = cJSON_CreateObject();
    cJSON_AddStringToObject(j, "model", dir);
    cli_figures_json(f, j);
    cli_json_number(j, "seconds", f->seconds);
    return cli_print_json(j);
}

void cli_figures_print(cli_figures *f)
{
    printf("%lld texts in %.1f s", (long long)f->texts, f->seconds);
    printf("  exact %.4f\n", (double)f->exact / (double)f->texts);
    if (f->bleu) {
        by_bleu_score b;
        by_bleu_read(f->bleu, &b);
        printf("BLEU %.2f  (%.1f/%.1f/%.1f/%.1f, brevity %.3f)  %s\n", b.score, b.precision[0],
               b.precision[1], b.precision[2], b.precision[3], b.brevity, by_bleu_signature(f->bleu));
    }
    if (f->chrf)
        printf("%s %.2f  %s\n", by_chrf_name(f->chrf), by_chrf_read(f->chrf), by_chrf_signature(f->chrf));
    by_rouge_score rouge[BY_ROUGE_COUNT];
    if (f->rouge)
        by_rouge_read(f->rouge, rouge);
    for (int k = 0; f->rouge && k < BY_ROUGE_COUNT; k++)
        printf("%s %.2f  ", by_rouge_name((by_rouge_kind)k), 100 * rouge[k].f1);
    if (f->rouge)
        printf("\n");
}

static by_rewriter *open_rewriter(by_model *m, const by_tokenizer *t, const cli_texts_options *o,
                                  const by_rewrite_defaults *d)
{
    by_rewriter_spec spec = {
        .generate = d->generate, .batch = o->batch, .truncate = true, .max_source = d->max_source};
    spec.generate.cancelled = cli_poll;
    spec.generate.beam.returned = spec.generate.beam.groups = 1; /* as translate does */
    spec.generate.beam.diversity = 0;
    spec.generate.max_new_tokens = BY_MIN(by_rewrite_defaults_most(d, 1), by_model_context(m));
    spec.prefix = o->prefix ? o->prefix : d->prefix;
    spec.generate.beam.width = o->beams > 0                 ? o->beams
                               : d->generate.beam.width > 0 ? d->generate.beam.width
                                                            : 5;
    spec.generate.sampling.min_new_tokens = by_rewrite_defaults_least(d, 1);
    spec.generate.sampling.temperature = 0; /* metrics are those of a search */
    return by_rewriter_new(m, t, &spec);
}

by_status cli_figures_make(by_model *m, const by_tokenizer *t, const char *dir, const cli_list *files,
                           const cli_texts_options *o, cli_figures *out)
{
    data_pairs pairs = {0};
    by_rewrite_defaults defaults = {0};
    by_rewriter *r = NULL;
    *out = (cli_figures){0};
    by_status s = open_figures(out, o);
    if (s == BY_OK)
        s = read_pairs(files, o, &pairs);
    if (s == BY_OK)
        s = o->plain ? by_rewrite_defaults_none(m, dir, &defaults)
                     : by_rewrite_defaults_load(m, dir, o->task, &defaults);
    if (s == BY_OK && !(r = open_rewriter(m, t, o, &defaults)))
        s = base_error_status();
    if (s == BY_OK)
        s = write_all(r, &pairs, o, out);
    by_rewriter_free(r);
    by_rewrite_defaults_free(&defaults);
    data_pairs_free(&pairs);
    return s;
}

int cli_eval_texts(by_model *m, const by_tokenizer *t, const char *dir, const cli_list *files,
                   const cli_texts_options *o)
{
    cli_figures f;
    int code = CLI_OK;
    if (cli_figures_make(m, t, dir, files, o, &f) != BY_OK)
        code = cli_fail(NULL);
    else if (o->json)
        code = print_json(&f, dir);
    else
        cli_figures_print(&f);
    cli_figures_close(&f);
    return code;
}
