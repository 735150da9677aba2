/* picture_options.h - rows of option tables for verbs that read pictures. They set members of a
 * by_image_training or a by_image_data, or of a cli_pictures, the member `p` of a verb's options, if the
 * value must be parsed. */
#ifndef BY_CLI_PICTURE_OPTIONS_H
#define BY_CLI_PICTURE_OPTIONS_H

#include "banyan/image_tasks.h"
#include "cli/options.h"

typedef struct cli_pictures {
    const char *randaugment;
    double resized_crop, jitter;
    char *teacher, *palette; /* the directories of the models, on the heap */
} cli_pictures;

/* clang-format off */
#define CLI_PICTURE_DATA_ROWS(type, d)                                                                   \
    {CLI_AT(type, d.classes), .name = "classes", .value = "A,B,...|FILE",                                \
     .help = "names of the classes of IDX and CIFAR files, in order (default: a file beside them, else " \
             "numbers)",                                                                                 \
     .group = "Pictures"},                                                                               \
    {CLI_AT(type, d.coarse), .name = "coarse", .help = "CIFAR-100: the 20 superclasses"},                \
    {CLI_AT(type, d.workers), .name = "workers", CLI_RANGE(0, 256), .preset = "0",                       \
     .help = "threads that prefetch and preprocess pictures; 0: one on the CPU, all cores with a GPU"}

#define CLI_PICTURE_TRAIN_ROWS(type, i, p)                                                                    \
    {CLI_AT(type, i.size), .name = "image-size", CLI_RANGE(1, 65536),                                         \
     .help = "image side in pixels (default: that of the model; for a new model that of the data)"},          \
    {CLI_AT(type, i.augment.flip), .name = "flip", CLI_RANGE(0, 1), .preset = "0",                            \
     .help = "probability of a horizontal flip"},                                                             \
    {CLI_AT(type, i.augment.crop_padding), .name = "crop-padding", CLI_RANGE(0, 4096), .preset = "0",         \
     .help = "random crop after padding with N black pixels"},                                                \
    {CLI_AT(type, p.resized_crop), .name = "resized-crop", CLI_RANGE(0, 1), .preset = "0",                    \
     .help = "random resized crop with at least this fraction of the area, such as 0.08"},                    \
    {CLI_AT(type, p.randaugment), .name = "randaugment", .value = "rand-mM-...",                              \
     .help = "random operations in timm's notation, such as rand-m9-mstd0.5-inc1"},                           \
    {CLI_AT(type, p.jitter), .name = "color-jitter", CLI_RANGE(0, 10), .preset = "0",                         \
     .help = "change brightness, contrast and saturation by factors up to 1 - X and 1 + X"},                  \
    {CLI_AT(type, i.augment.hue), .name = "hue", CLI_RANGE(0, 0.5), .preset = "0",                            \
     .help = "rotate the hue by up to this fraction of the circle"},                                          \
    {CLI_AT(type, i.augment.erase), .name = "erase", CLI_RANGE(0, 1), .preset = "0",                          \
     .help = "random erasing: probability that a rectangle is replaced by noise"},                            \
    {CLI_AT(type, i.augment.mixup), .name = "mixup", CLI_RANGE(0, 1000), .preset = "0",                       \
     .help = "mix pairs of pictures and their targets; parameter of the beta distribution, such as 0.8"},     \
    {CLI_AT(type, i.augment.cutmix), .name = "cutmix", CLI_RANGE(0, 1000), .preset = "0",                     \
     .help = "paste a rectangle of one picture into another; with --mixup, each is used half of the time"},   \
    {CLI_AT(type, i.drop_path), .name = "drop-path", CLI_RANGE(0, 0.99),                                      \
     .help = "stochastic depth: probability of dropping the last layer, rising linearly from 0 (default: "    \
             "that of the model)"},                                                                           \
    {CLI_AT(type, i.average), .name = "average-decay", .alias = "ema", CLI_RANGE(0, 0.999999), .preset = "0", \
     .help = "evaluate and save a moving average of the weights with this decay, such as 0.999"},             \
    {CLI_AT(type, i.teacher), .name = "teacher", .value = "MODEL",                                            \
     .help = "deit: a classifier of the same classes whose predictions the distillation token learns"},       \
    {CLI_AT(type, i.soft_teacher), .name = "distillation", .choices = "hard|soft", .preset = "hard",          \
     .help = "target of the distillation token: the --teacher's most likely class, or all its "               \
             "probabilities"}
/* clang-format on */

/* Completes the spec from the options: augmentation, and the directories of the teacher and of the palette.
 * Returns false after reporting an error; the caller then returns CLI_USAGE. Call cli_pictures_free in either
 * case. */
bool cli_pictures_read(cli_pictures *p, by_image_training *out);
void cli_pictures_free(cli_pictures *p);

/* Prints metrics of held-out pictures and how long a run waited for data, on a line of stdout. */
void cli_picture_summary(const by_metric *metrics, int count, double loss, double data_wait);

#endif
