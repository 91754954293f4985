/* Errors: one enum for programs, one sentence for people.
 *
 * A function that can fail returns Err (ERR_OK is 0) and fills an optional Fault where the error
 * is born. A Fault names the thing (flag, file, URL, line) in `sentence` and the way out in
 * `hint`. It is never overwritten on the way up: fault_set on a filled Fault is a no-op. */
#ifndef ROLLTOP_BASE_ERR_H
#define ROLLTOP_BASE_ERR_H

#include <stdarg.h>
#include <stdbool.h>

typedef enum Err {
    ERR_OK = 0,
    ERR_ARG,         /* the caller's or the user's argument is wrong */
    ERR_IO,          /* the operating system said no; sys_errno tells */
    ERR_FORMAT,      /* bytes that do not follow their format */
    ERR_LIMIT,       /* a stated bound was reached */
    ERR_MEMORY,      /* an allocation sized by the outside failed */
    ERR_TIMEOUT,     /* a bounded wait ended */
    ERR_NET,         /* connection refused, reset, cut */
    ERR_PEER,        /* the peer answered, and its answer is a failure */
    ERR_STATE,       /* not allowed in the present state */
    ERR_NOT_FOUND,   /* no such file, row, tensor, engine */
    ERR_UNSUPPORTED, /* valid, but this build or peer cannot */
    ERR_NUMERIC,     /* NaN or infinity where a number must be */
    ERR_CANCELLED,   /* somebody asked to stop */
    ERR_EXISTS       /* is there already: address in use, file present */
} Err;

enum { FAULT_TEXT_MAX = 384 };

typedef struct Fault {
    Err code;                      /* ERR_OK while empty */
    int sys_errno;                 /* 0 if no system call was involved */
    char sentence[FAULT_TEXT_MAX]; /* what, where; one sentence, no newline */
    char hint[FAULT_TEXT_MAX];     /* what to do; may be empty */
} Fault;

/* Lower-case name of a code ("ok", "io", "limit", …); static storage. */
const char *err_name(Err code);

/* Fills *fault (may be NULL) unless it is filled already, and returns `code`, so that a failure
 * is one statement: return fault_set(fault, ERR_FORMAT, "fix the line", "%s:%d: …", path, line).
 * `hint` may be NULL. Control bytes in the sentence become '?'; what does not fit is cut. */
Err fault_set(Fault *fault, Err code, const char *hint, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Same, appends strerror(sys_errno) to the sentence and stores it. */
Err fault_set_sys(Fault *fault, Err code, int sys_errno, const char *hint, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* Empties a Fault for reuse. */
void fault_clear(Fault *fault);

/* Writes "rolltop: SENTENCE. HINT." to stderr; the one shape of user-facing errors. */
void fault_print(const Fault *fault);

#endif
