/* test_chat.c - chat templates: the language, errors with positions, limits, directories, exhausted memory. That published
 * templates render as the reference does is checked by `banyan verify` on recorded ones (test_parity.c); what is expected
 * here was computed by Jinja2. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "allocations.h"
#include "banyan/chat.h"
#include "base/base.h"
#include "folder.h"

static const char two_messages[] =
    "[{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": \"assistant\", \"content\": \"Yo\"}]";

/* ---- rendering -------------------------------------------------------------------------------------------- */

static by_status render_with(const char *template, const by_chat_input *in, by_chat_text *out)
{
    *out = (by_chat_text){0};
    by_chat *c = by_chat_new(template, strlen(template), "t");
    by_status s = c ? by_chat_render(c, in, out) : base_error_status();
    by_chat_free(c);
    return s;
}

static by_status render(const char *template, by_chat_text *out)
{
    const by_chat_input in = {
        .messages = two_messages,
        .variables = "{\"d\": {\"a\": 1, \"items\": [1.0, null, true]}, \"s\": \"x<y\", \"n\": 3}",
        .now = "2026-01-05 09:07:03"};
    return render_with(template, &in, out);
}

static void expect(const char *template, const char *text)
{
    by_chat_text t;
    if (render(template, &t) != BY_OK)
        fail_msg("%s: %s", template, by_error_message());
    if (strcmp(t.text, text) != 0)
        fail_msg("%s: \"%s\" instead of \"%s\"", template, t.text, text);
    by_chat_text_free(&t);
}

/* The message must contain this. */
static void expect_error(const char *template, const char *message)
{
    by_chat_text t;
    if (render(template, &t) == BY_OK)
        fail_msg("%s: rendered \"%s\"", template, t.text);
    if (!strstr(by_error_message(), message))
        fail_msg("%s: \"%s\" instead of \"%s\"", template, by_error_message(), message);
    assert_null(t.text);
    by_chat_text_free(&t);
}

static void test_white_space(void **state)
{
    (void)state;
    expect("a\n  {% if true %}\nb\n  {% endif %}\nc\n", "a\nb\nc");
    expect("a\n  {%+ if true +%}\nb\n  {%- endif -%}\n c", "a\n  \nbc");
    expect("  {{ 1 }}\n  {{- 2 -}}\n x", "  12x");
    expect("  {# c #}\nx {#- d -#} y\n\n", "xy\n");
    expect("{% raw %}{{ x }} {% y %}{% endraw %}!", "{{ x }} {% y %}!");
    expect("a\r\nb\rc\r\n", "a\nb\nc");
    expect("{{ '}}' }}{{ {'a': {}} }}", "}}{'a': {}}");
}

static void test_values(void **state)
{
    (void)state;
    expect("{{ [1.0, 1e20, 1.5e-07, 100000, none, true, 'it\\'s'] }}",
           "[1.0, 1e+20, 1.5e-07, 100000, None, True, \"it's\"]");
    expect("{{ d }}|{{ d.items }}|{{ d['items'] }}",
           "{'a': 1, 'items': [1.0, None, True]}|<method>|[1.0, None, True]");
    expect("{{ d|tojson }}{{ d|tojson(indent=1) }}",
           "{\"a\": 1, \"items\": [1.0, null, true]}"
           "{\n \"a\": 1,\n \"items\": [\n  1.0,\n  null,\n  true\n ]\n}");
    expect("{{ 'a\\u00e9\\n\"'|tojson }}{{ 'é'|tojson(ensure_ascii=true) }}", "\"aé\\n\\\"\"\"\\u00e9\"");
    expect("{{ 7 // 2 }}{{ -7 // 2 }}{{ -7 % 3 }}{{ 7 / 2 }}{{ 2 ** 3 }}{{ 'ab' * 2 }}{{ [1] + [2] }}",
           "3-423.58abab[1, 2]");
    expect("{{ 'äbc'[::-1] }}{{ 'äbc'[1:] }}{{ 'äbc'[-3] }}{{ 'äbc'|length }}", "cbäbcä3");
    expect("{{ 1 < 2 < 3 }}{{ 'b' in 'abc' }}{{ 'a' not in d }}{{ 1 == 1.0 }}{{ x == y }}",
           "TrueTrueFalseTrueTrue");
    expect("{{ s|safe + '<' }}{{ '<' ~ (s|safe) }}", "x<y&lt;<x<y");
    expect("{{ '%s-%03d|%.2f' % ('a', 7, 1.5) }}{{ '{}{1}'.replace('1', '')|length }}{{ "
           "'{0:>4}|{a}'.format(1, a=2) }}",
           "a-007|1.504   1|2");
    expect("{{ 'ß ǆ ﬁ'.upper() }} {{ 'ΑΣ'.lower() }} {{ 'ßa bc'.title() }}", "SS Ǆ FI ας Ssa Bc");
}

