/* test_policy.c - reinforcement learning for text: rewards from checks, commands and callbacks, prompts, rollouts, and whole runs that
 * are stopped and continued. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "align/policy_prompts.h"
#include "align/rollouts.h"
#include "banyan/banyan.h"
#include "child.h"
#include "folder.h"

static by_device *device;

static void expect(by_status s)
{
    if (s != BY_OK)
        fail_msg("%s", by_error_message());
}

/* ---- rewards ------------------------------------------------------------------------------------ */

static by_status open_rewards(align_rewards *r, const by_reward_source *list, int count,
                              const by_judging *judging)
{
    return align_rewards_open(r, list, count, &(align_court){.device = device, .judging = judging});
}

/* The reward of one answer from one source; NAN after a failure. */
static double judge(const char *what, const char *prompt, const char *answer, const char *expected)
{
    const by_judging judging = {0};
    const by_judged one = {.prompt = prompt, .answer = answer, .expected = expected};
    align_rewards r;
    float each = 0, total = NAN;
    by_status s = open_rewards(&r, &(by_reward_source){.what = what}, 1, &judging);
    if (s == BY_OK)
        s = align_rewards_score(&r, &one, 1, &each, &total);
    align_rewards_close(&r);
    return s == BY_OK ? (double)total : (double)NAN;
}

static void test_checks(void **state)
{
    (void)state;
    static const struct {
        const char *what, *prompt, *answer, *expected;
        double reward;
    } cases[] = {
        {"exact", "", " Paris\n", "Paris", 1},
        {"exact", "", "paris", "Paris", 0},
        {"json", "", " {\"a\": [1, 2.5e3, null]} ", NULL, 1},
        {"json", "", "{\"a\": 1,}", NULL, 0},
        {"json", "", "[1] 2", NULL, 0},
        {"json", "", "", NULL, 0},
        {"regex:^[a-c]+$", "", "abcab", NULL, 1},
        {"regex:^[a-c]+$", "", "abd", NULL, 0},
        {"regex:<think>.*</think>", "", "x <think>y</think>", NULL, 1},
        {"regex:a", "", "\xff\xfe", NULL, 0},
        {"length:4", "", "abcd", NULL, 1},
        {"length:4", "", "abc", NULL, 0.75},
        {"length:4", "", "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9", NULL, 1},
        {"length:4", "", "abcdefghij", NULL, 0},
        {"arithmetic", "12+34=", "46", NULL, 1},
        {"arithmetic", "12+34=", "47", NULL, 0},
        {"arithmetic", "What is 2 * (3 - 5)?", "The answer is -4.", NULL, 1},
        {"arithmetic", "7 - 2 * 3 =", "1", NULL, 1},
        {"arithmetic", "1/4", "0.25", NULL, 1},
        {"arithmetic", "room 5 has 3+4 chairs", "7", NULL, 1},
        {"arithmetic", "no expression", "so 41 then 42", "= 42", 1},
        {"arithmetic", "2+2", "four", NULL, 0},
        {"sorted", "3 1 2", "1 2 3", NULL, 1},
        {"sorted", "3 1 2", "1, 2, 3", NULL, 1},
        {"sorted", "3 1 2", "1 2 3 and more", NULL, 0},
        {"sorted", "3 1 2", "1 2", NULL, 0},
        {"sorted", "10 9 -3 =", "-3 9 10", NULL, 1},
        {"sorted", "10 9 -3 =", "10 9 -3", NULL, 0},
        {"sorted", "3142=", "1234", NULL, 1},
        {"sorted", "3142=", "12344", NULL, 0},
        {"sorted", "pear apple fig:", "apple, fig, pear", NULL, 1},
        {"sorted:partial", "3142=", "1243", NULL, 0.5},
        {"sorted:partial", "3142=", "12345678", NULL, 0.5},
        {"sorted:partial", "3142=", "", NULL, 0},
    };
    for (int i = 0; i < BY_COUNT(cases); i++) {
        const double got = judge(cases[i].what, cases[i].prompt, cases[i].answer, cases[i].expected);
        if (!(fabs(got - cases[i].reward) < 1e-6))
            fail_msg("%s: \"%s\" \"%s\": %g, not %g (%s)", cases[i].what, cases[i].prompt, cases[i].answer,
                     got, cases[i].reward, by_error_message());
    }
}

