#include "tui/model.h"

#include <time.h>

enum { US = 1000000, DAY_S = 86400 };

/* "H:MM" or "H:MM:SS" as seconds of the day. */
static bool parse_clock(Str text, int64_t *seconds)
{
    int64_t parts[3] = {0, 0, 0};
    int count = 0;
    Str rest = text;
    Str part;
    while (count < 3 && str_split(&rest, ':', &part)) {
        if (part.n == 0 || part.n > 2 || !str_to_i64(part, &parts[count]) || parts[count] < 0) {
            return false;
        }
        count++;
    }
    *seconds = parts[0] * 3600 + parts[1] * 60 + parts[2];
    return count >= 2 && rest.n == 0 && parts[0] < 24 && parts[1] < 60 && parts[2] < 60;
}

/* "-5m", "+30s", "-2h", "-90" (seconds). */
static bool parse_offset(Str text, int64_t *us)
{
    int64_t unit = 1;
    int64_t n = 0;
    if (text.n < 2 || (text.p[0] != '-' && text.p[0] != '+')) {
        return false;
    }
    Str number = str_slice(text, 1, text.n);
    switch (number.p[number.n - 1]) {
    case 's': number.n--; break;
    case 'm': number.n--; unit = 60; break;
    case 'h': number.n--; unit = 3600; break;
    case 'd': number.n--; unit = DAY_S; break;
    default: break;
    }
    if (!str_to_i64(number, &n) || n < 0 || n > 1000000000) {
        return false;
    }
    *us = (text.p[0] == '-' ? -1 : 1) * n * unit * US;
    return true;
}

/* "2026-03-14" with an optional time of day behind a blank or a T. */
static bool parse_date(Str text, int64_t *t_us)
{
    int64_t year = 0;
    int64_t month = 0;
    int64_t day = 0;
    int64_t seconds = 0;
    if (text.n < 10 || text.p[4] != '-' || text.p[7] != '-' ||
        !str_to_i64(str_slice(text, 0, 4), &year) || !str_to_i64(str_slice(text, 5, 7), &month) ||
        !str_to_i64(str_slice(text, 8, 10), &day) || year < 1970) {
        return false;
    }
    if (text.n > 10) {
        Str rest = str_slice(text, 11, text.n);
        if (str_ends(rest, STR("Z"))) {
            rest.n--;
        }
        if (!parse_clock(rest, &seconds)) {
            return false;
        }
    }
    struct tm tm = {.tm_year = (int)year - 1900, .tm_mon = (int)month - 1, .tm_mday = (int)day};
    *t_us = ((int64_t)timegm(&tm) + seconds) * US;
    return month >= 1 && month <= 12 && day >= 1 && day <= 31;
}

/* The time of day nearest to T that lies in the log; T's own day when none does. */
static int64_t place_clock(int64_t seconds, int64_t t_us, int64_t first_us, int64_t last_us)
{
    int64_t day = t_us / US / DAY_S * DAY_S;
    int64_t best = (day + seconds) * US;
    bool found = false;
    for (int64_t offset = -1; offset <= 1; offset++) {
        int64_t at = (day + offset * DAY_S + seconds) * US;
        int64_t distance = at > t_us ? at - t_us : t_us - at;
        int64_t best_distance = best > t_us ? best - t_us : t_us - best;
        bool inside = at + 60 * (int64_t)US > first_us && at <= last_us;
        if (inside && (!found || distance < best_distance)) {
            best = at;
            found = true;
        }
    }
    return best;
}

bool time_parse(Str text, int64_t t_us, int64_t first_us, int64_t last_us, Seek *out)
{
    int64_t value = 0;
    text = str_trim(text);
    *out = (Seek){.kind = SEEK_TIME};
    if (text.n == 0) {
        return false;
    }
    if (parse_offset(text, &value)) {
        out->value = t_us + value;
    } else if (parse_clock(text, &value)) {
        out->value = place_clock(value, t_us, first_us, last_us);
    } else if (parse_date(text, &value)) {
        out->value = value;
    } else if (str_to_i64(text, &value) && value >= 0) {
        out->kind = SEEK_STEP;
        out->value = value;
    } else if (text.p[0] == 'v' && str_to_i64(str_slice(text, 1, text.n), &value) && value >= 0) {
        out->kind = SEEK_POLICY;
        out->value = value;
    } else {
        out->kind = SEEK_TEXT;
        (void)str_format(out->text, sizeof out->text, "%.*s", (int)text.n, text.p);
    }
    return true;
}
