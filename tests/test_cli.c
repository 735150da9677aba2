/* test_cli.c - the command-line framework: parsing against a table, suggestions, help, man page, completion,
 * progress and interrupts. The verbs themselves are tested through the program. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/options.c"
#include "cli/aliases.c"
#include "cli/help.c"
#include "cli/completion.c"
#include "cli/report.c"
#include "cli/progress.c"

typedef struct sample {
    int steps, mode;
    int64_t tokens;
    double rate;
    const char *model, *device, *prompt;
    bool json, shuffle;
    cli_list data;
    by_dtype dtype;
} sample;

static const cli_option rows[] = {
    {CLI_AT(sample, model), .name = "model", .letter = 'm', .value = "NAME", .preset = "gpt2",
     .help = "architecture"},
    {CLI_AT(sample, device), .name = "device", .choices = "cpu|cuda", .preset = "cpu", .help = "where"},
    {CLI_AT(sample, dtype), .name = "dtype", .choices = "f32|bf16|f16", .preset = "bf16",
     .help = "element type"},
    {CLI_AT(sample, mode), .name = "mode", .choices = "slow|fast", .help = "how"},
    {CLI_AT(sample, steps), .name = "max-steps", .letter = 'n', CLI_MIN(1), .preset = "100",
     .help = "stop after N steps", .group = "Training"},
    {CLI_AT(sample, tokens), .name = "tokens", .suffix = true,
     .help = "it's a [budget]: stop after N tokens"},
    {CLI_AT(sample, rate), .name = "learning-rate", .alias = "lr", CLI_RANGE(0, 1), .preset = "3e-4",
     .help = "peak rate"},
    {CLI_AT(sample, shuffle), .name = "shuffle", .letter = 's', .preset = "yes", .help = "shuffle the data"},
    {CLI_AT(sample, data), .name = "data", .letter = 'd', .value = "FILE", .preset = "-",
     .help = "training text"},
    {CLI_AT(sample, prompt), .name = "prompt", .letter = 'p', .help = "text to continue"},
    {CLI_AT(sample, json), .name = "json", .letter = 'j', .help = "machine-readable result"},
};

static const cli_verb verb = {
    .name = "sample",
    .summary = "try the table",
    .args = "slow|fast [FILE...]",
    .description = "One paragraph that\nis wrapped.\n\n  kept   as it is\n",
    .examples = "banyan sample slow\n",
    .options = rows,
    .option_count = BY_COUNT(rows),
};

static sample got;
static cli_args args;
static char *line[32];

/* Parse the words after the verb's name, up to NULL. */
static by_status parse(const char *first, ...)
{
    int n = 0;
    va_list words;
    va_start(words, first);
    line[n++] = "sample";
    for (const char *w = first; w && n < BY_COUNT(line) - 1; w = va_arg(words, const char *))
        line[n++] = (char *)(uintptr_t)w;
    va_end(words);
    line[n] = NULL;
    cli_args_free(&args);
    base_error_clear();
    return cli_options_parse(&verb, n, line, &got, sizeof got, &args);
}

static void refuse(by_status status, const char *message)
{
    assert_int_equal(status, BY_ERR_ARGUMENT);
    assert_string_equal(by_error_message(), message);
}

static int drop_args(void **state)
{
    (void)state;
    cli_args_free(&args);
    return 0;
}

static void test_defaults(void **state)
{
    (void)state;
    assert_int_equal(parse("slow", NULL), BY_OK);
    assert_int_equal(got.steps, 100);
    assert_int_equal(got.mode, 0);
    assert_int_equal(got.tokens, 0);
    assert_true(got.rate == 3e-4);
    assert_string_equal(got.model, "gpt2");
    assert_int_equal(got.dtype, BY_BF16);
    assert_true(got.shuffle);
    assert_false(got.json);
    assert_null(got.prompt);
    assert_int_equal(got.data.count, 1);
    assert_string_equal(got.data.items[0], "-");
    assert_false(cli_given(&args, &got.steps));
}

