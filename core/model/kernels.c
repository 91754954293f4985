#include "core/model/kernels.h"

const Kernels *kernels_at(KernelLevel level)
{
    switch (level) {
    case KERNELS_PORTABLE:
        return kernels_portable();
#if defined(__x86_64__)
    case KERNELS_AVX2:
        __builtin_cpu_init();
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? kernels_avx2()
                                                                              : NULL;
    case KERNELS_AVX512:
        __builtin_cpu_init();
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                       __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                       __builtin_cpu_supports("fma")
                   ? kernels_avx512()
                   : NULL;
#else
    case KERNELS_AVX2:
    case KERNELS_AVX512:
        return NULL;
#endif
    }
    return NULL;
}

const Kernels *kernels_best(void)
{
    const Kernels *found = kernels_at(KERNELS_AVX512);
    if (found == NULL) {
        found = kernels_at(KERNELS_AVX2);
    }
    return found != NULL ? found : kernels_at(KERNELS_PORTABLE);
}
