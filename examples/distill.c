/* distill.c - make a model of half the layers out of a classifier, teach it what the classifier knows, and save it.
 *
 *   distill TEACHER TRAIN.tsv DEV.tsv OUT */
#include <banyan/banyan.h>
#include <stdio.h>

/* One line for each evaluation. */
static void report(void *user, const by_report *r)
{
    (void)user;
    if (r->evaluated && r->n_metrics)
        printf("step %lld of %lld  loss %.4f  %s %.4f\n", (long long)r->step, (long long)r->steps, r->loss,
               r->metrics[0].name, r->metrics[0].value);
}

int main(int argc, char **argv)
{
    if (argc < 5) {
        fprintf(stderr, "usage: distill TEACHER TRAIN.tsv DEV.tsv OUT\n");
        return 2;
    }
    const char *train[] = {argv[2]}, *dev[] = {argv[3]};
    by_distill_run_spec spec = by_distill_defaults();
    spec.teacher = argv[1];
    spec.data = train;
    spec.data_count = 1;
    spec.eval_data = dev;
    spec.eval_count = 1;
    spec.out = argv[4];
    spec.terms.soft = 1;  /* learn the teacher's distribution, */
    spec.terms.task = -1; /* and not the labels themselves */
    spec.terms.temperature = 2;
    spec.report = report;

    by_distill_result result;
    by_device *device = by_device_open("cpu", 0);
    by_status status = device ? by_distill_run(device, &spec, &result) : BY_ERR_DEVICE;
    if (status == BY_OK)
        printf("%d of %d layers, %.2f M of %.2f M parameters: %s %.4f\n", result.layers,
               result.teacher_layers, (double)result.parameters / 1e6,
               (double)result.teacher_parameters / 1e6, result.best.metrics[0].name,
               result.best.metrics[0].value);
    else
        fprintf(stderr, "distill: %s\n", by_error_message());
    by_device_free(device);
    return status == BY_OK ? 0 : 1;
}
