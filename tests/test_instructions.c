/* test_instructions.c - instruction data: every form as text and learned part, masks, packing that computes what rows of one
 * example compute, batches, errors. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/pass.h"
#include "data/instructions.h"
#include "folder.h"

/* Bytes are tokens, so that texts and masks can be read. The end token is written <|endoftext|>. */
#define END "<|endoftext|>"
static const char chatml[] = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}{% if "
                             "add_generation_prompt %}<assistant>{% endif %}";
static const char marked[] =
    "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}{% generation %}{{ m.content }}</>{% "
    "endgeneration %}"
    "{% else %}{{ m.content }}</>{% endif %}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";

static by_device *device;
static by_tokenizer *bytes;
static by_model *model;

static by_model *new_model(const char *family)
{
    const by_model_shape shape = {
        .layers = 2, .heads = 2, .width = 16, .inner = 32, .context = 512, .vocab = 257};
    by_model *m = by_model_new(device, family, &shape,
                               &(by_model_spec){.task = BY_TASK_LM, .seed = 7, .training = true});
    if (m)
        by_model_set_dropout(m, 0);
    return m;
}

static int open_all(void **state)
{
    (void)state;
    device = by_device_open("cpu", 1);
    bytes = tok_new_bytes();
    model = device ? new_model("gpt2") : NULL;
    return model && bytes && make_root("instructions") ? 0 : -1;
}

static int close_all(void **state)
{
    (void)state;
    by_model_free(model);
    by_tokenizer_free(bytes);
    by_device_free(device);
    return base_dir_remove(root) == BY_OK ? 0 : -1;
}

static by_chat *template_of(const char *text)
{
    by_chat *c = text ? by_chat_new(text, strlen(text), "t") : NULL;
    assert_true(c || !text);
    return c;
}

static by_status open_file(data_instructions *x, const char *path, const char *template,
                           data_instruction_spec spec, by_chat **chat)
{
    spec.chat = *chat = template_of(template);
    return data_instructions_open(x, path, model, bytes, &spec);
}

/* The tokens of a sequence as text; all, or those that are learned. */
static char *text_of(const data_instructions *x, int i, bool learned)
{
    const data_instruction *one = &x->list[i];
    int32_t ids[512];
    size_t n = 0;
    for (int t = 0; t < one->count; t++)
        if (!learned || x->learned[one->first + (size_t)t])
            ids[n++] = x->tokens.data[one->first + (size_t)t];
    return by_decode(x->tokenizer, ids, n, NULL);
}

static void expect_sequence(const data_instructions *x, int i, const char *whole, const char *learned)
{
    char *all = text_of(x, i, false), *part = text_of(x, i, true);
    assert_string_equal(all, whole);
    assert_string_equal(part, learned);
    by_release(all);
    by_release(part);
}

/* One line of JSON as one sequence. */
static void expect_form(const char *json, const char *template, const char *whole, const char *learned)
{
    data_instructions x;
    by_chat *chat;
    if (open_file(&x, write_text("one.jsonl", json), template, (data_instruction_spec){0}, &chat) != BY_OK)
        fail_msg("%s: %s", json, by_error_message());
    assert_int_equal(x.count, 1);
    expect_sequence(&x, 0, whole, learned);
    data_instructions_close(&x);
    by_chat_free(chat);
}

static void expect_error(data_instruction_kind kind, const char *json, const char *template,
                         const char *message)
{
    data_instructions x;
    by_chat *chat;
    assert_int_not_equal(
        open_file(&x, write_text("one.jsonl", json), template, (data_instruction_spec){.kind = kind}, &chat),
        BY_OK);
    if (!strstr(by_error_message(), message))
        fail_msg("%s: \"%s\" instead of \"%s\"", json, by_error_message(), message);
    data_instructions_close(&x);
    by_chat_free(chat);
}

/* ---- forms -------------------------------------------------------------------------------------------------- */

static void test_plain_forms(void **state)
{
    (void)state;
    expect_form("{\"text\": \"ab\"}", NULL, "ab" END, "b" END);
    expect_form("{\"text\": \"ab" END "\"}", NULL, "ab" END, "b" END);
    expect_form("{\"prompt\": \"q: \", \"completion\": \"yes\"}", chatml, "q: yes" END, "yes" END);
    expect_form("{\"instruction\": \"Add.\", \"input\": \"1 2\", \"output\": \"3\"}", chatml,
                "<user>Add.\n\n1 2</><assistant>3</>", "3</>");
    expect_form("{\"instruction\": \"Hi\", \"input\": \"\", \"output\": \"Yo\"}", NULL,
                "Below is an instruction that describes a task. Write a response that appropriately "
                "completes the request.\n\n"
                "### Instruction:\nHi\n\n### Response:\nYo" END,
                "Yo" END);
}

static void test_conversations(void **state)
{
    (void)state;
    static const char two[] = "{\"messages\": [{\"role\": \"system\", \"content\": \"s\"}, {\"role\": "
                              "\"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "
                              "\"content\": \"b\"}, {\"role\": \"user\", \"content\": \"c\"}, {\"role\": "
                              "\"assistant\", \"content\": \"d\"}]}";
    static const char text[] = "<system>s</><user>a</><assistant>b</><user>c</><assistant>d</>";
    expect_form(two, chatml, text, "b</>d</>");
    expect_form(two, marked, text, "b</>d</>");
    expect_form("{\"conversations\": [{\"from\": \"human\", \"value\": \"a\"}, {\"from\": \"gpt\", "
                "\"value\": \"b\"}]}",
                chatml, "<user>a</><assistant>b</>", "b</>");
    expect_form("{\"conversations\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "
                "\"content\": \"b\"}]}",
                chatml, "<user>a</><assistant>b</>", "b</>");
    expect_form("{\"prompt\": [{\"role\": \"user\", \"content\": \"a\"}], \"completion\": [{\"role\": "
                "\"assistant\", \"content\": \"b\"}]}",
                chatml, "<user>a</><assistant>b</>", "b</>");
    /* The end token after the last message alone; tools and variables of the example. */
    expect_form(two,
                "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}{% if "
                "add_generation_prompt %}<assistant>{% else %}" END "{% endif %}",
                "<system>s</><user>a</><assistant>b</><user>c</><assistant>d</>" END, "b</>d</>" END);
    expect_form("{\"messages\": [{\"role\": \"assistant\", \"content\": \"b\"}], \"tools\": "
                "\"[{\\\"name\\\": \\\"f\\\"}]\", \"chat_template_kwargs\": {\"x\": 5}}",
                "{{ tools[0].name }}{{ x }}{% generation %}{{ messages[0].content }}{% endgeneration %}",
                "f5b", "b");
}

static void test_all_learned(void **state)
{
    (void)state;
    data_instructions x;
    by_chat *chat;
    const char *path =
        write_text("one.jsonl", "{\"prompt\": \"q\", \"completion\": \"a\"}\n{\"prompt\": [{\"role\": "
                                "\"user\", \"content\": \"a\"}], "
                                "\"completion\": [{\"role\": \"assistant\", \"content\": \"b\"}]}\n");
    assert_int_equal(open_file(&x, path, chatml, (data_instruction_spec){.learn_prompts = true}, &chat),
                     BY_OK);
    expect_sequence(&x, 0, "qa" END, "a" END);
    expect_sequence(&x, 1, "<user>a</><assistant>b</>", "user>a</><assistant>b</>");
    data_instructions_close(&x);
    by_chat_free(chat);
}

static void test_preferences(void **state)
{
    (void)state;
    data_instructions x;
    by_chat *chat;
    const char *path =
        write_text("pairs.jsonl", "{\"prompt\": \"q \", \"chosen\": \"good\", \"rejected\": \"bad\"}\n"
                                  "{\"chosen\": \"say yes\", \"rejected\": \"say no\"}\n"
                                  "{\"prompt\": [{\"role\": \"user\", \"content\": \"a\"}], \"chosen\": "
                                  "\"x\", \"rejected\": [{\"role\": \"assistant\", \"content\": \"y\"}]}\n"
                                  "{\"chosen\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": "
                                  "\"assistant\", \"content\": \"x\"}], "
                                  "\"rejected\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": "
                                  "\"assistant\", \"content\": \"y\"}]}\n");
    assert_int_equal(open_file(&x, path, chatml, (data_instruction_spec){.kind = DATA_PREFERENCES}, &chat),
                     BY_OK);
    assert_int_equal(x.count, 8);
    expect_sequence(&x, 0, "q good" END, "good" END);
    expect_sequence(&x, 1, "q bad" END, "bad" END);
    expect_sequence(&x, 2, "say yes" END, " yes" END);
    expect_sequence(&x, 3, "say no" END, " no" END);
    for (int i = 4; i < 8; i += 2) {
        expect_sequence(&x, i, "<user>a</><assistant>x</>", "x</>");
        expect_sequence(&x, i + 1, "<user>a</><assistant>y</>", "y</>");
    }
    assert_true(x.list[4].good && !x.list[5].good && x.list[4].line == 3 && x.list[7].line == 4);
    data_row_groups g;
    assert_int_equal(data_rows_shuffled(&x.rows, 4, 1, &g), BY_OK); /* pairs stay together */
    for (int i = 0; i < 8; i += 2)
        assert_true(g.rows[i] % 2 == 0 && g.rows[i + 1] == g.rows[i] + 1);
    data_row_groups_free(&g);
    data_instructions_close(&x);
    by_chat_free(chat);
    /* A shared message may have more than text: what both begin with is the prompt. */
    path = write_text(
        "parts.jsonl",
        "{\"chosen\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}]}, "
        "{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"name\": \"f\", \"x\": null}]}, "
        "{\"role\": \"assistant\", \"content\": \"x\"}], \"rejected\": [{\"content\": [{\"text\": "
        "\"a\", \"type\": \"text\"}], \"role\": \"user\"}, {\"role\": \"assistant\", "
        "\"tool_calls\": [{\"name\": \"f\"}]}, {\"role\": \"assistant\", \"content\": \"y\"}]}\n");
    assert_int_equal(
        open_file(&x, path,
                  "{% for m in messages %}<{{ m.role }}>{{ m.content if m.content is string else "
                  "'.' }}</>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}",
                  (data_instruction_spec){.kind = DATA_PREFERENCES}, &chat),
        BY_OK);
    expect_sequence(&x, 0, "<user>.</><assistant>.</><assistant>x</>", "x</>");
    expect_sequence(&x, 1, "<user>.</><assistant>.</><assistant>y</>", "y</>");
    data_instructions_close(&x);
    by_chat_free(chat);
    path = write_text("judged.jsonl", "{\"prompt\": \"q\", \"completion\": \"a\", \"label\": "
                                      "true}\n{\"prompt\": \"q\", \"completion\": \"b\", \"label\": false}");
    assert_int_equal(open_file(&x, path, NULL, (data_instruction_spec){.kind = DATA_JUDGEMENTS}, &chat),
                     BY_OK);
    assert_true(x.count == 2 && x.list[0].good && !x.list[1].good);
    data_instructions_close(&x);
}

static const char *write_pairs(int count)
{
    base_buf text = {0};
    for (int i = 0; i < count; i++)
        base_buf_printf(&text, "{\"prompt\": \"q%d \", \"chosen\": \"good%d\", \"rejected\": \"bad%d\"%s}\n",
                        i, i, i, i == 2 ? ", \"margin\": 1.5" : "");
    assert_false(text.failed);
    const char *path = write_text("pairs.jsonl", text.data);
    base_buf_free(&text);
    return path;
}

static void test_held_out(void **state)
{
    (void)state;
    data_instructions x, held;
    by_chat *chat;
    bool seen[10] = {0};
    const char *path = write_pairs(10);
    assert_int_equal(open_file(&x, path, NULL, (data_instruction_spec){.kind = DATA_PREFERENCES}, &chat),
                     BY_OK);
    assert_true(x.examples == 10 && x.margins);
    assert_int_equal(data_instructions_hold_out(&x, 0.3, &held), BY_OK);
    assert_true(held.examples == 3 && held.count == 6 && held.rows.count == 6);
    assert_true(x.examples == 7 && x.count == 14 && x.rows.count == 14);
    assert_true(x.margins != held.margins);
    for (int k = 0; k < 2; k++) {
        const data_instructions *part = k ? &held : &x;
        for (int i = 0; i < part->count; i++) {
            char whole[64], answer[40];
            const int e = part->list[i].example;
            snprintf(answer, sizeof answer, "%s%d" END, i % 2 ? "bad" : "good", e);
            snprintf(whole, sizeof whole, "q%d %s", e, answer);
            expect_sequence(part, i, whole, answer);
            assert_true(part->list[i].good == !(i % 2) && (i % 2 || !seen[e]));
            assert_true(isnan(part->list[i].margin) == (e != 2));
            seen[e] = true;
        }
    }
    data_instructions_close(&x);
    data_instructions_close(&held);
    assert_int_equal(open_file(&x, path, NULL, (data_instruction_spec){.kind = DATA_PREFERENCES}, &chat),
                     BY_OK);
    assert_int_equal(data_instructions_hold_out(&x, 0.01, &held), BY_ERR_ARGUMENT);
    assert_non_null(strstr(by_error_message(), "leaves nothing"));
    data_instructions_close(&x);
    data_instructions_close(&held);
}

static void test_mismatched(void **state)
{
    (void)state;
    data_instructions x, other;
    by_chat *chat;
    assert_int_equal(open_file(&x, write_pairs(3), NULL,
                               (data_instruction_spec){.kind = DATA_JUDGEMENTS, .limit = 8}, &chat),
                     BY_OK);
    assert_true(x.count == 6 && x.list[0].good && !x.list[1].good);
    assert_int_equal(data_instructions_mismatch(&x, &other), BY_OK);
    assert_int_equal(other.rows.count, 6);
    expect_sequence(&other, 0, "q0 bad2" END, "bad2" END); /* the first follows the last */
    expect_sequence(&other, 1, "q0 bad2" END, "bad2" END);
    expect_sequence(&other, 2, "q1 bad0" END, "bad0" END);
    expect_sequence(&other, 5, "q2 bad1" END, "bad1" END);
    assert_true(other.list[4].good && !other.list[5].good);
    data_instructions_close(&x);
    data_instructions_close(&other);
    assert_int_equal(
        open_file(&x, write_pairs(1), NULL, (data_instruction_spec){.kind = DATA_JUDGEMENTS}, &chat), BY_OK);
    assert_int_equal(data_instructions_mismatch(&x, &other), BY_ERR_ARGUMENT);
    data_instructions_close(&x);
    data_instructions_close(&other);
}

static void test_errors(void **state)
{
    (void)state;
    expect_error(DATA_TUNING, "{\"text\": \"a\"}\n{\"txt\": 1}", NULL, "one.jsonl, line 2: the object needs");
    expect_error(DATA_TUNING, "{\"messages\": []}", NULL, "the model has no chat template");
    expect_error(DATA_TUNING, "{\"text\": \"a\"", NULL, "unexpected end of JSON (line 1");
    expect_error(DATA_TUNING, "[{\"text\": \"abc\"}", NULL, "never closed");
    expect_error(DATA_TUNING, "[{\"text\": \"abc\"} {\"text\": \"a\"}]", NULL, "missing comma");
    expect_error(DATA_TUNING, "[{\"text\": \"abc\"},", NULL, "never closed");
    expect_error(DATA_TUNING, "[{\"text\": \"abc\"}] more", NULL, "unexpected content after the list");
    expect_error(DATA_TUNING, "{\"instruction\": \"a\", \"input\": 5, \"output\": \"b\"}", NULL,
                 "\"input\" is not a text");
    expect_error(DATA_PREFERENCES,
                 "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\", \"margin\": 1e300}", NULL,
                 "\"margin\" is not a number");
    expect_error(DATA_TUNING, "", NULL, "the file has no examples");
    expect_error(DATA_TUNING, "[1]", NULL, "not a JSON object");
    expect_error(DATA_TUNING, "{\"conversations\": [{\"from\": \"cat\", \"value\": \"a\"}]}", chatml,
                 "message 1 of \"conversations\"");
    expect_error(DATA_TUNING, "{\"prompt\": \"a\", \"completion\": [1]}", chatml,
                 "must be texts or lists of messages");
    expect_error(DATA_TUNING, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}",
                 "{{ raise_exception('no') }}", "refuses the conversation: no");
    expect_error(DATA_TUNING,
                 "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "
                 "\"content\": \"b\"}]}",
                 "{{ messages|length }}{% for m in messages %}{{ m.content }}{% endfor %}",
                 "use a template that marks answers");
    expect_error(DATA_PREFERENCES, "{\"chosen\": \"a\"}", NULL, "\"chosen\" and \"rejected\"");
    expect_error(DATA_JUDGEMENTS, "{\"prompt\": \"a\", \"completion\": \"b\", \"label\": \"x\"}", NULL,
                 "\"label\" (true or false)");
}

