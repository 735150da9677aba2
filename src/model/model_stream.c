/* model_stream.c - streams of a model (banyan/stream.h). */
#include "nn/stream_state.h"

#include "model/model.h"

enum { MOST_POSITIONS = 1 << 24 };

int by_model_memory(const by_model *m)
{
    return m ? (int)arch_config_get(m->arch, m->config, ARCH_ROLE_MEMORY) : 0;
}

bool by_model_carries(const by_model *m)
{
    return m && ((m->arch->recurrent && !by_model_is_pair(m)) || by_model_memory(m) > 0);
}

by_status by_model_set_memory(by_model *m, int positions)
{
    if (!m)
        return base_fail_missing("model");
    if (!arch_has(m->arch, ARCH_ROLE_MEMORY))
        return base_fail(BY_ERR_UNSUPPORTED, "%s has no memory of earlier segments", by_model_title(m));
    if (positions < 0 || positions > MOST_POSITIONS)
        return base_fail(BY_ERR_ARGUMENT, "invalid memory of %d positions: expected 0 to %d", positions,
                         MOST_POSITIONS);
    arch_config_set(m->arch, m->config, ARCH_ROLE_MEMORY, positions);
    return BY_OK;
}

by_stream *by_stream_new(by_model *m, int batch)
{
    if (!m) {
        base_fail_missing("model");
        return NULL;
    }
    if (batch < 1) {
        base_fail(BY_ERR_ARGUMENT, "invalid number of texts in a stream: %d", batch);
        return NULL;
    }
    if (!by_model_carries(m)) {
        base_fail(BY_ERR_UNSUPPORTED, "%s carries no state from segment to segment",
                  base_a(by_model_class(m)).text);
        return NULL;
    }
    return nn_stream_new(m->device, batch);
}
