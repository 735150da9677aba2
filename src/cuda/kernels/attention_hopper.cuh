/* attention_hopper.cuh - attention on Hopper's matrix units: what it takes, and the two ops. */
#ifndef BY_CUDA_KERNELS_ATTENTION_HOPPER_CUH
#define BY_CUDA_KERNELS_ATTENTION_HOPPER_CUH

#include "cuda/cuda.h"

bool by_hopper_attention_takes(const by_cuda *c, const by_node *n);
by_status by_hopper_attention(by_cuda_exec *x, by_node *n);
bool by_hopper_attention_grad_takes(const by_cuda *c, const by_node *n);
by_status by_hopper_attention_grad(by_cuda_exec *x, by_node *n);
bool by_hopper_whole_grad_takes(const by_cuda *c, const by_node *n);
by_status by_hopper_whole_grad(by_cuda_exec *x, by_node *n);

#endif
