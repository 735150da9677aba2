/* align_policy.h - reinforcement learning for text: how answers are sampled and rewarded. Part of align_run.h. */
#ifndef BANYAN_ALIGN_POLICY_H
#define BANYAN_ALIGN_POLICY_H

#include "banyan/align.h"
#include "banyan/generate.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct by_policy_run {
    int placeholder;
} by_policy_run;

#ifdef __cplusplus
}
#endif
#endif
