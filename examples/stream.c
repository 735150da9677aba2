/* stream.c - read standard input piece by piece with a model that has a memory, and print how surprising each line was. The
 * model remembers across lines; no line is read twice.
 *
 *   stream MODEL < text */
#include <banyan/banyan.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(void)
{
    fprintf(stderr, "stream: %s\n", by_error_message());
    return 1;
}

/* Feeds a line and prints the bits per token that the model needed for it. */
static by_status read_line(by_reader *reader, const by_tokenizer *tokenizer, const char *line)
{
    size_t count = 0;
    int32_t *ids = by_encode(tokenizer, line, strlen(line), &count);
    float *log_p = calloc(count + 1, sizeof *log_p);
    by_status status = BY_ERR_MEMORY;
    if (ids && log_p)
        status = by_reader_feed(reader, ids, (int)count, log_p);
    double nats = 0;
    int counted = 0;
    for (size_t i = 0; status == BY_OK && i < count; i++)
        if (!isnan(log_p[i])) { /* the first token of a text has no prediction */
            nats -= (double)log_p[i];
            counted++;
        }
    if (status == BY_OK && counted)
        printf("%6.2f  %s", nats / counted / log(2), line);
    by_release(ids);
    free(log_p);
    return status;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: stream MODEL < text\n");
        return 2;
    }
    by_device *device = by_device_open("cpu", 0);
    by_model *model = device ? by_model_open(device, argv[1], &(by_model_spec){0}) : NULL;
    by_tokenizer *tokenizer = model ? by_tokenizer_load(argv[1]) : NULL;
    by_reader *reader = tokenizer ? by_reader_new(model, 1, 0) : NULL;
    if (!reader)
        return fail();
    char line[4096];
    by_status status = BY_OK;
    while (status == BY_OK && fgets(line, sizeof line, stdin))
        status = read_line(reader, tokenizer, line);
    by_reader_free(reader);
    by_tokenizer_free(tokenizer);
    by_model_free(model);
    by_device_free(device);
    return status == BY_OK ? 0 : fail();
}