static void test_spellings(void **state)
{
    (void)state;
    assert_int_equal(
        parse("--max-steps", "5", "--learning_rate=0.5", "-mbert", "slow", "--no-shuffle", "--json", NULL),
        BY_OK);
    assert_int_equal(got.steps, 5);
    assert_true(got.rate == 0.5);
    assert_string_equal(got.model, "bert");
    assert_false(got.shuffle);
    assert_true(got.json);
    assert_true(cli_given(&args, &got.steps));
    assert_true(cli_given(&args, &got.shuffle));
    assert_false(cli_given(&args, &got.device));

    assert_int_equal(
        parse("slow", "-sjn", "7", "--lr", "1", "--mode=fast", "--dtype", "f16", "--device=cuda", NULL),
        BY_OK);
    assert_int_equal(got.steps, 7);
    assert_true(got.json);
    assert_int_equal(got.mode, 1);
    assert_int_equal(got.dtype, BY_F16);
    assert_string_equal(got.device, "cuda");

    assert_int_equal(parse("slow", "-n=8", "--json=off", "--shuffle=0", "--prompt=", "--no_shuffle", NULL),
                     BY_OK);
    assert_int_equal(got.steps, 8);
    assert_string_equal(got.prompt, "");
    assert_false(got.json);
}

static void test_positionals_and_lists(void **state)
{
    (void)state;
    assert_int_equal(parse("fast", "-d", "a", "-", "--data=b", "-5", "--", "--json", "-x", NULL), BY_OK);
    assert_int_equal(args.count, 5);
    assert_string_equal(args.items[0], "fast");
    assert_string_equal(args.items[1], "-");
    assert_string_equal(args.items[2], "-5");
    assert_string_equal(args.items[3], "--json");
    assert_string_equal(args.items[4], "-x");
    assert_null(args.items[5]);
    assert_false(got.json);
    assert_int_equal(got.data.count, 2); /* in place of the default */
    assert_string_equal(got.data.items[0], "a");
    assert_string_equal(got.data.items[1], "b");

    refuse(parse(NULL), "missing slow|fast (see banyan sample --help)");
    refuse(parse("fats", NULL), "the argument must be one of slow, fast, got 'fats'; did you mean fast?");
    static const cli_verb bare = {.name = "bare"};
    cli_args_free(&args);
    line[0] = "bare", line[1] = "x", line[2] = NULL;
    refuse(cli_options_parse(&bare, 2, line, &got, sizeof got, &args),
           "unexpected argument 'x' (see banyan bare --help)");
}

static void test_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t value;
    } good[] = {{"0", 0},
                {"64k", 64000},
                {"64K", 64000},
                {"64Ki", 65536},
                {"1M", 1000000},
                {"1.5M", 1500000},
                {"2Gi", INT64_C(1) << 31},
                {"-3", -3},
                {"+4", 4},
                {"1e6", 1000000},
                {"9223372036854775807", INT64_MAX}};
    static const char *const bad[] = {"",     "x",   "1.5", "12q", "64kk", "64kib",
                                      "0x10", "inf", "nan", " 5",  "1e30", "9223372036854775808"};
    for (int i = 0; i < BY_COUNT(good); i++) {
        assert_int_equal(parse("slow", "--tokens", good[i].text, NULL), BY_OK);
        assert_true(got.tokens == good[i].value);
    }
    for (int i = 0; i < BY_COUNT(bad); i++)
        assert_int_equal(parse("slow", "--tokens", bad[i], NULL), BY_ERR_ARGUMENT);
    refuse(parse("slow", "-n", "5k", NULL), "--max-steps must be a whole number, got '5k'");
    refuse(parse("slow", "-n", "0", NULL), "--max-steps must be at least 1, got 0");
    refuse(parse("slow", "-n", "3000000000", NULL), "--max-steps is out of range: 3000000000");
    refuse(parse("slow", "--lr", "1.5", NULL), "--learning-rate must be between 0 and 1, got 1.5");
    refuse(parse("slow", "--lr", "-1e-9", NULL), "--learning-rate must be between 0 and 1, got -1e-9");
    refuse(parse("slow", "--lr", "nan", NULL), "--learning-rate must be a number, got 'nan'");
    refuse(parse("slow", "--lr", "1x", NULL), "--learning-rate must be a number, got '1x'");
}

