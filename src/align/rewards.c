/* rewards.c - see rewards.h. */
#include "align/rewards.h"

#include <math.h>

/* The argument of "kind:argument", or NULL if `what` is not of this kind. */
static const char *argument_of(const char *what, const char *kind)
{
    const size_t n = strlen(kind);
    return strncmp(what, kind, n) == 0 && what[n] == ':' ? what + n + 1 : NULL;
}

static by_status open_judge(const by_reward_source *s, const align_court *court, align_judge *out)
{
    const char *argument;
    if (!s->what && !s->call)
        return base_fail(BY_ERR_ARGUMENT, "a reward has neither a description nor a callback");
    if (!s->what) {
        *out = (align_judge){.score = s->call, .self = s->user};
        return BY_OK;
    }
    if ((argument = argument_of(s->what, "command")))
        return align_command_open(argument, court, out);
    if ((argument = argument_of(s->what, "model")))
        return align_scorer_open(argument, court, out);
    return align_check_open(s->what, out);
}

/* The part before the colon, with a number appended if an earlier source has the same name. */
static char *name_of(const align_rewards *r, const by_reward_source *s)
{
    const char *from = s->name ? s->name : s->what ? s->what : "callback";
    const int length = s->name ? (int)strlen(from) : (int)strcspn(from, ":");
    int same = 1;
    for (int i = 0; i < r->count; i++)
        same += strncmp(r->list[i].name, from, (size_t)length) == 0 &&
                (r->list[i].name[length] == '\0' || r->list[i].name[length] == '-');
    return same > 1 ? base_sprintf("%.*s-%d", length, from, same) : base_sprintf("%.*s", length, from);
}

by_status align_rewards_open(align_rewards *r, const by_reward_source *list, int count,
                             const align_court *court)
{
    *r = (align_rewards){0};
    if (!list || count < 1)
        return base_fail(BY_ERR_ARGUMENT, "no rewards: give at least one source");
    align_court own = *court;
    own.failures = &r->failures;
    r->list = base_alloc_zero((size_t)count, sizeof *r->list);
    if (!r->list)
        return BY_ERR_MEMORY;
    for (int i = 0; i < count; i++) {
        struct align_reward *one = &r->list[i];
        one->weight = list[i].weight != 0 ? list[i].weight : 1;
        one->name = name_of(r, &list[i]);
        r->count++;
        if (!one->name)
            return BY_ERR_MEMORY;
        if (!isfinite(one->weight))
            return base_fail(BY_ERR_ARGUMENT, "the weight of the reward \"%s\" is not finite", one->name);
        BY_TRY(open_judge(&list[i], &own, &one->judge));
    }
    return BY_OK;
}

void align_rewards_close(align_rewards *r)
{
    for (int i = 0; i < r->count; i++) {
        if (r->list[i].judge.close)
            r->list[i].judge.close(r->list[i].judge.self);
        base_free(r->list[i].name);
    }
    base_free(r->list);
    *r = (align_rewards){0};
}

by_status align_rewards_score(align_rewards *r, const by_judged *answers, int count, float *each,
                              float *total)
{
    memset(total, 0, (size_t)count * sizeof *total);
    for (int k = 0; k < r->count; k++) {
        const struct align_reward *one = &r->list[k];
        float *rewards = each + (ptrdiff_t)k * count;
        base_error_clear();
        by_status s = one->judge.score(one->judge.self, answers, count, rewards);
        if (s != BY_OK && base_error_status() == BY_OK)
            base_fail(s, "the callback failed");
        if (s != BY_OK)
            return base_fail_context("reward \"%s\"", one->name);
        for (int i = 0; i < count; i++) {
            if (!isfinite(rewards[i]))
                return base_fail(BY_ERR_NUMERIC, "reward \"%s\": the reward of answer %d is %g", one->name,
                                 i + 1, (double)rewards[i]);
            total[i] += (float)one->weight * rewards[i];
        }
    }
    return BY_OK;
}
