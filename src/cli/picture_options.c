/* picture_options.c - see picture_options.h. */
#include "cli/picture_options.h"

#include <math.h>
#include <stdio.h>

#include "base/base.h"
#include "cli/common.h"
#include "cli/report.h"

bool cli_pictures_read(cli_pictures *p, by_image_training *out)
{
    by_augment *a = &out->augment;
    if (p->resized_crop > 0) {
        a->crop_scale[0] = p->resized_crop;
        a->crop_scale[1] = 1;
    }
    a->brightness = a->contrast = a->saturation = p->jitter;
    if (p->randaugment && by_augment_parse(p->randaugment, a) != BY_OK) {
        cli_usage_fail("%s", by_error_message());
        return false;
    }
    if ((out->teacher && !(out->teacher = p->teacher = cli_model_dir(out->teacher))) ||
        (out->palette && !(out->palette = p->palette = cli_model_dir(out->palette)))) {
        cli_usage_fail("%s", by_error_message());
        return false;
    }
    return true;
}

void cli_pictures_free(cli_pictures *p)
{
    base_free(p->teacher);
    base_free(p->palette);
    p->teacher = p->palette = NULL;
}

void cli_picture_summary(const by_metric *metrics, int count, double loss, double data_wait)
{
    for (int i = 0; i < count; i++)
        printf("%s %.4f   ", metrics[i].name, metrics[i].value);
    if (isfinite(loss))
        printf("held-out loss %.4f   ", loss);
    if (isfinite(data_wait))
        printf("waited for data %.1f %% of the time", 100 * data_wait);
    printf("\n");
}
