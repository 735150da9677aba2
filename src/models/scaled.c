/* scaled.c - default targets of IA3, equal to PEFT's for the families that it supports. */
#include "base/base.h"
#include "models/models.h"

static const arch_scaled usual[] = {
    {"albert", "key,value,ffn_output", "ffn_output"},
    {"bart", "q_proj,v_proj,fc2", "fc2"},
    {"bert", "key,value,output.dense", "output.dense"},
    {"big_bird", "key,value,output.dense", "output.dense"},
    {"camembert", "key,value,output.dense", "output.dense"},
    {"deit", "k_proj,v_proj,mlp.fc2", "mlp.fc2"},
    {"distilbert", "k_lin,v_lin,lin2", "lin2"},
    {"gpt2", "c_attn,mlp.c_proj", "mlp.c_proj"},
    {"gptj", "q_proj,v_proj,fc_out", "fc_out"},
    {"imagegpt", "c_attn,mlp.c_proj", "mlp.c_proj"},
    {"llama", "k_proj,v_proj,down_proj", "down_proj"},
    {"longformer", "key,value,output.dense", "output.dense"},
    {"marian", "q_proj,v_proj,fc2", "fc2"},
    {"mbart", "q_proj,v_proj,fc2", "fc2"},
    {"mt5", "k,v,wi_1", ""},
    {"openai-gpt", "c_attn,mlp.c_proj", "mlp.c_proj"},
    {"pegasus", "q_proj,v_proj,fc2", "fc2"},
    {"roberta", "key,value,output.dense", "output.dense"},
    {"t5", "k,v,wo", "wo"},
    {"umt5", "k,v,wi_1", ""},
    {"vit", "k_proj,v_proj,mlp.fc2", "mlp.fc2"},
    {"xlm", "k_lin,v_lin,lin2", "lin2"},
    {"xlm-roberta", "key,value,output.dense", "output.dense"},
};

const arch_scaled *arch_scaled_of(const arch_family *a)
{
    for (int i = 0; i < BY_COUNT(usual); i++)
        if (strcmp(usual[i].family, a->family) == 0)
            return &usual[i];
    return NULL;
}