static void test_refusals(void **state)
{
    (void)state;
    refuse(parse("--learing-rate", "1", NULL),
           "unknown option --learing-rate; did you mean --learning-rate?");
    refuse(parse("--learn=1", NULL), "unknown option --learn; did you mean --learning-rate?");
    refuse(parse("--no-shufle", NULL), "unknown option --no-shufle; did you mean --no-shuffle?");
    refuse(parse("-lr", "1", NULL), "unknown option -lr; did you mean --lr?");
    refuse(parse("--zebra", NULL), "unknown option --zebra (see banyan sample --help)");
    refuse(parse("--no-model", NULL), "unknown option --no-model (see banyan sample --help)");
    refuse(parse("--no-json=1", NULL), "--no-json takes no value");
    refuse(parse("--json=perhaps", NULL), "--json takes yes or no, not 'perhaps'");
    refuse(parse("--model", NULL), "--model needs a value (NAME)");
    refuse(parse("-m", NULL), "-m needs a value (NAME)");
    refuse(parse("--model", "--json", NULL),
           "--model needs a value (NAME), but --json follows; write --model=--json if that is the value");
    assert_int_equal(parse("slow", "--model=--json", "--prompt", "--not-ours", NULL), BY_OK);
    assert_string_equal(got.model, "--json");
    assert_string_equal(got.prompt, "--not-ours");
    refuse(parse("--device", "cud", NULL),
           "--device must be one of cpu, cuda, got 'cud'; did you mean cuda?");
    refuse(parse("--mode", "xyzzy", NULL), "--mode must be one of slow, fast, got 'xyzzy'");
}

static void test_help_request(void **state)
{
    (void)state;
    assert_int_equal(parse("--help", "--nonsense", NULL), BY_OK);
    assert_true(args.help);
    assert_int_equal(parse("-jh", NULL), BY_OK);
    assert_true(args.help);
    assert_int_equal(parse("slow", "--prompt=--help", NULL), BY_OK);
    assert_false(args.help);
}

static void test_distance(void **state)
{
    (void)state;
    assert_int_equal(edit_distance("kitten", "sitting"), 3);
    assert_int_equal(edit_distance("trian", "train"), 1);
    assert_int_equal(edit_distance("", "abc"), 3);
    assert_int_equal(edit_distance("Same", "same"), 0);
    cli_suggestion s = {.typed = "ab"};
    cli_suggest(&s, "xy");
    assert_null(s.best);
}

static by_status check_rows(const cli_option *table, int count)
{
    cli_verb v = {.name = "v", .options = table, .option_count = count};
    return cli_verb_check(&v);
}

static void test_tables_are_checked(void **state)
{
    (void)state;
    const cli_option letters[] = {{CLI_AT(sample, steps), .name = "a", .letter = 'x', .help = "a"},
                                  {CLI_AT(sample, mode), .name = "b", .letter = 'x', .help = "b"}};
    const cli_option names[] = {{CLI_AT(sample, steps), .name = "a", .help = "a"},
                                {CLI_AT(sample, mode), .name = "b", .alias = "a", .help = "b"}};
    const cli_option preset[] = {
        {CLI_AT(sample, steps), .name = "a", .help = "a", .preset = "0", CLI_MIN(1)}};
    const cli_option no_help[] = {{CLI_AT(sample, steps), .name = "a"}};
    const cli_option no_choices[] = {{CLI_AT(sample, dtype), .name = "a", .help = "a"}};
    const cli_option taken[] = {{CLI_AT(sample, json), .name = "hush", .letter = 'h', .help = "a"}};
    assert_int_equal(cli_verb_check(&verb), BY_OK);
    assert_int_equal(check_rows(letters, 2), BY_ERR_UNSUPPORTED);
    assert_int_equal(check_rows(names, 2), BY_ERR_UNSUPPORTED);
    assert_int_equal(check_rows(preset, 1), BY_ERR_UNSUPPORTED);
    assert_non_null(strstr(by_error_message(), "at least 1"));
    assert_int_equal(check_rows(no_help, 1), BY_ERR_UNSUPPORTED);
    assert_int_equal(check_rows(no_choices, 1), BY_ERR_UNSUPPORTED);
    assert_int_equal(check_rows(taken, 1), BY_ERR_UNSUPPORTED);
}

/* ---- what is written from the table ---------------------------------------------------------- */

static char *written;
static size_t written_size;

static FILE *writing(void)
{
    free(written);
    written = NULL;
    return open_memstream(&written, &written_size);
}

