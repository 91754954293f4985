#include "core/app/build_info.h"

/* Set by CMake for this file: version, or "not found". */
#ifndef ROLLTOP_BUILD_CUDA
#define ROLLTOP_BUILD_CUDA "not found"
#endif
#ifndef ROLLTOP_BUILD_NCCL
#define ROLLTOP_BUILD_NCCL "not found"
#endif
#ifndef ROLLTOP_BUILD_TYPE
#define ROLLTOP_BUILD_TYPE "none"
#endif
#ifndef ROLLTOP_BUILD_SANITIZE
#define ROLLTOP_BUILD_SANITIZE ""
#endif

void build_info_print(FILE *out)
{
#if defined __clang__
    fprintf(out, "compiler      clang %s\n", __clang_version__);
#else
    fprintf(out, "compiler      gcc %s\n", __VERSION__);
#endif
    const char *sanitizers = ROLLTOP_BUILD_SANITIZE;
    fprintf(out, "build         %s%s%s\n", ROLLTOP_BUILD_TYPE, sanitizers[0] ? ", sanitizers " : "",
            sanitizers);
    fputs("CUDA module   none: this version computes on the CPU only\n", out);
    fprintf(out, "CUDA toolkit  %s when it was built\n", ROLLTOP_BUILD_CUDA);
    fprintf(out, "NCCL          %s when it was built\n", ROLLTOP_BUILD_NCCL);
}