static void test_statements(void **state)
{
    (void)state;
    expect("{% for m in messages %}{{ loop.index }}{{ m.role[0] }}{{ loop.last }} {% endfor %}",
           "1uFalse 2aTrue ");
    expect("{% for x in [1, 2, 3, 4] if x % 2 == 0 %}{{ x }}{{ loop.length }}{{ loop.previtem }}{% endfor %}",
           "22422");
    expect("{% for x in [] %}a{% else %}b{% endfor %}", "b");
    expect("{% for x in [1, 2, 3] %}{% if x == 2 %}{% continue %}{% endif %}{{ x }}{% if x == 3 %}{% break "
           "%}{% endif %}{% endfor %}",
           "13");
    expect("{% set ns = namespace(n=0) %}{% for x in [1, 2] %}{% set ns.n = ns.n + x %}{% set y = x %}{% "
           "endfor %}{{ ns.n }}{{ y }}",
           "3");
    expect("{% macro f(a, b='x', c=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(1) }}{{ f(1, c=2) }}{{ "
           "f(b=3, a=4) }}",
           "1x11x2434");
    expect("{% set x %}a{{ n }}{% endset %}{{ x }}{% set a, b = (1, 2) %}{{ a + b }}", "a33");
    expect("{% macro f() %}[{{ caller(2) }}]{% endmacro %}{% call(x) f() %}{{ x }}{% endcall %}", "[2]");
    expect("{% filter upper %}a{{ s }}{% endfilter %}{% with n = n + 1 %}{{ n }}{% endwith %}{{ n }}",
           "AX<Y43");
    expect("{{ messages|selectattr('role', 'equalto', 'user')|map(attribute='content')|join(',') }}", "Hi");
    expect("{{ strftime_now('%d %b %Y, %A %H:%M:%S.%f') }}", "05 Jan 2026, Monday 09:07:03.000000");
}

/* A name belongs to the scope that assigns to it, from its start. */
static void test_scopes(void **state)
{
    (void)state;
    expect("{% for x in [1] %}{{ n }}{% endfor %}{% set n = 1 %}{{ n }}", "1");
    expect("{{ n }}{% for x in [1] %}{{ n }}{% endfor %}{% set n = 1 %}{{ n }}", "331");
    expect("{% if true %}{% set n = 1 %}{% endif %}{{ n }}{% if false %}{% set s = 1 %}{% endif %}{{ s }}",
           "1x<y");
    expect("{% macro f() %}{{ q }}{% endmacro %}{% set q = 5 %}{{ f() }}", "5");
    expect("{% generation %}{% set q = 1 %}{{ q }}{% endgeneration %}{{ q }}", "1");
}

static void test_spans(void **state)
{
    (void)state;
    by_chat_text t;
    assert_int_equal(
        render("é{% for m in messages %}<{% generation %}{{ m.content }}é{% endgeneration %}>{% endfor %}",
               &t),
        BY_OK);
    assert_string_equal(t.text, "é<Hié><Yoé>");
    assert_int_equal(t.span_count, 2);
    assert_int_equal(t.spans[0].start, 3);
    assert_int_equal(t.spans[0].end, 7);
    assert_int_equal(t.spans[1].start, 9);
    assert_int_equal(t.spans[1].end, 13);
    by_chat_text_free(&t);
}

/* ---- errors ------------------------------------------------------------------------------------------------ */