/* ---- batches -------------------------------------------------------------------------------------------------- */

static void test_targets(void **state)
{
    (void)state;
    data_instructions x;
    by_chat *chat;
    data_instruction_batch b = {0};
    const char *path = write_text(
        "one.jsonl", "{\"prompt\": \"ab\", \"completion\": \"cd\"}\n{\"prompt\": \"xy\", \"completion\": \""
                     "zzzzzzzzzzzz"
                     "\"}\n");
    assert_int_equal(open_file(&x, path, NULL, (data_instruction_spec){.limit = 8}, &chat), BY_OK);
    assert_int_equal(x.shortened, 1);
    assert_int_equal(data_instructions_batch(&x, (int[]){0, 1}, 2, 3, &b), BY_OK);
    const by_batch *batch = &b.rows.batch;
    assert_true(batch->batch == 3 && batch->seq == 8 && b.counted == 3 + 6);
    static const int32_t expected[24] = {-100, 'c',  'd',  256,  -100, -100, -100, -100,
                                         -100, 'z',  'z',  'z',  'z',  'z',  'z',  -100,
                                         -100, -100, -100, -100, -100, -100, -100, -100};
    assert_memory_equal(by_batch_ids(batch, "targets"), expected, sizeof expected);
    assert_null(by_batch_find(batch, "positions"));
    data_instruction_batch_free(&b);
    data_instructions_close(&x);
    /* Nothing to learn is left. */
    assert_int_equal(
        open_file(&x,
                  write_text("one.jsonl",
                             "{\"prompt\": \"abcdefghij\", \"completion\": \"c\"}\n{\"text\": \"ab\"}"),
                  NULL, (data_instruction_spec){.limit = 8}, &chat),
        BY_OK);
    assert_true(x.left_out == 1 && x.count == 1 && x.tokens.count == 3);
    base_buf words = {0};
    data_instructions_describe(&x, &words);
    assert_string_equal(
        words.data,
        "1 example, 3 tokens, 2 learned (67%); 1 shortened to 8 tokens; 1 left out: nothing to learn");
    base_buf_free(&words);
    data_instructions_close(&x);
}

