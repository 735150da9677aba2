/* generation_keys.h - the keys of generation_config.json and how each is handled. */
#ifndef BY_INFER_GENERATION_KEYS_H
#define BY_INFER_GENERATION_KEYS_H

#include <cjson/cJSON.h>

#include "base/base.h"

typedef enum gen_generation_key {
    GEN_KEY_UNKNOWN, /* unknown to the reference library too, which ignores it */
    GEN_KEY_READ,    /* honoured */
    /* changes the generated text in an unsupported way: only the neutral value is accepted */
    GEN_KEY_NEUTRAL,
    GEN_KEY_IDLE /* does not change the generated text */
} gen_generation_key;

gen_generation_key gen_generation_key_kind(const char *name);

/* BY_ERR_UNSUPPORTED naming the first key whose value is not supported. */
by_status gen_generation_keys_check(const cJSON *json);

#endif
