/* eval_pictures.c - see eval_pictures.h. */
#include "cli/eval_pictures.h"

#include <math.h>
#include <stdio.h>

#include "cli/common.h"
#include "cli/format.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "cli/show.h"
#include "report/page.h"

static void on_progress(void *user, int64_t done, int64_t total)
{
    cli_progress *bar = user;
    bar->total = total;
    cli_progress_update(bar, done, "pictures");
}

static int64_t pictures_of(const by_image_result *r, int i)
{
    int64_t n = 0;
    for (int j = 0; j < r->classes; j++)
        n += r->confusion[(int64_t)i * r->classes + j];
    return n;
}

static void print_share(double x)
{
    if (isfinite(x))
        printf(" %9.4f", x);
    else
        printf(" %9s", "-");
}

static void print_text(const cli_picture_evaluation *e, const by_image_result *r)
{
    if (isfinite(r->exact))
        printf("exact %.4f   token accuracy %.4f   ", r->exact, r->token_accuracy);
    else
        printf("accuracy %.4f   ", r->top1);
    if (isfinite(r->top5))
        printf("top-5 accuracy %.4f   ", r->top5);
    printf("loss %.4f\n%s in %.1f s, %.0f per second; waited for data %.0f %% of the time\n", r->loss,
           cli_counted(r->pictures, "picture").s, r->seconds, (double)r->pictures / r->seconds,
           100 * r->wait);
    if (r->left_out)
        printf("not evaluated: %lld of %lld, which do not fill a batch (--batch-size)\n",
               (long long)r->left_out, (long long)(r->pictures + r->left_out));
    if (!e->per_class || !r->classes)
        return;
    printf("%-24s %8s %9s %9s %9s\n", "class", "pictures", "precision", "recall", "F1");
    for (int i = 0; i < r->classes; i++) {
        double precision, recall, f1;
        by_image_result_class(r, i, &precision, &recall, &f1);
        printf("%-24s %8lld", by_model_label_name(e->model, i), (long long)pictures_of(r, i));
        print_share(precision);
        print_share(recall);
        print_share(f1);
        printf("\n");
    }
}

static int print_json(const cli_picture_evaluation *e, const by_image_result *r)
{
    cJSON *j = cJSON_CreateObject();
    cJSON_AddStringToObject(j, "model", e->dir);
    if (isfinite(r->exact)) {
        cli_json_number(j, "exact", r->exact);
        cli_json_number(j, "token_accuracy", r->token_accuracy);
    } else {
        cli_json_number(j, "accuracy", r->top1);
    }
    if (isfinite(r->top5))
        cli_json_number(j, "top5_accuracy", r->top5);
    cli_json_number(j, "loss", r->loss);
    cJSON_AddNumberToObject(j, "pictures", (double)r->pictures);
    if (r->left_out)
        cJSON_AddNumberToObject(j, "left_out", (double)r->left_out);
    cli_json_number(j, "seconds", r->seconds);
    cli_json_number(j, "data_wait", r->wait);
    if (!r->classes)
        return cli_print_json(j);
    cJSON *classes = cJSON_AddArrayToObject(j, "classes"), *matrix = cJSON_AddArrayToObject(j, "confusion");
    for (int i = 0; i < r->classes; i++) {
        double precision, recall, f1;
        cJSON *one = cJSON_CreateObject(), *row = cJSON_CreateArray();
        by_image_result_class(r, i, &precision, &recall, &f1);
        cJSON_AddStringToObject(one, "name", by_model_label_name(e->model, i));
        cJSON_AddNumberToObject(one, "pictures", (double)pictures_of(r, i));
        cli_json_number(one, "precision", precision);
        cli_json_number(one, "recall", recall);
        cli_json_number(one, "f1", f1);
        cJSON_AddItemToArray(classes, one);
        for (int k = 0; k < r->classes; k++)
            cJSON_AddItemToArray(row, cJSON_CreateNumber((double)r->confusion[(int64_t)i * r->classes + k]));
        cJSON_AddItemToArray(matrix, row);
    }
    return cli_print_json(j);
}

static by_status draw(const cli_picture_evaluation *e, const by_image_result *r)
{
    char title[128];
    const char **names = base_alloc_zero((size_t)r->classes, sizeof *names);
    for (int i = 0; names && i < r->classes; i++)
        names[i] = by_model_label_name(e->model, i);
    base_format(title, sizeof title, "%lld pictures, accuracy %.2f %%", (long long)r->pictures,
                100 * r->top1);
    by_status s = names ? by_image_result_draw(r, names, title, e->confusion) : BY_ERR_MEMORY;
    base_free(names);
    return s;
}

int cli_evaluate_pictures(cli_picture_evaluation *e)
{
    by_image_result r;
    report_picture kind;
    if (e->confusion && report_picture_of(e->confusion, &kind) != BY_OK)
        return cli_fail(NULL);
    cli_progress bar = {.label = "eval", .quiet = e->quiet};
    e->spec.cancelled = cli_poll;
    e->spec.progress = on_progress;
    e->spec.user = &bar;
    cli_progress_start(&bar);
    by_status s =
        by_image_evaluate(by_model_device(e->model), e->dir, e->dtype, e->data, e->count, &e->spec, &r);
    cli_progress_end(&bar);
    if (s == BY_OK && e->confusion)
        s = draw(e, &r);
    int code = CLI_OK;
    if (s != BY_OK)
        code = cli_fail(NULL);
    else if (e->json)
        code = print_json(e, &r);
    else
        print_text(e, &r);
    by_image_result_free(&r);
    return code;
}

int cli_evaluate_pixels(cli_picture_evaluation *e)
{
    by_pixel_result r;
    cli_progress bar = {.label = "eval", .quiet = e->quiet};
    by_processor *p = by_processor_open(e->dir);
    e->spec.cancelled = cli_poll;
    e->spec.progress = on_progress;
    e->spec.user = &bar;
    cli_progress_start(&bar);
    by_status s = p ? by_pixel_evaluate(e->model, p, e->data, e->count, &e->spec, &r) : base_error_status();
    cli_progress_end(&bar);
    by_processor_free(p);
    if (s != BY_OK)
        return cli_fail(NULL);
    if (!e->json) {
        printf("nats per %s %.4f   bits%s %.4f\n", r.palette ? "colour" : "value", r.nats,
               r.palette ? "" : " per dimension", r.bits);
        printf("%s of %d tokens in %.1f s, %.1f per second\n", cli_counted(r.pictures, "picture").s, r.tokens,
               r.seconds, (double)r.pictures / r.seconds);
        return CLI_OK;
    }
    cJSON *j = cJSON_CreateObject();
    cJSON_AddStringToObject(j, "model", e->dir);
    cli_json_number(j, "loss", r.nats);
    cli_json_number(j, r.palette ? "bits_per_colour" : "bits_per_dim", r.bits);
    cJSON_AddNumberToObject(j, "pictures", (double)r.pictures);
    cJSON_AddNumberToObject(j, "tokens", r.tokens);
    cli_json_number(j, "seconds", r.seconds);
    return cli_print_json(j);
}
