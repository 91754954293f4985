/* Numbers for people: three significant digits, the unit glued on, no number without its age.
 * Each writes into the caller's buffer (FORMAT_MAX is always enough) and returns it. */
#ifndef ROLLTOP_TUI_FORMAT_H
#define ROLLTOP_TUI_FORMAT_H

#include "core/base/val.h"

#include <stddef.h>
#include <stdint.h>

enum { FORMAT_MAX = 32 };

const char *format_count(double v, char out[FORMAT_MAX]);     /* "0", "931", "11.9k", "1.20M" */
const char *format_count_val(Val v, char out[FORMAT_MAX]);    /* "-" when unknown */
const char *format_ratio(double v, char out[FORMAT_MAX]);     /* "0.712", "-0.05", "12.3" */
const char *format_ratio_val(Val v, char out[FORMAT_MAX]);
const char *format_percent(Val fraction, char out[FORMAT_MAX]); /* 0.63 is "63" */
const char *format_ms(Val ms, char out[FORMAT_MAX]);          /* "21ms", "1.2s" */
/* How long: "0.4s", "41s", "184s", "16m", "3h12m", "2d04h"; "-" when negative. */
const char *format_age(int64_t us, char out[FORMAT_MAX]);
const char *format_took(int64_t us, char out[FORMAT_MAX]); /* as format_age, "12ms" under 1 s */
const char *format_seconds(double s, char out[FORMAT_MAX]);   /* the same, from seconds */
const char *format_clock(int64_t wall_us, char out[FORMAT_MAX]); /* "10:42:07", UTC */
const char *format_minute(int64_t wall_us, char out[FORMAT_MAX]); /* "10:42" */
const char *format_date(int64_t wall_us, char out[FORMAT_MAX]); /* "2026-03-14 10:42:07Z" */
const char *format_span(int64_t us, char out[FORMAT_MAX]);    /* "03:12:44" */
const char *format_version(int64_t version, char out[FORMAT_MAX]); /* "v211"; "-" below 0 */

#endif