static void test_check_errors(void **state)
{
    (void)state;
    static const struct {
        const char *what, *prompt, *message;
    } cases[] = {
        {"exact", "", "needs an \"answer\""},  {"arithmetic", "none here", "finds no expression"},
        {"sorted", "one", "finds no list"},    {"sorted:fast", "", "neither sorted nor sorted:partial"},
        {"regex:(", "", "regular expression"}, {"length:", "", "not a length"},
        {"length:0", "", "not a length"},      {"regex", "", "unknown reward"},
        {"json:x", "", "unknown reward"},      {"nothing", "", "unknown reward \"nothing\""},
        {"command:", "", "is empty"},          {"model:/nowhere", "", "/nowhere"}};
    for (int i = 0; i < BY_COUNT(cases); i++) {
        assert_true(isnan(judge(cases[i].what, cases[i].prompt, "", NULL)));
        assert_contains(by_error_message(), cases[i].message);
    }
    /* More steps than an expression may take. */
    assert_true(isnan(judge("regex:(a+)+$", "", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab", NULL)));
    assert_contains(by_error_message(), "match limit");
}

static by_status count_letters(void *user, const by_judged *answers, int count, float *rewards)
{
    for (int i = 0; i < count; i++)
        rewards[i] = (float)strlen(answers[i].answer) + *(const float *)user;
    return *(const float *)user < 0 ? BY_ERR_ARGUMENT : BY_OK;
}

static void test_several(void **state)
{
    (void)state;
    float offset = 0.5f, each[6], total[2];
    const by_judging judging = {0};
    const by_judged answers[] = {{.prompt = "", .answer = "ab"}, {.prompt = "", .answer = "abcd"}};
    const by_reward_source list[] = {{.what = "length:4", .weight = 2},
                                     {.call = count_letters, .user = &offset, .name = "letters"},
                                     {.what = "length:2", .weight = -1}};
    align_rewards r;
    expect(open_rewards(&r, list, 3, &judging));
    assert_string_equal(r.list[0].name, "length");
    assert_string_equal(r.list[1].name, "letters");
    assert_string_equal(r.list[2].name, "length-2");
    expect(align_rewards_score(&r, answers, 2, each, total));
    assert_true(fabsf(total[0] - (2 * 0.5f + 2.5f - 1)) < 1e-6f);
    assert_true(fabsf(total[1] - (2 * 1 + 4.5f - 0)) < 1e-6f);
    offset = -1;
    assert_int_equal(align_rewards_score(&r, answers, 2, each, total), BY_ERR_ARGUMENT);
    assert_contains(by_error_message(), "reward \"letters\"");
    offset = (float)INFINITY;
    assert_int_equal(align_rewards_score(&r, answers, 2, each, total), BY_ERR_NUMERIC);
    align_rewards_close(&r);
    assert_int_not_equal(open_rewards(&r, NULL, 0, &judging), BY_OK);
    align_rewards_close(&r);
    assert_int_not_equal(open_rewards(&r, &(by_reward_source){0}, 1, &judging), BY_OK);
    align_rewards_close(&r);
}

/* ---- commands ----------------------------------------------------------------------------------- */

enum { ANSWERS = 12 };

typedef struct trial {
    float rewards[ANSWERS];
    align_failures failures;
    by_status status;
} trial;

/* Answers "0", "1", ... to a command. */
static trial try_command(const char *command, const by_judging *judging)
{
    trial t = {0};
    char texts[ANSWERS][8];
    by_judged answers[ANSWERS];
    float each[ANSWERS];
    align_rewards r;
    char *what = base_sprintf("command:%s", command);
    for (int i = 0; i < ANSWERS; i++) {
        snprintf(texts[i], sizeof texts[i], "%d", i);
        answers[i] = (by_judged){.prompt = "p\n\"q\"", .answer = texts[i]};
    }
    t.status = open_rewards(&r, &(by_reward_source){.what = what}, 1, judging);
    if (t.status == BY_OK)
        t.status = align_rewards_score(&r, answers, ANSWERS, each, t.rewards);
    if (t.status == BY_OK) /* processes live on from one call to the next */
        t.status = align_rewards_score(&r, answers, ANSWERS, each, t.rewards);
    t.failures = r.failures;
    align_rewards_close(&r);
    base_free(what);
    errno = 0;
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no process is left */
    assert_int_equal(errno, ECHILD);
    return t;
}

static void expect_counting(const trial *t)
{
    if (t->status != BY_OK)
        fail_msg("%s", by_error_message());
    for (int i = 0; i < ANSWERS; i++)
        assert_true(t->rewards[i] == (float)i);
}

#define LOOP "while read -r line; do "

static void test_commands(void **state)
{
    (void)state;
    const by_judging text = {.text = true, .processes = 3}, json = {.processes = 2};
    trial t = try_command(LOOP "echo \"$line\"; done", &text);
    expect_counting(&t);
    /* one process for each answer */
    t = try_command("read -r line && echo \"$line\"", &text);
    expect_counting(&t);
    assert_int_equal(t.failures.crashes, 0);
    /* JSON, with the line break of the prompt escaped */
    t = try_command(
        LOOP "case \"$line\" in '{\"prompt\": \"p\\n\\\"q\\\"\", \"answer\": \"'*) line=${line##*: \\\"}; "
             "echo \"${line%%\\\"*}\";; *) echo no; esac; done",
        &json);
    expect_counting(&t);
}

static void test_hostile_commands(void **state)
{
    (void)state;
    const double fallback = -7;
    const by_judging strict = {.text = true, .processes = 2, .seconds = 0.2, .retries = 1},
                     mild = {
                         .text = true, .processes = 2, .seconds = 0.2, .retries = -1, .fallback = &fallback};
    static const struct {
        const char *command, *message;
    } cases[] = {{"sleep 1000", "no line within 0.2 s"},
                 {"sleep 1000 & sleep 1000", "no line within 0.2 s"},
                 {"exit 3", "ended with status 3"},
                 {"kill -9 $$", "ended by signal 9"},
                 {"exec 1>&-; sleep 1000", "closed its output"},
                 {"no-such-command-anywhere 2>/dev/null", "ended with status 127"},
                 {LOOP "echo abc; done", "no number but \"abc\""},
                 {LOOP "echo nan; done", "no number but \"nan\""},
                 {LOOP "echo; done", "no number but"},
                 {LOOP "echo '1 2'; done", "no number but \"1 2\""},
                 {LOOP "printf '1\\n2\\n'; done", "more than a line"},
                 {"exec 0<&-; yes 1 | tr -d '\\n'", "a line without an end"}};
    for (int i = 0; i < BY_COUNT(cases); i++) {
        trial t = try_command(cases[i].command, &strict);
        if (t.status != BY_ERR_IO)
            fail_msg("%s: status %d", cases[i].command, (int)t.status);
        assert_contains(by_error_message(), cases[i].message);
        assert_contains(by_error_message(), "in 2 attempts");
        t = try_command(cases[i].command, &mild);
        expect(t.status);
        assert_true(t.rewards[0] == -7 && t.rewards[ANSWERS - 1] == -7);
        assert_int_equal(t.failures.fallbacks, 2 * ANSWERS);
    }
}

/* Some answers fail at first, or always; the others are not harmed. */
static void test_failing_now_and_then(void **state)
{
    (void)state;
    const double fallback = 100;
    const by_judging twice = {.text = true, .processes = 2, .seconds = 1},
                     mild = {
                         .text = true, .processes = 2, .seconds = 0.3, .retries = -1, .fallback = &fallback};
    char *command =
        base_sprintf(LOOP "[ \"$line\" = 5 ] && [ ! -e '%s' ] && : >'%s' && exit 1; echo \"$line\"; done",
                     in_root("tried"), in_root("tried"));
    trial t = try_command(command, &twice);
    expect_counting(&t);
    assert_int_equal(t.failures.crashes, 1);
    base_free(command);
    t = try_command(LOOP "[ \"$line\" = 5 ] && sleep 100; echo \"$line\"; done", &mild);
    expect(t.status);
    for (int i = 0; i < ANSWERS; i++)
        assert_true(t.rewards[i] == (i == 5 ? 100.0f : (float)i));
    assert_int_equal(t.failures.timeouts, 2);
}

/* ---- prompts ------------------------------------------------------------------------------------ */

enum { DIGITS = 10, EOS = 12, VOCAB = 13 };

/* Digits 0 to 9, "=" 10, ";" 11 and an end token 12. */
static void write_model(const char *name, uint64_t seed)
{
    base_buf json = {0};
    base_buf_puts(
        &json,
        "{\"version\":\"1.0\",\"added_tokens\":[{\"id\":12,\"content\":\"<eos>\",\"single_word\":false,"
        "\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"special\":true}],"
        "\"normalizer\":null,\"pre_tokenizer\":null,\"post_processor\":null,\"decoder\":{\"type\":"
        "\"Fuse\"},\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{");
    for (int i = 0; i < DIGITS; i++)
        base_buf_printf(&json, "\"%d\":%d,", i, i);
    base_buf_puts(&json, "\"=\":10,\";\":11,\"<eos>\":12}}}");
    by_model_shape shape = {
        .layers = 2, .heads = 2, .width = 32, .context = 16, .vocab = VOCAB, .dropout = 0.1};
    by_model *m = by_model_new(device, "gpt2", &shape, &(by_model_spec){.seed = seed});
    assert_non_null(m);
    by_model_set_eos(m, EOS);
    expect(by_model_save(m, in_root(name), BY_F32));
    by_model_free(m);
    char *path = base_path_join(in_root(name), "tokenizer.json"),
         *config = base_path_join(in_root(name), "tokenizer_config.json");
    static const char text[] = "{\"tokenizer_class\": \"PreTrainedTokenizerFast\", \"eos_token\": \"<eos>\", "
                               "\"chat_template\": \"{% for m in messages %}{{ m.content }}={% endfor %}{{ "
                               "more }}{{ tools[0].name if tools }}\"}";
    expect(base_file_write(path, json.data, json.size));
    expect(base_file_write(config, text, sizeof text - 1));
    base_buf_free(&json);
    base_free(path);
    base_free(config);
}

static by_status read_prompts(const char *text, align_prompts *x, int limit)
{
    by_tokenizer *t = by_tokenizer_load(in_root("model"));
    by_chat *chat = by_chat_open(in_root("model"));
    assert_non_null(t);
    assert_non_null(chat);
    by_status s =
        align_prompts_open(x, write_text("prompts", text),
                           &(align_prompts_spec){.tokenizer = t, .chat = chat, .limit = limit, .start = EOS});
    by_chat_free(chat);
    by_tokenizer_free(t);
    return s;
}

static void test_prompts(void **state)
{
    (void)state;
    align_prompts x;
    expect(
        read_prompts("{\"prompt\": \"31=\", \"answer\": 13}\n\n"
                     "{\"messages\": [{\"role\": \"user\", \"content\": \"12\"}, {\"role\": \"assistant\", "
                     "\"content\": \"21\"}]}\n"
                     "{\"prompt\": [{\"role\": \"user\", \"content\": \"5\"}], \"expected\": \"6\"}\n"
                     "{\"prompt\": \"\", \"solution\": null}\n{\"prompt\": \"123456789\"}\n",
                     &x, 8));
    assert_int_equal(x.count, 4);
    assert_int_equal(x.left_out, 1);
    assert_int_equal(x.longest, 3);
    assert_string_equal(x.list[0].expected, "13");
    assert_string_equal(x.list[1].text, "12");
    assert_string_equal(x.list[1].expected, "21");
    assert_int_equal(x.list[1].count, 3);
    assert_int_equal(x.list[1].tokens[2], 10);
    assert_int_equal(x.list[2].count, 2);
    assert_string_equal(x.list[2].expected, "6");
    assert_int_equal(x.list[3].count, 1);
    assert_int_equal(x.list[3].tokens[0], EOS);
    assert_null(x.list[3].expected);
    align_prompts_close(&x);
    /* What a template reads besides. */
    expect(read_prompts(
        "{\"prompt\": [{\"role\": \"user\", \"content\": \"5\"}], \"chat_template_kwargs\": {\"more\": 7}, "
        "\"tools\": \"[{\\\"name\\\": 3}]\"}\n"
        "{\"prompt\": [{\"role\": \"user\", \"content\": \"5\"}], \"tools\": [{\"name\": 4}]}\n",
        &x, 8));
    assert_int_equal(x.list[0].count, 4);
    assert_int_equal(x.list[0].tokens[2], 7);
    assert_int_equal(x.list[0].tokens[3], 3);
    assert_int_equal(x.list[1].count, 3);
    assert_int_equal(x.list[1].tokens[2], 4);
    align_prompts_close(&x);
    expect(read_prompts("12=\n34=\n", &x, 8));
    assert_int_equal(x.count, 2);
    assert_string_equal(x.list[1].text, "34=");
    align_prompts_close(&x);
    /* A list of objects, on one line or on many; variables of a template. */
    expect(read_prompts("[\n  {\"prompt\": \"31=\", \"answer\": 13},\n  {\"prompt\": \"4=\"}\n]\n", &x, 8));
    assert_int_equal(x.count, 2);
    assert_string_equal(x.list[0].expected, "13");
    assert_string_equal(x.list[1].text, "4=");
    align_prompts_close(&x);
    expect(read_prompts("[{\"messages\": [{\"role\": \"user\", \"content\": \"5\"}], "
                        "\"chat_template_kwargs\": {\"more\": \"7\"}}]",
                        &x, 8));
    assert_int_equal(x.count, 1);
    assert_int_equal(x.list[0].count, 3);
    assert_int_equal(x.list[0].tokens[2], 7);
    align_prompts_close(&x);
    expect(read_prompts("  {\"prompt\": \"31=\"}\n", &x, 8));
    assert_string_equal(x.list[0].text, "31=");
    align_prompts_close(&x);
    static const struct {
        const char *text, *message;
    } cases[] = {{"{\"prompt\": \"1\"}\n{\"question\": \"1\"}\n", "line 2: the object needs a \"prompt\""},
                 {"{\"prompt\": \"1\"}\n{\"prompt\": \n", "line 2"},
                 {"{\"prompt\": 5}\n", "the object needs a \"prompt\""},
                 {"[{\"prompt\": \"1\"}, 5]", "object 2: not a JSON object"},
                 {"[{\"prompt\": \"1\"},\n", "prompts: "},
                 {"[{\"prompt\": \"1\"}] more", "prompts: "},
                 {"12=\n1\xff=\n", "line 2: the prompt is not UTF-8"},
                 {"", "no prompts"},
                 {"{\"prompt\": \"123456789\"}\n", "no prompt has at most 8 tokens"}};
    for (int i = 0; i < BY_COUNT(cases); i++) {
        assert_int_not_equal(read_prompts(cases[i].text, &x, 8), BY_OK);
        assert_contains(by_error_message(), cases[i].message);
        align_prompts_close(&x);
    }
}

/* ---- rollouts ----------------------------------------------------------------------------------- */

enum { ROWS = 6, NEW = 5 };

static by_model *open_model(bool training)
{
    by_model *m = by_model_open(device, in_root("model"), &(by_model_spec){.training = training});
    if (!m)
        fail_msg("%s", by_error_message());
    return m;
}

static void sample(by_model *m, by_generator *g, const by_tokenizer *t, uint64_t seed, align_rollouts *out)
{
    static const int32_t tokens[] = {3, 1, 10, 7, 10};
    static const align_prompt first = {.tokens = tokens, .count = 3, .text = "31="},
                              second = {.tokens = tokens + 3, .count = 2, .text = "7="};
    const align_prompt *prompts[] = {&first, &second};
    static const char *const stops[] = {";"};
    const by_policy_run run = {.temperature = 1, .stops = stops, .stop_count = 1};
    expect(align_rollouts_sample(
        out, g, prompts,
        &(align_sampling){.model = m, .tokenizer = t, .run = &run, .max_new_tokens = NEW, .seed = seed}));
}

/* Targets stand before the tokens of answers and nowhere else. */
static void check_rows(const align_rollouts *r)
{
    for (int i = 0; i < r->rows; i++) {
        const int32_t *tokens = r->tokens + (ptrdiff_t)i * r->width,
                      *targets = r->targets + (ptrdiff_t)i * r->width;
        const int prompt = i < ROWS / 2 ? 3 : 2, last = prompt + r->count[i] - 1;
        assert_int_equal(r->prompt[i], prompt);
        assert_in_range(r->count[i], 1, NEW);
        for (int t = 0; t < r->width; t++) {
            const bool there = t + 1 >= prompt && t < last;
            assert_int_equal(targets[t], there ? tokens[t + 1] : -100);
            assert_true(r->mask[(ptrdiff_t)i * r->width + t] == (there ? 1 : 0));
        }
        assert_int_equal(r->ended[i], tokens[last] == EOS || tokens[last] == 11);
        assert_true(r->ended[i] || r->count[i] == NEW);
        assert_null(strchr(r->answers[i], ';'));
        assert_string_equal(r->judged[i].prompt, i < ROWS / 2 ? "31=" : "7=");
    }
}

static void test_rollouts(void **state)
{
    (void)state;
    by_model *m = open_model(true);
    by_tokenizer *t = by_tokenizer_load(in_root("model"));
    by_generator *g = by_generator_new(m, &(by_generator_spec){.batch = ROWS, .capacity = 8});
    align_rollouts a = {0}, b = {0};
    assert_non_null(t);
    assert_non_null(g);
    expect(align_rollouts_init(&a, ROWS, ROWS / 2, 1));
    expect(align_rollouts_init(&b, ROWS, ROWS / 2, 1));
    int differ = 0;
    for (uint64_t seed = 0; seed < 20; seed++) {
        sample(m, g, t, seed, &a);
        check_rows(&a);
        sample(m, g, t, seed, &b);
        assert_int_equal(a.width, b.width);
        assert_memory_equal(a.tokens, b.tokens, (size_t)(a.rows * a.width) * sizeof *a.tokens);
        sample(m, g, t, seed + 1000, &b);
        differ += a.width != b.width ||
                  memcmp(a.tokens, b.tokens, (size_t)(a.rows * a.width) * sizeof *a.tokens) != 0;
    }
    assert_true(differ >= 19);
    align_rollouts_free(&a);
    align_rollouts_free(&b);
    by_generator_free(g);
    by_tokenizer_free(t);
    by_model_free(m);
}

/* The generator reads the weights that training changes: after many passes and an update it says what a new one says. */
static void test_shared_weights(void **state)
{
    (void)state;
    by_model *m = open_model(true);
    by_generator *g = by_generator_new(m, &(by_generator_spec){.batch = 2, .capacity = 16});
    by_trainer *t = by_trainer_new(m, &(by_trainer_spec){0});
    const int32_t tokens[8] = {1, 2, 3, 10, 4, 3, 2, 10}, targets[8] = {2, 3, 10, 1, 3, 2, 10, 1};
    const int32_t *const rows[] = {tokens, tokens + 4};
    float before[VOCAB] = {0}, after[VOCAB];
    by_batch batch = by_batch_of(2, 4, tokens);
    by_batch_put_tokens(&batch, "targets", targets);
    for (int round = 0; round < 6; round++) {
        by_generator_rewind(g, 0, 0);
        by_generator_rewind(g, 1, 0);
        for (int k = 0; k < 4; k++) {
            const int32_t *const one[] = {rows[0] + k, rows[1] + k};
            expect(by_generator_feed(g, one, (const int[]){1, 1}));
        }
        memcpy(after, by_generator_logits(g, 1), sizeof after);
        by_generator *fresh = by_generator_new(m, &(by_generator_spec){.batch = 2, .capacity = 16});
        expect(by_generator_feed(fresh, rows, (const int[]){4, 4}));
        const float *want = by_generator_logits(fresh, 1);
        for (int v = 0; v < VOCAB; v++)
            assert_true(fabsf(after[v] - want[v]) < 1e-4f);
        by_generator_free(fresh);
        if (round)
            assert_true(fabsf(after[1] - before[1]) > 1e-3f);
        memcpy(before, after, sizeof before);
        expect(by_trainer_backward(t, &batch, true, NULL));
        expect(by_trainer_update(t, 0.05, NULL));
    }
    by_trainer_free(t);
    by_generator_free(g);
    by_model_free(m);
}

/* ---- runs --------------------------------------------------------------------------------------- */

static int64_t stop_at; /* cancel before this step; 0: never */
static int64_t seen_step;
static double last_reward;

static void report(void *user, const by_report *r)
{
    (void)user;
    if (r->note || r->warning)
        return;
    seen_step = r->step;
    for (int i = 0; i < r->n_measures; i++)
        if (strcmp(r->measures[i].name, "reward") == 0)
            last_reward = r->measures[i].value;
}

static bool cancelled(void *user)
{
    (void)user;
    return stop_at && seen_step >= stop_at;
}

static const by_reward_source sevens = {.what = "regex:7"};

static by_align_spec spec_of(by_align_method method, const char *out)
{
    by_align_spec s = by_align_defaults(method);
    s.model = in_root("model");
    s.data = in_root("digits");
    s.out = out;
    s.batch = 4;
    s.steps = 6;
    s.save_every = 100;
    s.schedule.rate = 1e-2;
    s.policy.rewards = &sevens;
    s.policy.reward_count = 1;
    s.policy.max_new_tokens = 6;
    s.report = report;
    s.cancelled = cancelled;
    return s;
}

static by_status run(const by_align_spec *s, int64_t stop)
{
    by_align_result result;
    stop_at = stop;
    seen_step = 0;
    return by_align_run(device, s, &result);
}

static void same_file(const char *a, const char *b, const char *name)
{
    char *from = base_path_join(a, name), *to = base_path_join(b, name);
    size_t n = 0, m = 0;
    char *x = base_file_read(from, 1 << 24, &n), *y = base_file_read(to, 1 << 24, &m);
    if (!x || !y)
        fail_msg("%s", by_error_message());
    if (n != m || memcmp(x, y, n) != 0)
        fail_msg("%s of %s and %s differ", name, a, b);
    base_free(x);
    base_free(y);
    base_free(from);
    base_free(to);
}

/* A run that is stopped in the middle ends with the same bytes, samples and all. */
static void check_resume(const by_align_spec *s, bool critic)
{
    by_align_spec whole = *s, parts = *s;
    whole.out = in_root("whole");
    parts.out = in_root("parts");
    expect(run(&whole, 0));
    assert_int_equal(run(&parts, 2), BY_ERR_CANCELLED);
    assert_int_equal(run(&parts, 4), BY_ERR_CANCELLED);
    expect(run(&parts, 0));
    const bool adapter = s->adapter != NULL;
    same_file(whole.out, parts.out, adapter ? "adapter_model.safetensors" : "model.safetensors");
    same_file(whole.out, parts.out, "last/optimizer.safetensors");
    same_file(whole.out, parts.out, "samples.jsonl");
    same_file(whole.out, parts.out, "last/policy_state.json");
    if (critic) {
        same_file(whole.out, parts.out, "last/critic/model.safetensors");
        same_file(whole.out, parts.out, "last/critic/optimizer.safetensors");
    }
    expect(base_dir_remove(whole.out));
    expect(base_dir_remove(parts.out));
}

static void test_resume(void **state)
{
    (void)state;
    by_align_spec s = spec_of(BY_ALIGN_GRPO, NULL);
    s.policy.sample_every = 1;
    s.beta = 0.04;
    s.policy.updates = 2;
    s.accumulate = 2;
    check_resume(&s, false);
    s = spec_of(BY_ALIGN_RLOO, NULL);
    s.policy.loss = BY_GRPO_GRPO;
    check_resume(&s, false);
    s = spec_of(BY_ALIGN_REINFORCE, NULL);
    check_resume(&s, false);
    s = spec_of(BY_ALIGN_PPO, NULL);
    s.policy.minibatches = 2;
    s.policy.kl_target = 0.5;
    s.policy.kl_horizon = 50;
    s.policy.missing_eos_penalty = 0.5;
    s.policy.value_rate = 2e-2;
    check_resume(&s, true);
}

/* The reference of a new adapter is the model without it. */
static void test_adapter(void **state)
{
    (void)state;
    const by_adapter_spec lora = {.rank = 4, .targets = "all-linear", .seed = 3};
    by_align_spec s = spec_of(BY_ALIGN_GRPO, NULL);
    s.adapter = &lora;
    s.lora = "r=4";
    s.beta = 0.1;
    check_resume(&s, false);
    s = spec_of(BY_ALIGN_PPO, NULL);
    s.adapter = &lora;
    s.lora = "r=4";
    check_resume(&s, true);
}

/* Every method finds out that answers with a 7 are rewarded. */
static void test_learning(void **state)
{
    (void)state;
    static const struct {
        by_align_method method;
        by_grpo_kind loss;
    } cases[] = {{BY_ALIGN_GRPO, BY_GRPO_DAPO},      {BY_ALIGN_GRPO, BY_GRPO_GRPO},
                 {BY_ALIGN_GRPO, BY_GRPO_DR},        {BY_ALIGN_GRPO, BY_GRPO_BNPO},
                 {BY_ALIGN_GRPO, BY_GRPO_GSPO},      {BY_ALIGN_RLOO, BY_GRPO_DAPO},
                 {BY_ALIGN_REINFORCE, BY_GRPO_DAPO}, {BY_ALIGN_PPO, BY_GRPO_DAPO}};
    for (int i = 0; i < BY_COUNT(cases); i++) {
        by_align_spec s = spec_of(cases[i].method, in_root("learned"));
        s.policy.loss = cases[i].loss;
        s.policy.generations = 8;
        s.policy.temperature = 1;
        s.steps = 30;
        s.schedule.rate = 3e-3;
        s.policy.sample_every = -1;
        s.eval_data = in_root("digits");
        s.policy.greedy_eval = true;
        s.overwrite = true;
        by_align_result r;
        seen_step = stop_at = 0;
        expect(by_align_run(device, &s, &r));
        if (!(last_reward > 0.9))
            fail_msg("%s, %s: the reward is %g", by_align_name(s.method), by_grpo_name(cases[i].loss),
                     last_reward);
        assert_true(r.evaluated && r.metrics[0].value > 0.9);
        assert_string_equal(r.metrics[0].name, "reward");
    }
}

static void test_refused(void **state)
{
    (void)state;
    by_align_spec s = spec_of(BY_ALIGN_GRPO, in_root("refused"));
    s.policy.generations = 1;
    assert_int_equal(run(&s, 0), BY_ERR_ARGUMENT);
    assert_contains(by_error_message(), "compares the answers");
    s = spec_of(BY_ALIGN_PPO, in_root("refused"));
    s.policy.minibatches = 3;
    assert_int_equal(run(&s, 0), BY_ERR_ARGUMENT);
    assert_contains(by_error_message(), "3 minibatches");
    s = spec_of(BY_ALIGN_GRPO, in_root("refused"));
    s.policy.reward_count = 0;
    assert_int_equal(run(&s, 0), BY_ERR_ARGUMENT);
    assert_contains(by_error_message(), "no reward");
    s = spec_of(BY_ALIGN_GRPO, in_root("refused"));
    s.policy.rewards = &(by_reward_source){.what = "command:exit 1"};
    s.policy.judging.retries = -1;
    assert_int_equal(run(&s, 0), BY_ERR_IO);
    assert_contains(by_error_message(), "in 1 attempts: it ended with status 1");
    assert_false(base_dir_exists(in_root("refused"))); /* a run that did not begin leaves nothing */
    by_align_result r;
    assert_int_not_equal(by_align_run(NULL, &s, &r), BY_OK);
    assert_int_not_equal(by_align_run(device, NULL, &r), BY_OK);
    assert_int_not_equal(by_align_run(device, &s, NULL), BY_OK);
}

static int set_up(void **state)
{
    (void)state;
    base_buf text = {0};
    if (!make_root("policy") || !(device = by_device_open("cpu", 1)))
        return -1;
    write_model("model", 5);
    for (int i = 0; i < 30; i++)
        base_buf_printf(&text, "{\"prompt\": \"%d=\"}\n", 10 + i * 2);
    write_text("digits", text.data);
    base_buf_free(&text);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    by_device_free(device);
    return base_dir_remove(root) == BY_OK ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_checks),           cmocka_unit_test(test_check_errors),
        cmocka_unit_test(test_several),          cmocka_unit_test(test_commands),
        cmocka_unit_test(test_hostile_commands), cmocka_unit_test(test_failing_now_and_then),
        cmocka_unit_test(test_prompts),          cmocka_unit_test(test_rollouts),
        cmocka_unit_test(test_shared_weights),   cmocka_unit_test(test_resume),
        cmocka_unit_test(test_adapter),          cmocka_unit_test(test_learning),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
