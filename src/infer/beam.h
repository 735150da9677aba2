/* beam.h - beam search: the likeliest texts, several grown side by side (beam.c). */
#ifndef BY_INFER_BEAM_H
#define BY_INFER_BEAM_H

#include "banyan/generate.h"

/* by_generate when spec->beam.width is above 1. stops: every stop token. */
by_status by_beam_search(by_generator *g, const int32_t *const *prompts, const int *lengths,
                         const by_generate_spec *spec, const int32_t *stops, int stop_count,
                         by_generate_result *result);

/* BY_ERR_ARGUMENT naming what makes no sense. */
by_status by_beam_check(const by_generator *g, const by_generate_spec *spec);

#endif
