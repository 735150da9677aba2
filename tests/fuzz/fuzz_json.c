/* fuzz_json.c - libFuzzer target: what parses must print, and its print must parse and print as itself. */
#include <stdint.h>
#include <stdlib.h>

#include "base/base.h"
#include "base/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static by_buf print(const cJSON *v, bool pretty)
{
    by_buf b = {0};
    if (by_json_print(&b, v, pretty) != BY_OK)
        abort();
    return b;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    by_error_clear();
    cJSON *v = by_json_parse((const char *)data, size, "input");
    if (!v) {
        if (by_error_status() != BY_ERR_FORMAT || !*by_error_message())
            abort();
        return 0;
    }
    int64_t i;
    double d;
    bool b;
    const char *s;
    by_json_int(v, "n", 0, -10, 10, &i);
    by_json_double(v, "n", 0, 0, 1, &d);
    by_json_bool(v, "n", false, &b);
    by_json_string(v, "n", "", &s);

    by_buf pretty = print(v, true), first = print(v, false);
    cJSON *again = by_json_parse(pretty.data, pretty.size, "printed");
    if (!again)
        abort();
    by_buf second = print(again, false);
    if (first.size != second.size || memcmp(first.data, second.data, first.size) != 0)
        abort();
    by_buf_free(&pretty);
    by_buf_free(&first);
    by_buf_free(&second);
    cJSON_Delete(v);
    cJSON_Delete(again);
    return 0;
}
