/* text_evaluate.c - texts that an encoder-decoder writes, compared with their references (banyan/evaluate.h). */
#include "banyan/evaluate.h"
#include "banyan/rewrite.h"
#include "base/file.h"
#include "base/json.h"
#include "data/parallel_text.h"

enum { TOGETHER = 512 }; /* texts written between two calls of progress */

typedef struct evaluation {
    const by_text_spec *spec;
    data_pairs pairs;
    by_rewriter *rewriter;
    by_bleu *bleu; /* NULL: not asked for; so are the others */
    by_chrf *chrf;
    by_rouge *rouge;
    base_writer file; /* of predictions */
    by_text_result *result;
} evaluation;

/* ---- metrics --------------------------------------------------------------------------------- */

static bool wants(const char *metrics, const char *name)
{
    const size_t n = strlen(name);
    for (const char *at = metrics; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strncmp(at, name, n) == 0 && (at[n] == '\0' || at[n] == ','))
            return true;
    return false;
}

static by_status open_metrics(evaluation *e)
{
    static const char *const known[] = {"bleu", "chrf", "rouge", "exact"};
    const char *metrics = e->spec->metrics ? e->spec->metrics : "bleu,chrf";
    int count = 0, asked = 1;
    for (int i = 0; i < BY_COUNT(known); i++)
        count += wants(metrics, known[i]);
    for (const char *c = metrics; *c; c++)
        asked += *c == ',';
    if (count != asked)
        return base_fail(BY_ERR_ARGUMENT,
                         "the metrics are bleu, chrf, rouge and exact, with commas; not \"%s\"", metrics);
    e->result->has_bleu = wants(metrics, "bleu");
    e->result->has_chrf = wants(metrics, "chrf");
    e->result->has_rouge = wants(metrics, "rouge");
    if ((e->result->has_bleu && !(e->bleu = by_bleu_new(NULL))) ||
        (e->result->has_chrf && !(e->chrf = by_chrf_new(NULL))) ||
        (e->result->has_rouge && !(e->rouge = by_rouge_new(NULL))))
        return BY_ERR_MEMORY;
    return BY_OK;
}

static by_status count_text(evaluation *e, const char *text, const char *reference)
{
    if (e->bleu)
        BY_TRY(by_bleu_add(e->bleu, text, &reference, 1));
    if (e->chrf)
        BY_TRY(by_chrf_add(e->chrf, text, &reference, 1));
    if (e->rouge)
        BY_TRY(by_rouge_add(e->rouge, text, &reference, 1));
    e->result->texts++;
    e->result->exact += strcmp(text, reference) == 0;
    return BY_OK;
}

static void read_metrics(evaluation *e)
{
    by_text_result *r = e->result;
    if (e->bleu) {
        by_bleu_read(e->bleu, &r->bleu);
        base_format(r->bleu_signature, sizeof r->bleu_signature, "%s", by_bleu_signature(e->bleu));
    }
    if (e->chrf) {
        r->chrf = by_chrf_read(e->chrf);
        base_format(r->chrf_name, sizeof r->chrf_name, "%s", by_chrf_name(e->chrf));
        base_format(r->chrf_signature, sizeof r->chrf_signature, "%s", by_chrf_signature(e->chrf));
    }
    if (e->rouge)
        by_rouge_read(e->rouge, r->rouge);
}

/* ---- writing --------------------------------------------------------------------------------- */

