#include "tui/format.h"

#include "core/base/str.h"

#include <math.h>
#include <time.h>

enum { US = 1000000 };

static const char *unknown(char out[FORMAT_MAX])
{
    (void)str_format(out, FORMAT_MAX, "-");
    return out;
}

/* Three significant digits of a value of at least 1 and under 1000. */
static const char *three(double v, const char *unit, char out[FORMAT_MAX])
{
    int decimals = v < 9.995 ? 2 : v < 99.95 ? 1 : 0;
    (void)str_format(out, FORMAT_MAX, "%.*f%s", decimals, v, unit);
    return out;
}

const char *format_count(double v, char out[FORMAT_MAX])
{
    static const char *const units[] = {"k", "M", "G", "T", "P"};
    if (!isfinite(v)) {
        return unknown(out);
    }
    if (fabs(v) < 999.5) {
        bool whole = fabs(v) >= 99.95 || fabs(v - round(v)) < 0.005;
        (void)str_format(out, FORMAT_MAX, "%.*f", whole ? 0 : 1, v);
        return out;
    }
    size_t unit = 0;
    v /= 1000;
    while (fabs(v) >= 999.5 && unit + 1 < sizeof units / sizeof units[0]) {
        v /= 1000;
        unit++;
    }
    return three(v, units[unit], out);
}

const char *format_count_val(Val v, char out[FORMAT_MAX])
{
    return v.known ? format_count(v.v, out) : unknown(out);
}

const char *format_ratio(double v, char out[FORMAT_MAX])
{
    if (!isfinite(v)) {
        return unknown(out);
    }
    int decimals = fabs(v) < 9.995 ? 2 : fabs(v) < 99.95 ? 1 : 0;
    if (fabs(v) < 0.9995 && fabs(v) > 0) {
        decimals = 3;
    }
    (void)str_format(out, FORMAT_MAX, "%.*f", decimals, v);
    return out;
}

const char *format_ratio_val(Val v, char out[FORMAT_MAX])
{
    return v.known ? format_ratio(v.v, out) : unknown(out);
}

const char *format_percent(Val fraction, char out[FORMAT_MAX])
{
    if (!fraction.known || !isfinite(fraction.v)) {
        return unknown(out);
    }
    (void)str_format(out, FORMAT_MAX, "%.0f", fraction.v * 100);
    return out;
}

const char *format_ms(Val ms, char out[FORMAT_MAX])
{
    if (!ms.known || !isfinite(ms.v)) {
        return unknown(out);
    }
    if (ms.v >= 9999.5) {
        (void)str_format(out, FORMAT_MAX, "%.0fs", ms.v / 1000);
    } else if (ms.v >= 999.5) {
        (void)str_format(out, FORMAT_MAX, "%.1fs", ms.v / 1000);
    } else {
        (void)str_format(out, FORMAT_MAX, "%.*fms", ms.v < 9.95 ? 1 : 0, ms.v);
    }
    return out;
}

const char *format_age(int64_t us, char out[FORMAT_MAX])
{
    if (us < 0) {
        return unknown(out);
    }
    double s = (double)us / US;
    long long whole = s < 10 ? 10 : us / US; /* 9.97 s is no "9s" after "9.9s" */
    if (s < 9.95) {
        (void)str_format(out, FORMAT_MAX, "%.1fs", s);
    } else if (whole < 600) {
        (void)str_format(out, FORMAT_MAX, "%llds", whole);
    } else if (whole < 6000) {
        (void)str_format(out, FORMAT_MAX, "%lldm", whole / 60);
    } else if (whole < 86400) {
        (void)str_format(out, FORMAT_MAX, "%lldh%02lldm", whole / 3600, whole / 60 % 60);
    } else {
        (void)str_format(out, FORMAT_MAX, "%lldd%02lldh", whole / 86400, whole / 3600 % 24);
    }
    return out;
}

const char *format_took(int64_t us, char out[FORMAT_MAX])
{
    if (us < 0 || us >= 999500) {
        return format_age(us, out);
    }
    return format_ms((Val){(double)us / 1000, true, 0}, out);
}

const char *format_seconds(double s, char out[FORMAT_MAX])
{
    if (!isfinite(s) || s < 0 || s > 1e12) {
        return unknown(out);
    }
    return format_age((int64_t)(s * US), out);
}

static const char *format_time(int64_t wall_us, const char *format, char out[FORMAT_MAX])
{
    struct tm tm;
    time_t seconds = (time_t)(wall_us / US);
    if (wall_us <= 0 || !gmtime_r(&seconds, &tm) || strftime(out, FORMAT_MAX, format, &tm) == 0) {
        return unknown(out);
    }
    return out;
}

const char *format_clock(int64_t wall_us, char out[FORMAT_MAX])
{
    return format_time(wall_us, "%H:%M:%S", out);
}

const char *format_minute(int64_t wall_us, char out[FORMAT_MAX])
{
    return format_time(wall_us, "%H:%M", out);
}

const char *format_date(int64_t wall_us, char out[FORMAT_MAX])
{
    return format_time(wall_us, "%Y-%m-%d %H:%M:%SZ", out);
}

const char *format_span(int64_t us, char out[FORMAT_MAX])
{
    long long s = us > 0 ? us / US : 0;
    (void)str_format(out, FORMAT_MAX, "%02lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
    return out;
}

const char *format_version(int64_t version, char out[FORMAT_MAX])
{
    if (version < 0) {
        return unknown(out);
    }
    (void)str_format(out, FORMAT_MAX, "v%lld", (long long)version);
    return out;
}
