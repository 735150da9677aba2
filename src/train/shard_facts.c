/* shard_facts.c - see shard_facts.h. */
#include "train/shard_facts.h"

#include <stdlib.h>

#include "base/file.h"
#include "base/json.h"

by_status train_facts_write(const char *path, const train_facts *f)
{
    base_buf text = {0};
    base_buf_printf(&text,
                    "{\n  \"source\": \"%016llx\",\n  \"checksum\": \"%016llx\",\n  \"bytes\": %lld,\n  "
                    "\"tokens\": %lld\n}\n",
                    (unsigned long long)f->source, (unsigned long long)f->sum, (long long)f->bytes,
                    (long long)f->tokens);
    by_status s = text.failed ? BY_ERR_MEMORY : base_file_write(path, text.data, text.size);
    base_buf_free(&text);
    return s;
}

bool train_facts_read(const char *path, train_facts *f)
{
    cJSON *json = base_file_exists(path) ? base_json_load(path) : NULL;
    const char *source = NULL, *sum = NULL;
    bool ok = json && base_json_string(json, "checksum", NULL, &sum) == BY_OK &&
              base_json_string(json, "source", NULL, &source) == BY_OK && source &&
              base_json_int(json, "bytes", 0, 0, INT64_C(1) << 52, &f->bytes) == BY_OK &&
              base_json_int(json, "tokens", 0, 0, INT64_C(1) << 52, &f->tokens) == BY_OK;
    if (ok)
        f->source = strtoull(source, NULL, 16);
    f->sum = ok && sum ? strtoull(sum, NULL, 16) : 0;
    cJSON_Delete(json);
    base_error_clear();
    return ok;
}

uint64_t train_facts_sum(const char *bin, const char *index)
{
    const char *const paths[] = {bin, index};
    uint64_t sum = 0;
    for (int i = 0; i < BY_COUNT(paths); i++) {
        base_map map;
        if (!paths[i])
            continue;
        if (base_map_open(&map, paths[i]) != BY_OK) {
            base_error_clear();
            return 0;
        }
        sum = sum * 31 + base_checksum(map.data, map.size);
        base_map_close(&map);
    }
    return sum ? sum : 1;
}
