/* augment_random.h - random numbers of augmentation. */
#ifndef BY_IMAGE_AUGMENT_RANDOM_H
#define BY_IMAGE_AUGMENT_RANDOM_H

#include "banyan/augment.h"
#include "base/base.h"

/* Random numbers of one example and one stage: what a stage draws does not depend on whether others are there. */
base_rng image_random(const by_augment_key *key, uint64_t stage);
double image_random_between(base_rng *r, double low, double high);

#endif