static void assert_contains(const char *part)
{
    if (!strstr(written, part))
        fail_msg("'%s' is not in:\n%s", part, written);
}

static int drop_written(void **state)
{
    (void)state;
    free(written);
    written = NULL;
    return 0;
}

static void test_help_text(void **state)
{
    (void)state;
    for (int width = 40; width <= 100; width += 15) {
        FILE *out = writing();
        cli_help_write(out, &verb, width);
        fclose(out);
        for (const char *s = written; *s; s += strcspn(s, "\n"), s += *s == '\n')
            assert_true(strcspn(s, "\n") <= (size_t)width);
        for (int i = 0; i < BY_COUNT(rows); i++)
            assert_contains(rows[i].name);
    }
    assert_contains("usage: banyan sample [options] slow|fast [FILE...]\n");
    assert_contains("\nOne paragraph that is wrapped.\n\n  kept   as it is\n");
    assert_contains("\nOptions\n  -m, --model NAME");
    assert_contains("\nTraining\n  -n, --max-steps N         stop after N steps (default: 100)\n");
    assert_contains("--[no-]shuffle");
    assert_contains("peak rate; also --lr (default: 3e-4)\n");
    assert_contains("\nExamples\n  banyan sample slow\n");
    assert_null(strstr(strstr(written, "Training") + 1, "Training")); /* a heading stands once */
}

static void test_man_page(void **state)
{
    (void)state;
    FILE *out = writing();
    cli_man_write(out, &verb);
    fclose(out);
    assert_contains(".TH BANYAN\\-SAMPLE 1 ");
    assert_contains(".SS Training\n.TP\n\\fB\\-n\\fR, \\fB\\-\\-max\\-steps\\fR \\fIN\\fR\n");
    assert_contains("it\\(aqs a [budget]");
    out = writing();
    put_roff_string(out, ".start\n'quote \\ -x");
    fclose(out);
    assert_string_equal(written, "\\&.start\n\\&\\(aqquote \\e \\-x");
}

/* Ask bash itself what it would complete; words are the command line, the last one being completed. */
static void bash_completes(const char *words, const char *expected)
{
    const cli_verb *const verbs[] = {&verb};
    char path[] = "/tmp/banyan-cli-XXXXXX", command[512], reply[256] = "";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    FILE *out = fdopen(fd, "w");
    assert_non_null(out);
    assert_true(cli_completion_write(out, "bash", verbs, 1));
    fclose(out);
    snprintf(
        command, sizeof command,
        "bash -c 'compopt() { :; }; . %s; COMP_WORDS=(%s); COMP_CWORD=$((${#COMP_WORDS[@]}-1)); _banyan; "
        "echo \"${COMPREPLY[*]}\"'",
        path, words);
    FILE *shell = popen(command, "r");
    assert_non_null(shell);
    assert_non_null(fgets(reply, sizeof reply, shell));
    pclose(shell);
    unlink(path);
    reply[strcspn(reply, "\n")] = 0;
    assert_string_equal(reply, expected);
}

static void test_completion(void **state)
{
    (void)state;
    const cli_verb *const verbs[] = {&verb};
    FILE *out = writing();
    assert_false(cli_completion_write(out, "tcsh", verbs, 1));
    assert_true(cli_completion_write(out, "zsh", verbs, 1));
    assert_true(cli_completion_write(out, "fish", verbs, 1));
    fclose(out);
    assert_contains("'(--max-steps -n)--max-steps=[stop after N steps]:max-steps:'");
    assert_contains("it'\\''s a \\[budget\\]\\: stop");
    assert_contains("-l device -x -a 'cpu cuda' -d 'where'\n");
    assert_contains("-d 'it\\'s a [budget]: stop after N tokens'\n");
    if (system("bash --version > /dev/null 2>&1") != 0) {
        print_message("bash is not there: its completion was not run\n");
        return;
    }
    bash_completes("banyan sam", "sample");
    bash_completes("banyan sample --de", "--device");
    bash_completes("banyan sample --no-s", "--no-shuffle");
    bash_completes("banyan sample --device \"\"", "cpu cuda");
    bash_completes("banyan sample --device = cu", "cuda");
    bash_completes("banyan sample --dtype =", "f32 bf16 f16");
    bash_completes("banyan sample f", "fast");
    bash_completes("banyan sample --data f", "");
}

