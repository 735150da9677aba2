/* generation_keys.h - the keys of generation_config.json, and what becomes of each. */
#ifndef BY_INFER_GENERATION_KEYS_H
#define BY_INFER_GENERATION_KEYS_H

#include <cjson/cJSON.h>

#include "base/base.h"

typedef enum gen_generation_key {
    GEN_KEY_UNKNOWN, /* the reference library does not know it either, and ignores it */
    GEN_KEY_READ,    /* honoured */
    GEN_KEY_NEUTRAL, /* changes what is generated in a way that is not supported: only its neutral value is
                       taken */
    GEN_KEY_IDLE     /* changes nothing in what is generated here */
} gen_generation_key;

gen_generation_key gen_generation_key_kind(const char *name);

/* BY_ERR_UNSUPPORTED naming the first key whose value is not supported. */
by_status gen_generation_keys_check(const cJSON *json);

#endif