static void test_best_fit(void **state)
{
    (void)state;
    int counts[1000], row[1000], used[1000] = {0};
    const int limit = 130;
    base_rng r = base_rng_make(1, 1);
    long total = 0;
    for (int i = 0; i < 1000; i++)
        total += counts[i] = 1 + (int)base_rng_below(&r, (uint64_t)limit);
    const int rows = data_best_fit(counts, 1000, limit, row);
    for (int i = 0; i < 1000; i++) {
        assert_in_range(row[i], 0, rows - 1);
        used[row[i]] += counts[i];
    }
    for (int i = 0; i < rows; i++)
        assert_in_range(used[i], 1, limit);
    assert_true((double)total / ((double)rows * limit) > 0.97);
    const int simple[] = {5, 3, 4, 2, 6, 1};
    assert_int_equal(data_best_fit(simple, 6, 7, row), 3); /* 6 1, 5 2, 4 3 */
    assert_true(row[4] == row[5] && row[0] == row[3] && row[1] == row[2]);
}

/* The mean loss over learned tokens. */
static double loss_of(by_model *m, const data_instructions *x, int64_t *counted)
{
    data_row_groups g;
    data_instruction_batch b = {0};
    by_passes *passes = by_passes_new(m, &(by_pass_spec){.grads = BY_GRAD_NONE}, 0);
    double sum = 0;
    *counted = 0;
    assert_int_equal(data_rows_by_length(&x->rows, 3, &g), BY_OK);
    for (int i = 0; i < g.count; i++) {
        float loss;
        assert_int_equal(data_instructions_batch(x, g.rows + g.first[i], g.first[i + 1] - g.first[i], 3, &b),
                         BY_OK);
        by_pass *p = by_passes_get(passes, &b.rows.batch);
        if (!p || by_pass_run(p, &b.rows.batch) != BY_OK)
            fail_msg("%s", by_error_message());
        assert_int_equal(by_pass_read(p, by_pass_loss(p), &loss), BY_OK);
        sum += (double)loss * (double)b.counted;
        *counted += b.counted;
    }
    data_row_groups_free(&g);
    data_instruction_batch_free(&b);
    by_passes_free(passes);
    return sum / (double)*counted;
}

