/* fuzz_json.c - libFuzzer target: what parses must print, and its print must parse and print as itself. */
#include <stdint.h>
#include <stdlib.h>

#include "base/base.h"
#include "base/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static base_buf print(const cJSON *v, bool pretty)
{
    base_buf b = {0};
    if (base_json_print(&b, v, pretty) != BY_OK)
        abort();
    return b;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    base_error_clear();
    cJSON *v = base_json_parse((const char *)data, size, "input");
    if (!v) {
        if (base_error_status() != BY_ERR_FORMAT || !*by_error_message())
            abort();
        return 0;
    }
    int64_t i;
    double d;
    bool b;
    const char *s;
    base_json_int(v, "n", 0, -10, 10, &i);
    base_json_double(v, "n", 0, 0, 1, &d);
    base_json_bool(v, "n", false, &b);
    base_json_string(v, "n", "", &s);

    base_buf pretty = print(v, true), first = print(v, false);
    cJSON *again = base_json_parse(pretty.data, pretty.size, "printed");
    if (!again)
        abort();
    base_buf second = print(again, false);
    if (first.size != second.size || memcmp(first.data, second.data, first.size) != 0)
        abort();
    base_buf_free(&pretty);
    base_buf_free(&first);
    base_buf_free(&second);
    cJSON_Delete(v);
    cJSON_Delete(again);
    return 0;
}