static by_status read_pairs(evaluation *e, const char *const *files, int count)
{
    const bool table = count > 0 && data_parallel_is_table(files[0]);
    if (count != (table ? 1 : 2))
        return base_fail(BY_ERR_ARGUMENT,
                         "give a file of sources and one of references, or one table with both "
                         "(.tsv, .csv, .jsonl)");
    const data_parallel_item item = {.source = files[0], .target = table ? NULL : files[1], .prefix = ""};
    const data_parallel_spec spec = {.items = &item,
                                     .count = 1,
                                     .text = e->spec->source,
                                     .label = e->spec->target,
                                     .words = e->spec->words};
    BY_TRY(data_parallel_read(&spec, &e->pairs));
    return e->pairs.count ? BY_OK : base_fail(BY_ERR_FORMAT, "%s: there are no texts", files[0]);
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

static by_status write_some(evaluation *e, int first, int count)
{
    const data_pairs *p = &e->pairs;
    by_rewriting *list;
    const double begin = base_seconds();
    BY_TRY(by_rewriter_run(e->rewriter, (const char *const *)p->sources + first, count, &list));
    e->result->seconds += base_seconds() - begin;
    by_status s = BY_OK;
    for (int i = 0; i < count && s == BY_OK; i++) {
        s = count_text(e, list[i].text, p->targets[first + i]);
        if (s == BY_OK && e->spec->predictions)
            s = put_prediction(&e->file, p->sources[first + i], p->targets[first + i], &list[i]);
    }
    by_rewritings_free(list, count);
    return s;
}

static by_status write_all(evaluation *e)
{
    const by_text_spec *o = e->spec;
    const int count = o->limit > 0 ? BY_MIN(o->limit, e->pairs.count) : e->pairs.count;
    by_status s = o->predictions ? base_writer_open(&e->file, o->predictions) : BY_OK;
    if (s != BY_OK)
        return s;
    for (int i = 0; i < count && s == BY_OK; i += TOGETHER) {
        s = o->cancelled && o->cancelled(o->user) ? base_fail(BY_ERR_CANCELLED, "interrupted")
                                                  : write_some(e, i, BY_MIN(TOGETHER, count - i));
        if (s == BY_OK && o->progress)
            o->progress(o->user, e->result, count);
    }
    if (o->predictions && s == BY_OK)
        s = base_writer_finish(&e->file);
    else if (o->predictions)
        base_writer_abort(&e->file);
    return s;
}

/* Metrics are those of a search with one text for each source. */
static by_status open_rewriter(evaluation *e, by_model *m, const by_tokenizer *t,
                               const by_rewrite_defaults *d)
{
    const by_text_spec *o = e->spec;
    const int beams = o->beams > 0 ? o->beams : d->generate.beam.width;
    by_rewriter_spec spec = {.generate = d->generate,
                             .batch = o->batch,
                             .truncate = true,
                             .max_source = d->max_source,
                             .prefix = o->prefix ? o->prefix : d->prefix};
    spec.generate.cancelled = o->cancelled;
    spec.generate.user = o->user;
    spec.generate.beam.width = beams > 0 ? beams : 5;
    spec.generate.beam.returned = spec.generate.beam.groups = 1;
    spec.generate.beam.diversity = 0;
    spec.generate.max_new_tokens = BY_MIN(by_rewrite_defaults_most(d, 1), by_model_context(m));
    spec.generate.sampling.min_new_tokens = by_rewrite_defaults_least(d, 1);
    spec.generate.sampling.temperature = 0;
    spec.generate.ngram = o->ngram;
    e->rewriter = by_rewriter_new(m, t, &spec);
    return e->rewriter ? BY_OK : base_error_status();
}

by_status by_text_evaluate(by_model *m, const by_tokenizer *t, const char *dir, const char *const *files,
                           int count, const by_text_spec *spec, by_text_result *out)
{
    if (!m || !t || !dir || !files || !spec || !out)
        return base_fail_missing(m ? "tokenizer, files, by_text_spec or by_text_result" : "model");
    evaluation e = {.spec = spec, .result = out};
    by_rewrite_defaults defaults = {0};
    *out = (by_text_result){0};
    by_status s = open_metrics(&e);
    if (s == BY_OK)
        s = read_pairs(&e, files, count);
    if (s == BY_OK)
        s = spec->plain ? by_rewrite_defaults_none(m, dir, &defaults)
                        : by_rewrite_defaults_load(m, dir, NULL, &defaults);
    if (s == BY_OK)
        s = open_rewriter(&e, m, t, &defaults);
    if (s == BY_OK)
        s = write_all(&e);
    if (s == BY_OK)
        read_metrics(&e);
    by_rewriter_free(e.rewriter);
    by_rewrite_defaults_free(&defaults);
    data_pairs_free(&e.pairs);
    by_bleu_free(e.bleu);
    by_chrf_free(e.chrf);
    by_rouge_free(e.rouge);
    return s;
}
