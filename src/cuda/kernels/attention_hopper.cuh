/* attention_hopper.cuh - attention on Hopper's matrix units: what it supports, and the two ops. */
#ifndef BY_CUDA_KERNELS_ATTENTION_HOPPER_CUH
#define BY_CUDA_KERNELS_ATTENTION_HOPPER_CUH

#include "cuda/cuda.h"

bool cuda_hopper_attention_takes(const cuda_context *c, const gr_node *n);
by_status cuda_hopper_attention(cuda_exec *x, gr_node *n);
bool cuda_hopper_attention_grad_takes(const cuda_context *c, const gr_node *n);
by_status cuda_hopper_attention_grad(cuda_exec *x, gr_node *n);
bool cuda_hopper_whole_grad_takes(const cuda_context *c, const gr_node *n);
by_status cuda_hopper_whole_grad(cuda_exec *x, gr_node *n);
bool cuda_hopper_ordered_grad_takes(const cuda_context *c, const gr_node *n);
by_status cuda_hopper_ordered_grad(cuda_exec *x, gr_node *n);
/* The same for nodes with a sparse pattern (hopper_views.cuh). */
bool cuda_hopper_views_takes(const cuda_context *c, const gr_node *n);
by_status cuda_hopper_views(cuda_exec *x, gr_node *n);
bool cuda_hopper_views_grad_takes(const cuda_context *c, const gr_node *n);
by_status cuda_hopper_views_grad(cuda_exec *x, gr_node *n);

#endif