/* ---- progress -------------------------------------------------------------------------------- */

static void test_durations(void **state)
{
    (void)state;
    static const struct {
        double seconds;
        const char *text;
    } cases[] = {{0, "0:00"},          {7.4, "0:07"}, {754, "12:34"}, {3723, "1:02:03"},
                 {183840, "2d 03:04"}, {-1, "0:00"},  {NAN, "0:00"}};
    char text[32];
    for (int i = 0; i < BY_COUNT(cases); i++) {
        cli_format_duration(text, sizeof text, cases[i].seconds);
        assert_string_equal(text, cases[i].text);
    }
}

/* Everything that can be read from the descriptor now. */
static void read_now(int fd, char *out, size_t size)
{
    size_t n = 0;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    while (n + 1 < size && poll(&p, 1, 20) == 1 && (p.revents & POLLIN)) {
        ssize_t got_bytes = read(fd, out + n, size - 1 - n);
        if (got_bytes <= 0)
            break;
        n += (size_t)got_bytes;
    }
    out[n] = 0;
}

static void test_plain_lines(void **state)
{
    (void)state;
    int ends[2];
    char text[4096];
    assert_int_equal(pipe(ends), 0);
    cli_progress p = {.label = "train", .first = 10, .total = 35, .every_steps = 10, .fd = ends[1]};
    cli_progress_start(&p);
    for (int i = 11; i <= 35; i++)
        cli_progress_update(&p, i, "loss %d\nx", i);
    cli_progress_end(&p);
    read_now(ends[0], text, sizeof text);
    assert_string_equal(text,
                        "train  20/35  loss 20 x  0:00, 0:00 left\ntrain  30/35  loss 30 x  0:00, 0:00 left\n"
                        "train  35/35  loss 35 x  0:00\n");

    p = (cli_progress){.total = 5, .fd = ends[1]}; /* by time: too early, but the end is told */
    cli_progress_start(&p);
    for (int i = 1; i <= 5; i++)
        cli_progress_update(&p, i, "%d", i);
    cli_progress_end(&p);
    read_now(ends[0], text, sizeof text);
    assert_string_equal(text, "step  5/5  5  0:00\n");
    close(ends[0]);

    signal(SIGPIPE, SIG_IGN);
    p = (cli_progress){.total = 5, .every_steps = 1, .fd = ends[1]};
    cli_progress_start(&p);
    cli_progress_update(&p, 1, "nobody reads this");
    assert_true(p.broken);
    cli_progress_update(&p, 2, "nor this");
    cli_progress_end(&p);
    close(ends[1]);
}

/* The time left follows the last 20 to 40 seconds, not the whole run. */
static void test_time_left(void **state)
{
    (void)state;
    cli_progress p = {.total = 1000, .quiet = true};
    cli_progress_start(&p);
    p.started = 0;
    assert_true(time_left(&p, 0, 5) < 0);
    note_pace(&p, 1, 100); /* the first step compiles: 100 s */
    assert_true(fabs(time_left(&p, 1, 100) - 99900) < 1e-6);
    note_pace(&p, 2, 101);
    assert_true(fabs(time_left(&p, 2, 101) - 998) < 1e-6); /* without the first step */
    for (int i = 3; i <= 200; i++)
        note_pace(&p, i, 99 + i); /* a second each */
    assert_true(fabs(time_left(&p, 200, 299) - 800) < 1e-6);
    for (int i = 201; i <= 300; i++)
        note_pace(&p, i, 299 + 10 * (i - 200)); /* then ten seconds each */
    assert_true(fabs(time_left(&p, 300, 1299) - 7000) < 1e-6);
    assert_true(time_left(&p, 1000, 1300) < 0);
    cli_progress_end(&p);
}

