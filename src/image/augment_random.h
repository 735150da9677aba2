/* augment_random.h - random numbers for augmentation. */
#ifndef BY_IMAGE_AUGMENT_RANDOM_H
#define BY_IMAGE_AUGMENT_RANDOM_H

#include "banyan/augment.h"
#include "base/base.h"

/* Random numbers for one example and one stage. The numbers of a stage do not depend on which other stages
 * are active. */
base_rng image_random(const by_augment_key *key, uint64_t stage);
double image_random_between(base_rng *r, double low, double high);

#endif
