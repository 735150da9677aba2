/* generation_keys.h - the keys of generation_config.json, and what becomes of each. */
#ifndef BY_INFER_GENERATION_KEYS_H
#define BY_INFER_GENERATION_KEYS_H

#include <cjson/cJSON.h>

#include "base/base.h"

typedef enum by_generation_key {
    BY_KEY_UNKNOWN, /* the reference library does not know it either, and ignores it */
    BY_KEY_READ,    /* honoured */
    BY_KEY_NEUTRAL, /* changes what is generated in a way that is not supported: only its neutral value is
                       taken */
    BY_KEY_IDLE     /* changes nothing in what is generated here */
} by_generation_key;

by_generation_key by_generation_key_kind(const char *name);

/* BY_ERR_UNSUPPORTED naming the first key whose value is not supported. */
by_status by_generation_keys_check(const cJSON *json);

#endif
