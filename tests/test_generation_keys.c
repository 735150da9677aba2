/* test_generation_keys.c - every key of the reference's GenerationConfig has its place, and a value that
 * would be ignored is refused by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/file.h"
#include "infer/generation_keys.h"
#include "infer/rules.h"

/* tests/data/generation_keys.txt: the attributes of transformers.GenerationConfig, one a line. */
static void test_all_keys(void **state)
{
    (void)state;
    FILE *f = fopen(BY_SOURCE_DIR "/tests/data/generation_keys.txt", "r");
    char line[128];
    int count = 0;
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        if (gen_generation_key_kind(line) == GEN_KEY_UNKNOWN)
            fail_msg("%s has no place in src/infer/generation_keys.c", line);
        count++;
    }
    fclose(f);
    assert_true(count > 60);
}

static void test_values(void **state)
{
    (void)state;
    static const struct {
        const char *json, *refused;
    } cases[] = {
        {"{\"guidance_scale\": 1.0, \"eta_cutoff\": 0, \"sequence_bias\": null, \"renormalize_logits\": "
         "false}",
         NULL},
        {"{\"do_sample\": true, \"top_k\": 3, \"use_cache\": false, \"something_else\": 7}", NULL},
        {"{\"guidance_scale\": 1.5}", "guidance_scale"},
        {"{\"encoder_no_repeat_ngram_size\": 2, \"encoder_repetition_penalty\": 2}", NULL},
        {"{\"stop_strings\": [\"x\"], \"sequence_bias\": [[[1], 2.0]]}", NULL},
        {"{\"penalty_alpha\": 0.6}", "penalty_alpha"},
        {"{\"watermarking_config\": {\"greenlist_ratio\": 0.25}}", "watermarking_config"},
        {"{\"num_beam_groups\": 2}", "num_beam_groups"},
    };
    for (int i = 0; i < BY_COUNT(cases); i++) {
        cJSON *json = cJSON_Parse(cases[i].json);
        assert_non_null(json);
        by_status s = gen_generation_keys_check(json);
        assert_int_equal(s, cases[i].refused ? BY_ERR_UNSUPPORTED : BY_OK);
        if (cases[i].refused)
            assert_non_null(strstr(by_error_message(), cases[i].refused));
        cJSON_Delete(json);
    }
}

/* Whether a spec is plain, and whether the highest logits are enough, is asked of the table of rules. */
static void test_rules(void **state)
{
    (void)state;
    const int32_t token = 1;
    const by_words word = {&token, 1};
    const by_bias bias = {&token, 1, -1};
    const by_sampling specs[] = {
        {.biases = &bias, .bias_count = 1},
        {.source_penalty = 0.5},
        {.repetition_penalty = 2},
        {.presence_penalty = 1},
        {.frequency_penalty = 1},
        {.no_repeat_ngram = 2},
        {.no_source_ngram = 2},
        {.min_new_tokens = 1},
        {.banned = &token, .banned_count = 1},
        {.words = &word, .word_count = 1},
        {.prefix = &token, .prefix_count = 1},
        {.forced_first = &token},
        {.forced_bos = &token},
        {.forced_last = &token},
        {.remove_invalid = true},
        {.decay = 1.5},
        {.suppressed = &token, .suppressed_count = 1},
        {.first_banned = &token, .first_banned_count = 1},
    };
    assert_int_equal(BY_COUNT(specs), gen_constraint_count);
    assert_false(gen_is_constrained(&(by_sampling){.repetition_penalty = 1, .decay = 1}));
    for (int i = 0; i < BY_COUNT(specs); i++) {
        assert_true(gen_is_constrained(&specs[i]));
        assert_true(gen_is_raised(&specs[i]) == (specs[i].decay > 1 || specs[i].remove_invalid));
    }
    assert_true(gen_is_raised(&(by_sampling){.repetition_penalty = 0.5}));
    assert_true(gen_is_raised(&(by_sampling){.source_penalty = 2}));
    assert_true(gen_is_raised(&(by_sampling){.presence_penalty = -1}));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_keys),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
