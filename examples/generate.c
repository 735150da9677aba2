/* generate.c - open a model directory and continue a text, printing each token as it is generated.
 *
 *   generate MODEL "To be, or" 200 */
#include <banyan/banyan.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool print_token(void *user, int row, int32_t token, float logprob)
{
    (void)row, (void)logprob;
    size_t size;
    char *text = by_decode(user, &token, 1, &size);
    if (text)
        fwrite(text, 1, size, stdout);
    fflush(stdout);
    by_release(text);
    return text != NULL;
}

static int fail(void)
{
    fprintf(stderr, "generate: %s\n", by_error_message());
    return 1;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: generate MODEL PROMPT [TOKENS]\n");
        return 2;
    }
    by_device *device = by_device_open("cpu", 0);
    by_model *model = device ? by_model_open(device, argv[1], &(by_model_spec){0}) : NULL;
    by_tokenizer *tokenizer = model ? by_tokenizer_load(argv[1]) : NULL;
    by_generator *generator = tokenizer ? by_generator_new(model, &(by_generator_spec){0}) : NULL;
    size_t count = 0;
    int32_t *ids = generator ? by_encode(tokenizer, argv[2], strlen(argv[2]), &count) : NULL;
    if (!ids)
        return fail();

    by_generate_spec spec = {.sampling = {.temperature = 0.8, .top_k = 40, .seed = 1},
                             .max_new_tokens = argc > 3 ? atoi(argv[3]) : 100,
                             .slide = true,
                             .token = print_token,
                             .user = tokenizer};
    by_generate_result result;
    fputs(argv[2], stdout);
    by_status status =
        by_generate(generator, (const int32_t *const[]){ids}, (int[]){(int)count}, &spec, &result);
    putchar('\n');
    if (status == BY_OK)
        fprintf(stderr, "%lld tokens, %.0f per second\n", (long long)result.new_tokens,
                (double)result.new_tokens / (result.decode_seconds + 1e-9));

    by_generate_result_free(&result);
    by_release(ids);
    by_generator_free(generator);
    by_tokenizer_free(tokenizer);
    by_model_free(model);
    by_device_free(device);
    return status == BY_OK ? 0 : fail();
}
