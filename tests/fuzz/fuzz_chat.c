/* fuzz_chat.c - any text as a chat template, and any bytes after its first NUL as the JSON of the messages. What renders is
 * UTF-8, and its spans lie inside. */
#include <stdlib.h>
#include <string.h>

#include "banyan/chat.h"
#include "base/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char usual[] =
    "[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":\"\xc3\xa9 <b>\"},"
    "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"function\":{\"name\":\"f\","
    "\"arguments\":{\"a\":[1,2.5,true]}}}]}]";

static void check(const by_chat_text *t)
{
    for (size_t i = 0, n; i < t->size; i += n)
        if (!(n = base_json_utf8(t->text + i, t->size - i)))
            abort();
    for (size_t i = 0; i < t->span_count; i++)
        if (t->spans[i].start > t->spans[i].end || t->spans[i].end > t->size)
            abort();
    if (t->text[t->size] != '\0')
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *nul = memchr(data, 0, size);
    const size_t template = nul ? (size_t)(nul - data) : size;
    by_chat *c = by_chat_new((const char *)data, template, "fuzz");
    by_chat_text t = {0};
    by_chat_input in = {.messages = usual,
                        .tools = "[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]",
                        .variables = "{\"bos_token\":\"<s>\",\"x\":3}",
                        .now = "2026-01-05 09:07:03",
                        .max_steps = 100000,
                        .max_bytes = 4 << 20,
                        .add_generation_prompt = true};
    if (nul && size - template > 1) {
        in.messages = (const char *)nul + 1;
        in.messages_size = size - template - 1;
    }
    if (c && by_chat_render(c, &in, &t) == BY_OK)
        check(&t);
    by_chat_text_free(&t);
    by_chat_free(c);
    return 0;
}
