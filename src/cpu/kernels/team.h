/* team.h - the threads of an OpenMP parallel region; one thread where OpenMP is missing. */
#ifndef BY_CPU_TEAM_H
#define BY_CPU_TEAM_H

#include <stdint.h>
#ifdef _OPENMP
#include <omp.h>
#endif

static inline int cpu_team_thread(void)
{
#ifdef _OPENMP
    return omp_get_thread_num();
#else
    return 0;
#endif
}

static inline int cpu_team_size(void)
{
#ifdef _OPENMP
    return omp_get_num_threads();
#else
    return 1;
#endif
}

/* Waits for the other threads of the team. */
static inline void cpu_team_wait(int64_t team)
{
    if (team > 1) {
#pragma omp barrier
    }
}

#endif