static void test_errors(void **state)
{
    (void)state;
    expect_error("a\n {{ 1 + }}", "t, line 2, column 9: expected an expression");
    expect_error("{% if x %}", "the template ends before {% endif %}");
    expect_error("{% foo %}", "t, line 1, column 4: unknown tag foo");
    expect_error("{% include 'x' %}", "the tag include is not supported");
    expect_error("{{ 'a }}", "the string is never closed");
    expect_error("{{ (1] }}", "unbalanced bracket");
    expect_error("{% break %}", "break outside of a loop");
    expect_error("{% for loop in x %}{% endfor %}", "loop cannot be assigned to");
    expect_error("é{{ x.y }}", "t, line 1, column 6: 'x' is undefined");
    expect_error("{{ messages[0].zz + 'a' }}", "'dict object' has no attribute 'zz'");
    expect_error("{{ 'a' + 1 }}", "unsupported operand types for +: 'str' and 'int'");
    expect_error("{{ 1 / 0 }}", "division by zero");
    expect_error("{{ none|length }}", "object of type 'NoneType' has no length");
    expect_error("{{ messages.append(1) }}", "would change its object");
    expect_error("{{ 1|nothing }}", "no filter named 'nothing'");
    expect_error("{{ 1 is nothing }}", "no test named 'nothing'");
    expect_error("{{ 'a'|wordwrap }}", "the filter wordwrap is not supported");
    expect_error("{% set d.x = 1 %}", "namespace only");
    expect_error("\xff", "not UTF-8");
    by_chat_text t;
    assert_int_equal(render("{{ raise_exception('no: ' ~ n) }}", &t), BY_ERR_ARGUMENT);
    assert_string_equal(t.exception, "no: 3");
    assert_non_null(strstr(by_error_message(), "line 1, column 19"));
    by_chat_text_free(&t);
}

/* Templates that would not end, or fill the memory. */
static void test_limits(void **state)
{
    (void)state;
    static const char *const hostile[] = {
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% for a in range(99999) %}{% for b in range(99999) %}{{ a }}{% endfor %}{% endfor %}",
        "{% set ns = namespace(x='a') %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
        "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x "
        "}}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(90) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ "
        "ns.x == ns.x|list }}",
        "{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}",
        "{{ 'a' * 99999999999 }}",
        "{{ [1] * 99999999999 }}",
        "{{ range(999999999)|list }}",
        "{{ 9223372036854775807 + 1 }}",
        "{{ 'x'.center(99999999999) }}",
        "{{ '%99999999d' % 1 }}",
    };
    for (int i = 0; i < BY_COUNT(hostile); i++) {
        by_chat_text t;
        const by_chat_input in = {.messages = "[]", .max_steps = 3000000, .max_bytes = 32 << 20};
        assert_int_not_equal(render_with(hostile[i], &in, &t), BY_OK);
        if (!strstr(by_error_message(), "t, line 1, column "))
            fail_msg("%s: %s", hostile[i], by_error_message());
        by_chat_text_free(&t);
    }
    static char deep[20000];
    memset(deep, '(', 9000);
    memcpy(deep, "{{ ", 3);
    expect_error(deep, "too deeply");
    memset(deep, '-', 9000);
    memcpy(deep, "{{ ", 3);
    strcpy(deep + 9000, "1 }}");
    expect_error(deep, "too deeply");
    strcpy(deep, "{{ 1");
    for (int i = 0; i < 2000; i++)
        strcat(deep, " + 1");
    strcat(deep, " }}");
    expect_error(deep, "too long");
}