static void test_terminal_line(void **state)
{
    (void)state;
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0) {
        print_message("no pseudo-terminal here: the terminal line was not tested\n");
        return;
    }
    int slave = open(ptsname(master), O_RDWR | O_NOCTTY);
    assert_true(slave >= 0);
    setenv("TERM", "xterm", 1);
    setenv("LC_ALL", "C", 1);
    for (int width = 20; width <= 120; width += 20) {
        char text[4096];
        struct winsize size = {.ws_col = (unsigned short)width, .ws_row = 24};
        assert_int_equal(ioctl(slave, TIOCSWINSZ, &size), 0);
        cli_progress p = {.label = "train", .total = 1000, .fd = slave};
        cli_progress_start(&p);
        for (int i = 1; i <= 500; i++)
            cli_progress_update(&p, i, "loss %.4f", 5.0 / i);
        read_now(master, text, sizeof text);
        assert_int_equal(text[0], '\r');
        assert_null(strchr(text + 1, '\r')); /* 500 updates at once are drawn once */
        char *end = strstr(text, "\033[K");
        assert_non_null(end);
        assert_true(end - text - 1 <= width - 1);
        assert_non_null(strstr(text, "1/1000"));
        assert_true((strchr(text, '|') != NULL) == (width >= 60));
        cli_progress_hide();
        read_now(master, text, sizeof text);
        assert_string_equal(text, "\r\033[K");
        cli_progress_update(&p, 501, "again"); /* at once after being hidden */
        cli_progress_end(&p);
        read_now(master, text, sizeof text);
        assert_non_null(strstr(text, "501/1000"));
        assert_string_equal(text + strlen(text) - 4, "\r\033[K");
    }
    struct winsize usual = {.ws_col = 80, .ws_row = 24};
    char text[4096];
    assert_int_equal(ioctl(slave, TIOCSWINSZ, &usual), 0);
    cli_progress p = {.label = "train", .total = 20000, .fd = slave};
    cli_progress_start(&p);
    p.started -= 4000; /* the whole run takes more than a day */
    cli_progress_update(&p, 500,
                        "loss 5.1234  norm 12.345  lr 3.00e-04  12345.6 ms  95%% of peak  123456 tok/s");
    cli_progress_end(&p);
    read_now(master, text, sizeof text);
    assert_non_null(strstr(text, "loss 5.1234  "));
    assert_non_null(strstr(text, "  123456 tok/s  "));
    assert_non_null(strstr(text, " left"));
    assert_null(strstr(text, "of peak"));
    setenv("NO_COLOR", "1", 1);
    assert_false(cli_has_colour(slave));
    setenv("NO_COLOR", "", 1);
    assert_true(cli_has_colour(slave));
    setenv("TERM", "dumb", 1);
    assert_false(cli_is_terminal(slave));
    close(slave);
    close(master);
}

/* ---- signals --------------------------------------------------------------------------------- */

/* In a child, send itself the signals and exit with 10 + cli_interrupted(); returns the exit code. */
static int after_signals(int first, int second)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        cli_interrupt_install();
        if (first)
            raise(first);
        if (second)
            raise(second);
        _exit(10 + cli_interrupted());
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void test_interrupts(void **state)
{
    (void)state;
    assert_int_equal(after_signals(0, 0), 10);
    assert_int_equal(after_signals(SIGINT, 0), 11);
    assert_int_equal(after_signals(SIGTERM, 0), 11);
    assert_int_equal(after_signals(SIGTERM, SIGTERM), CLI_INTERRUPTED); /* the second ends at once */
    assert_int_equal(after_signals(SIGINT, SIGINT), CLI_INTERRUPTED);
    assert_int_equal(after_signals(SIGTERM, SIGINT), CLI_INTERRUPTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_defaults, drop_args),
        cmocka_unit_test_teardown(test_spellings, drop_args),
        cmocka_unit_test_teardown(test_positionals_and_lists, drop_args),
        cmocka_unit_test_teardown(test_numbers, drop_args),
        cmocka_unit_test_teardown(test_refusals, drop_args),
        cmocka_unit_test_teardown(test_help_request, drop_args),
        cmocka_unit_test(test_distance),
        cmocka_unit_test(test_tables_are_checked),
        cmocka_unit_test_teardown(test_help_text, drop_written),
        cmocka_unit_test_teardown(test_man_page, drop_written),
        cmocka_unit_test_teardown(test_completion, drop_written),
        cmocka_unit_test(test_durations),
        cmocka_unit_test(test_plain_lines),
        cmocka_unit_test(test_time_left),
        cmocka_unit_test(test_terminal_line),
        cmocka_unit_test(test_interrupts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