/* Packed rows compute what the examples compute alone: positions start again, and attention stays inside. */
static void test_packing(void **state)
{
    (void)state;
    static const char *const families[] = {"gpt2", "llama", "gptj", "openai-gpt"};
    base_buf text = {0};
    base_rng r = base_rng_make(5, 1);
    for (int i = 0; i < 20; i++)
        base_buf_printf(&text, "{\"prompt\": \"question %u\", \"completion\": \"%.*s\"}\n", base_rng_u32(&r),
                        1 + (int)base_rng_below(&r, 30), "abcdefghijklmnopqrstuvwxyz0123456789");
    const char *path = write_text("pack.jsonl", text.data);
    base_buf_free(&text);
    for (int i = 0; i < BY_COUNT(families); i++) {
        by_model *m = new_model(families[i]);
        data_instructions alone, packed;
        int64_t n, k;
        assert_non_null(m);
        assert_int_equal(
            data_instructions_open(&alone, path, m, bytes, &(data_instruction_spec){.limit = 100}), BY_OK);
        assert_int_equal(data_instructions_open(&packed, path, m, bytes,
                                                &(data_instruction_spec){.limit = 100, .pack = true}),
                         BY_OK);
        assert_true(alone.rows.count == 20 && packed.rows.count < 12);
        const double a = loss_of(m, &alone, &n), b = loss_of(m, &packed, &k);
        assert_int_equal(n, k);
        if (fabs(a - b) > 2e-6 * a)
            fail_msg("%s: %.9g alone, %.9g packed", families[i], a, b);
        data_instructions_close(&alone);
        data_instructions_close(&packed);
        by_model_free(m);
    }
    by_model *m = new_model("lstm");
    data_instructions x;
    assert_int_equal(
        m ? data_instructions_open(&x, path, m, bytes, &(data_instruction_spec){.limit = 100, .pack = true})
          : BY_OK,
        BY_ERR_UNSUPPORTED);
    data_instructions_close(&x);
    by_model_free(m);
}

