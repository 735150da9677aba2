/* align.c - instruction tuning, then preferences: the two runs of `banyan align --method sft` and `--method dpo`, from C.
 *
 *   align MODEL ANSWERS.jsonl PAIRS.jsonl OUT
 *
 * ANSWERS has objects with "prompt" and "completion", PAIRS objects with "prompt", "chosen" and "rejected". OUT/sft and OUT/dpo become
 * model directories. The same command continues a run that was stopped. */
#include <banyan/banyan.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(void)
{
    fprintf(stderr, "align: %s\n", by_error_message());
    return 1;
}

/* The first measure of a step of preferences is the share of pairs in the right order. */
static void report(void *user, const by_report *r)
{
    if (r->warning || r->note) {
        fprintf(stderr, "%s\n", r->warning ? r->warning : r->note);
        return;
    }
    printf("%s step %lld of %lld  loss %.4f", (const char *)user, (long long)r->step, (long long)r->steps,
           r->loss);
    for (int i = 0; i < r->n_measures && i < 2; i++)
        printf("  %s %.3f", r->measures[i].name, r->measures[i].value);
    printf("\n");
}

static char *join(const char *dir, const char *name)
{
    char *path = malloc(strlen(dir) + strlen(name) + 2);
    if (path)
        sprintf(path, "%s/%s", dir, name);
    return path;
}

/* One run with an adapter of rank 8 on all linear layers; a fifth of the examples is held out. */
static by_status run(by_device *device, by_align_method method, const char *model, const char *data,
                     const char *out)
{
    const by_adapter_spec adapter = {.rank = 8, .targets = "all-linear"};
    char name[16];
    by_align_result result;
    by_align_spec spec = by_align_defaults(method);
    snprintf(name, sizeof name, "%s", by_align_name(method));
    spec.model = model;
    spec.data = data;
    spec.out = out;
    spec.eval_fraction = 0.2;
    spec.schedule.rate = 2e-3;
    spec.adapter =
        method == BY_ALIGN_SFT ? &adapter : NULL; /* the second run trains the adapter of the first */
    spec.report = report;
    spec.user = name;
    by_status s = by_align_run(device, &spec, &result);
    if (s == BY_OK) {
        printf("%s: held-out loss %.4f", out, result.eval_loss);
        for (int i = 0; i < result.n_metrics; i++)
            printf("  %s %.4f", result.metrics[i].name, result.metrics[i].value);
        printf("\n");
    }
    return s;
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        fprintf(stderr, "usage: align MODEL ANSWERS.jsonl PAIRS.jsonl OUT\n");
        return 2;
    }
    char *sft = join(argv[4], "sft"), *dpo = join(argv[4], "dpo");
    by_device *device = by_device_open("cpu", 0);
    by_status s = device && sft && dpo ? BY_OK : BY_ERR_MEMORY;
    if (s == BY_OK)
        s = run(device, BY_ALIGN_SFT, argv[1], argv[2], sft);
    if (s == BY_OK)
        s = run(device, BY_ALIGN_DPO, sft, argv[3], dpo);
    by_device_free(device);
    free(sft);
    free(dpo);
    return s == BY_OK ? 0 : fail();
}
