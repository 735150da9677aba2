/* pixel_data.h - pictures as tokens for pixel models, for a run (dataset.h) or in memory for an
 * evaluation. */
#ifndef BY_TRAIN_PIXEL_DATA_H
#define BY_TRAIN_PIXEL_DATA_H

#include "data/picture_set.h"
#include "train/dataset.h"

/* Opens the pictures of a run. The processor comes from the checkpoint `from` (NULL: none), from the model to
 * start from, or is created for the data with a palette that is read or learned. Tokens are written to
 * out/data/. */
by_status train_pixels_open(train_dataset *d, const by_run_spec *spec, train_folder *folder,
                            const char *from);
/* Sets the shape of a new model for these tokens. */
void train_pixels_shape(const train_dataset *d, by_model_shape *shape);
by_status train_pixels_objectives(train_dataset *d, const by_run_spec *s, const by_model *m, bool held);

/* Tokens of pictures first, first + 1, ... of a part, as (count, N), by several threads. */
by_status train_pixels_encode(const data_picture_part *part, const by_processor *p, int64_t first,
                              int64_t count, int threads, int32_t *out);

#endif
