/* processor.h - the settings of a processor: processor_config.c reads and writes them, processor.c applies
 * them. */
#ifndef BY_IMAGE_PROCESSOR_H
#define BY_IMAGE_PROCESSOR_H

#include "base/base.h"
#include "image/palette.h"
#include "image/picture.h"

typedef struct image_size {
    int height, width; /* exact size, or */
    int shortest;      /* the shorter side; 0: exact */
    int longest;       /* the longer side is limited to this; 0: no limit */
} image_size;

typedef struct image_processor_type image_processor_type;

struct by_processor {
    const image_processor_type *type;
    int channels; /* 1 or 3 */
    bool resizes, crops, rescales, normalises;
    image_size size, crop;
    by_filter filter;
    double factor; /* rescale factor */
    bool offset;   /* then subtract 1 */
    double mean[3], std[3];
    int colours;
    float *clusters; /* (colours, 3) in [-1, 1] */
    image_palette *palette;
};

/* Defaults of a processor type for missing settings. */
struct image_processor_type {
    const char *name; /* class name without ImageProcessor, ImageProcessorFast or FeatureExtractor */
    int size, crop;   /* crop 0: no crop */
    bool square;      /* a number as `size` sets both sides; otherwise the shorter one */
    by_filter filter;
    double mean[3], std[3];
};

/* The normalised value of a byte of channel c. */
float image_processor_value(const by_processor *p, int byte, int c);

#endif
