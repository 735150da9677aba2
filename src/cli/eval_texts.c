/* eval_texts.c - see eval_texts.h. */
#include "cli/eval_texts.h"

#include <stdio.h>

#include "cli/show.h"

void cli_text_progress(void *user, const by_text_result *so_far, int64_t total)
{
    cli_progress *bar = user;
    bar->total = total;
    cli_progress_update(bar, so_far->texts, "%.1f a second", (double)so_far->texts / so_far->seconds);
}

void cli_text_json(cJSON *j, const by_text_result *r)
{
    cJSON_AddNumberToObject(j, "texts", (double)r->texts);
    if (r->has_bleu) {
        cli_json_number(j, "bleu", r->bleu.score);
        cJSON_AddStringToObject(j, "bleu_signature", r->bleu_signature);
    }
    if (r->has_chrf)
        cli_json_number(j, "chrf", r->chrf);
    for (int k = 0; r->has_rouge && k < BY_ROUGE_COUNT; k++)
        cli_json_number(j, by_rouge_name((by_rouge_kind)k), r->rouge[k].f1);
    cli_json_number(j, "exact", (double)r->exact / (double)r->texts);
}

void cli_text_print(const by_text_result *r)
{
    printf("%lld texts in %.1f s", (long long)r->texts, r->seconds);
    printf("  exact %.4f\n", (double)r->exact / (double)r->texts);
    const by_bleu_score *b = &r->bleu;
    if (r->has_bleu)
        printf("BLEU %.2f  (%.1f/%.1f/%.1f/%.1f, brevity %.3f)  %s\n", b->score, b->precision[0],
               b->precision[1], b->precision[2], b->precision[3], b->brevity, r->bleu_signature);
    if (r->has_chrf)
        printf("%s %.2f  %s\n", r->chrf_name, r->chrf, r->chrf_signature);
    for (int k = 0; r->has_rouge && k < BY_ROUGE_COUNT; k++)
        printf("%s %.2f  ", by_rouge_name((by_rouge_kind)k), 100 * r->rouge[k].f1);
    if (r->has_rouge)
        printf("\n");
}
