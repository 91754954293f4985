#include "core/base/err.h"

#include "core/base/utf8.h"

#include <stdio.h>
#include <string.h>

const char *err_name(Err code)
{
    switch (code) {
    case ERR_OK: return "ok";
    case ERR_ARG: return "argument";
    case ERR_IO: return "io";
    case ERR_FORMAT: return "format";
    case ERR_LIMIT: return "limit";
    case ERR_MEMORY: return "memory";
    case ERR_TIMEOUT: return "timeout";
    case ERR_NET: return "net";
    case ERR_PEER: return "peer";
    case ERR_STATE: return "state";
    case ERR_NOT_FOUND: return "not_found";
    case ERR_UNSUPPORTED: return "unsupported";
    case ERR_NUMERIC: return "numeric";
    case ERR_CANCELLED: return "cancelled";
    case ERR_EXISTS: return "exists";
    }
    return "unknown";
}

static void fill(Fault *fault, Err code, int sys_errno, const char *hint, const char *format,
                 va_list args)
{
    fault->code = code;
    fault->sys_errno = sys_errno;
    vsnprintf(fault->sentence, sizeof fault->sentence, format, args);
    if (sys_errno != 0) {
        size_t used = strlen(fault->sentence);
        char words[128];
        const char *text = strerror_r(sys_errno, words, sizeof words);
        snprintf(fault->sentence + used, sizeof fault->sentence - used, ": %s", text);
    }
    snprintf(fault->hint, sizeof fault->hint, "%s", hint ? hint : "");
    utf8_defuse(fault->sentence); /* they end up on terminals */
    utf8_defuse(fault->hint);
}

Err fault_set(Fault *fault, Err code, const char *hint, const char *format, ...)
{
    if (fault && fault->code == ERR_OK) {
        va_list args;
        va_start(args, format);
        fill(fault, code, 0, hint, format, args);
        va_end(args);
    }
    return code;
}

Err fault_set_sys(Fault *fault, Err code, int sys_errno, const char *hint, const char *format, ...)
{
    if (fault && fault->code == ERR_OK) {
        va_list args;
        va_start(args, format);
        fill(fault, code, sys_errno, hint, format, args);
        va_end(args);
    }
    return code;
}

void fault_clear(Fault *fault)
{
    memset(fault, 0, sizeof *fault);
}

/* A sentence that ends itself, as a question does, gets no full stop. */
static const char *stop_of(const char *sentence)
{
    size_t n = strlen(sentence);
    return n > 0 && strchr(".?!", sentence[n - 1]) ? "" : ".";
}

void fault_print(const Fault *fault)
{
    fprintf(stderr, "rolltop: %s%s", fault->sentence, stop_of(fault->sentence));
    if (fault->hint[0]) {
        fprintf(stderr, " %s%s", fault->hint, stop_of(fault->hint));
    }
    fputc('\n', stderr);
}
