/* attention_views.cuh - strided patterns in the kernels for every card, as two dense problems. */
#ifndef BY_CUDA_KERNELS_ATTENTION_VIEWS_CUH
#define BY_CUDA_KERNELS_ATTENTION_VIEWS_CUH

#include "cuda/kernels/attention_grad.cuh"

/* Returns true if the pattern is strided and causal, with the length l of a column at least 2, and nothing else
 * decides what is seen. */
bool cuda_has_columns(const attention &a);
by_status cuda_attend_columns(cuda_exec *x, const attention &a, by_dtype type);
by_status cuda_attend_back_columns(cuda_exec *x, const attention_back &g, by_dtype type);

#endif
