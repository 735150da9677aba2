/* reward_model.c - rewards from a classifier: the output of a reward model, or the probability of a label
 * (banyan/align_policy.h). */
#include <math.h>

#include "align/rewards.h"
#include "banyan/chat.h"
#include "banyan/predict.h"
#include "base/json.h"

typedef struct scorer {
    by_model *model;
    by_tokenizer *tokenizer;
    by_predictor *predictor;
    by_chat *chat; /* NULL: no chat template */
    char *start;   /* special tokens that the tokenizer puts before a text */
    bool logit, answer_alone;
    int labels, label;
} scorer;

static void close_scorer(void *self)
{
    scorer *s = self;
    by_predictor_free(s->predictor);
    by_chat_free(s->chat);
    by_release(s->start);
    by_tokenizer_free(s->tokenizer);
    by_model_free(s->model);
    base_free(s);
}

static float reward_of(const scorer *s, const float *scores)
{
    const double p = (double)scores[s->label];
    if (!s->logit || s->labels == 1)
        return (float)p;
    const double low = 1e-6, q = BY_MIN(BY_MAX(p, low), 1 - low);
    return (float)log(q / (1 - q));
}

static by_status classify(scorer *s, const char **texts, int count, float *rewards)
{
    float *scores = base_alloc_zero((size_t)count * (size_t)s->labels, sizeof *scores);
    by_status status =
        scores ? by_predictor_classify(s->predictor, texts, NULL, count, scores) : BY_ERR_MEMORY;
    for (int i = 0; status == BY_OK && i < count; i++)
        rewards[i] = reward_of(s, scores + (ptrdiff_t)i * s->labels);
    base_free(scores);
    return status;
}

/* Renders a conversation and its answer with the classifier's template. Special tokens that the tokenizer
 * adds in front are removed. */
static by_status render(const scorer *s, const by_judged *a, char **out)
{
    base_buf json = {0};
    by_chat_text text = {0};
    const size_t end = strlen(a->messages) - 1, start = s->start ? strlen(s->start) : 0;
    base_buf_put(&json, a->messages, end); /* without the closing bracket */
    base_buf_puts(&json, end > 1 ? ", " : "");
    base_buf_puts(&json, "{\"role\": \"assistant\", \"content\": ");
    base_json_quote(&json, a->answer);
    base_buf_puts(&json, "}]");
    by_status status =
        json.failed
            ? BY_ERR_MEMORY
            : by_chat_render(s->chat, &(by_chat_input){.messages = json.data, .messages_size = json.size},
                             &text);
    const bool begun =
        status == BY_OK && start && text.size >= start && memcmp(text.text, s->start, start) == 0;
    *out = status == BY_OK ? base_strdup(text.text + (begun ? start : 0)) : NULL;
    by_chat_text_free(&text);
    base_buf_free(&json);
    return status == BY_OK && !*out ? BY_ERR_MEMORY : status;
}

static by_status text_of(const scorer *s, const by_judged *a, char **out)
{
    if (s->chat && a->messages && !s->answer_alone)
        return render(s, a, out);
    *out = base_sprintf("%s%s", s->answer_alone ? "" : a->prompt, a->answer);
    return *out ? BY_OK : BY_ERR_MEMORY;
}

static by_status score(void *self, const by_judged *answers, int count, float *rewards)
{
    scorer *s = self;
    char **texts = base_alloc_zero((size_t)count, sizeof *texts);
    by_status status = texts ? BY_OK : BY_ERR_MEMORY;
    for (int i = 0; status == BY_OK && i < count; i++)
        status = text_of(s, &answers[i], &texts[i]);
    if (status == BY_OK)
        status = classify(s, (const char **)texts, count, rewards);
    for (int i = 0; texts && i < count; i++)
        base_free(texts[i]);
    base_free(texts);
    return status;
}

static by_status unknown_label(const scorer *s, const char *dir, const char *label)
{
    base_buf names = {0};
    for (int i = 0; i < BY_MIN(s->labels, 20); i++)
        base_buf_printf(&names, "%s%s", i ? ", " : "", by_model_label_name(s->model, i));
    by_status status = label ? base_fail(BY_ERR_ARGUMENT, "%s has no label \"%s\", only %s", dir, label,
                                         names.failed ? "?" : names.data)
                             : base_fail(BY_ERR_ARGUMENT, "%s has %d labels: name the one to reward (%s)",
                                         dir, s->labels, names.failed ? "?" : names.data);
    base_buf_free(&names);
    return status;
}

static by_status choose_label(scorer *s, const char *dir, const char *label)
{
    s->labels = by_model_labels(s->model);
    if (s->labels == 1 && !label)
        return by_model_problem(s->model) == BY_PROBLEM_REGRESSION
                   ? BY_OK
                   : base_fail(BY_ERR_ARGUMENT, "%s has one label, which is always the likeliest", dir);
    for (int i = 0; label && i < s->labels; i++)
        if (strcmp(by_model_label_name(s->model, i), label) == 0) {
            s->label = i;
            return BY_OK;
        }
    return unknown_label(s, dir, label);
}

static by_status open_chat(scorer *s, const char *dir)
{
    by_encoding e;
    s->chat = by_chat_open(dir);
    if (!s->chat)
        return base_error_status();
    by_status status =
        by_tokenizer_encode_with(s->tokenizer, "", 0, &(by_encode_spec){.special = true, .whole = true}, &e);
    const bool begins = status == BY_OK && e.ids.count > 0;
    if (begins)
        s->start = by_decode(s->tokenizer, e.ids.data, 1, NULL);
    by_encoding_free(&e);
    return begins && !s->start ? base_error_status() : status;
}

static by_status open_scorer(scorer *s, const char *dir, const align_court *court)
{
    s->model = by_model_open(court->device, dir, &(by_model_spec){0});
    if (!s->model)
        return base_error_status();
    if (by_model_task(s->model) != BY_TASK_CLASSIFY)
        return base_fail(BY_ERR_ARGUMENT, "%s is %s; a reward model classifies texts", dir,
                         base_a(by_model_class(s->model)).text);
    BY_TRY(choose_label(s, dir, court->judging->label));
    s->tokenizer = by_tokenizer_load(dir);
    if (!s->tokenizer)
        return base_error_status();
    if (by_tokenizer_chat_template(s->tokenizer))
        BY_TRY(open_chat(s, dir));
    s->predictor = by_predictor_new(
        s->model, s->tokenizer,
        &(by_predictor_spec){.task = BY_TASK_CLASSIFY, .cancelled = court->cancelled, .user = court->user});
    return s->predictor ? BY_OK : base_error_status();
}

by_status align_scorer_open(const char *dir, const align_court *court, align_judge *out)
{
    scorer *s = base_alloc_zero(1, sizeof *s);
    if (!s)
        return BY_ERR_MEMORY;
    *out = (align_judge){.score = score, .self = s, .close = close_scorer};
    s->logit = court->judging->logit;
    s->answer_alone = court->judging->answer_alone;
    return open_scorer(s, dir, court);
}