static void test_bad_input(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "", "[", "[1]", "{}", "[{\"a\": 01}]", "[{\"a\" 1}]", "[{\"a\": \"\\ud800\"}]", "[] x", "[\"\x01\"]"};
    by_chat_text t;
    for (int i = 0; i < BY_COUNT(bad); i++) {
        assert_int_not_equal(render_with("x", &(by_chat_input){.messages = bad[i]}, &t), BY_OK);
        by_chat_text_free(&t);
    }
    assert_int_not_equal(render_with("x", &(by_chat_input){.messages = "[]", .tools = "[1]"}, &t), BY_OK);
    assert_int_not_equal(render_with("x", &(by_chat_input){.messages = "[]", .variables = "[1]"}, &t), BY_OK);
    assert_int_not_equal(render_with("x", &(by_chat_input){.messages = "[]", .now = "today"}, &t), BY_OK);
    assert_int_not_equal(render_with("x", &(by_chat_input){.messages = "[]", .template_name = "z"}, &t),
                         BY_OK);
    assert_null(by_chat_open(NULL));
    assert_null(by_chat_open("/nowhere"));
    assert_int_equal(by_chat_render(NULL, NULL, NULL), base_error_status());
    by_chat_free(NULL);
    by_chat_text_free(NULL);
    /* A NUL inside a text, and an integer of any size, pass through. */
    assert_int_equal(
        render_with("{{ messages[0].a }}{{ messages[0].b }}",
                    &(by_chat_input){.messages = "[{\"a\": \"x\\u0000y\", \"b\": 123456789012345678901}]"},
                    &t),
        BY_OK);
    assert_int_equal(t.size, 24);
    assert_memory_equal(t.text, "x\0y123456789012345678901", 24);
    by_chat_text_free(&t);
}

/* ---- directories ---------------------------------------------------------------------------------------------- */

static void expect_of(const char *path, const by_chat_input *in, const char *text)
{
    by_chat *c = by_chat_open(path);
    by_chat_text t;
    if (!c || by_chat_render(c, in, &t) != BY_OK)
        fail_msg("%s", by_error_message());
    assert_string_equal(t.text, text);
    by_chat_text_free(&t);
    by_chat_free(c);
}

static void test_directories(void **state)
{
    (void)state;
    const by_chat_input plain = {.messages = "[]"}, tools = {.messages = "[]", .tools = "[]"},
                        named = {.messages = "[]", .template_name = "rag"};
    assert_true(make_root("chat"));
    assert_null(by_chat_open(root));
    assert_non_null(strstr(by_error_message(), "no chat template"));
    write_text("tokenizer_config.json",
               "{\"bos_token\": {\"content\": \"<s>\"}, \"eos_token\": \"</s>\", \"chat_template\": ["
               "{\"name\": \"default\", \"template\": \"D{{ bos_token }}\"}, {\"name\": \"tool_use\", "
               "\"template\": \"T{{ eos_token }}\"}]}");
    expect_of(root, &plain, "D<s>");
    expect_of(root, &tools, "T</s>");
    expect_of(in_root("tokenizer_config.json"), &plain, "D<s>");
    write_text("chat_template.jinja", "J{{ bos_token }}{{ pad_token }}\n");
    write_text("special_tokens_map.json", "{\"bos_token\": \"other\", \"pad_token\": \"<p>\"}");
    assert_int_equal(base_dir_make(in_root("additional_chat_templates")), BY_OK);
    write_text("additional_chat_templates/rag.jinja", "R");
    expect_of(root, &plain, "J<s><p>");
    expect_of(root, &named, "R");
    expect_of(in_root("chat_template.jinja"), &plain, "J");
    write_text("chat_template.jinja", "{{");
    assert_null(by_chat_open(root));
    assert_non_null(strstr(by_error_message(), "chat_template.jinja, line 1"));
    assert_int_equal(base_dir_remove(root), BY_OK);
}

/* Every allocation fails once: an error, and nothing is lost. */
static void test_memory(void **state)
{
    (void)state;
    static const char template[] =
        "{% macro f(a) %}{{ a|tojson }}{% endmacro %}{% for m in messages %}{% generation %}"
        "{{ f(m) ~ m.content.split('i')|join('-')|upper }}{% endgeneration %}{% endfor %}";
    for (long i = 0;; i++) {
        by_chat_text t;
        const long before = alive;
        until_failure = i;
        const by_status s = render(template, &t);
        const bool done = until_failure >= 0;
        until_failure = -1;
        by_chat_text_free(&t);
        assert_int_equal(alive, before);
        if (done) {
            assert_int_equal(s, BY_OK);
            break;
        }
        assert_int_equal(s, BY_ERR_MEMORY);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_white_space), cmocka_unit_test(test_values),
        cmocka_unit_test(test_statements),  cmocka_unit_test(test_scopes),
        cmocka_unit_test(test_spans),       cmocka_unit_test(test_errors),
        cmocka_unit_test(test_limits),      cmocka_unit_test(test_bad_input),
        cmocka_unit_test(test_directories), cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