/* ---- real files ------------------------------------------------------------------------------------------------- */

static const char *shared_file(const char *name)
{
    static char path[1024];
    const char *shared = getenv("BANYAN_SHARED");
    snprintf(path, sizeof path, "%s/data/tasks/%s", shared ? shared : BY_SOURCE_DIR "/../shared", name);
    if (!base_file_exists(path)) {
        print_message("%s is not there\n", path);
        skip();
    }
    return path;
}

static void test_real_files(void **state)
{
    (void)state;
    data_instructions x;
    by_chat *chat;
    assert_int_equal(open_file(&x, shared_file("instruction/instructions.json"), chatml,
                               (data_instruction_spec){.pack = true}, &chat),
                     BY_OK);
    assert_int_equal(x.count + x.left_out, 1100);
    expect_sequence(&x, 1,
                    "<user>Edit the following sentence for grammar.\n\nHe go to the park every "
                    "day.</><assistant>He goes to the park every day.</>",
                    "He goes to the park every day.</>");
    assert_int_equal(x.rows.count, 279); /* as another program packs these lengths */
    data_instructions_close(&x);
    by_chat_free(chat);
    assert_int_equal(open_file(&x, shared_file("preference/preferences.json"), NULL,
                               (data_instruction_spec){.kind = DATA_PREFERENCES}, &chat),
                     BY_OK);
    assert_int_equal(x.count / 2 + x.left_out, 1100);
    char *chosen = text_of(&x, 2, true), *rejected = text_of(&x, 3, true);
    assert_string_equal(chosen, "He goes to the park every day." END);
    assert_string_equal(rejected, "He goes to the stupid park every single day." END);
    by_release(chosen);
    by_release(rejected);
    data_instructions_close(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_forms), cmocka_unit_test(test_conversations),
        cmocka_unit_test(test_all_learned), cmocka_unit_test(test_preferences),
        cmocka_unit_test(test_held_out),    cmocka_unit_test(test_mismatched),
        cmocka_unit_test(test_errors),      cmocka_unit_test(test_targets),
        cmocka_unit_test(test_best_fit),    cmocka_unit_test(test_packing),
        cmocka_unit_test(test_real_files),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
