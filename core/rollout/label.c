#include "core/rollout/label.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Python's repr of a double: shortest digits that read back equal; exponent from 1e16 on. */
static bool label_add_float(Text *out, double v)
{
    char digits[40];
    int exponent = 0;
    if (isnan(v)) {
        return text_add_c(out, "nan");
    }
    if (isinf(v)) {
        return text_add_c(out, v < 0 ? "-inf" : "inf");
    }
    int precision = 0;
    do { /* the shortest that reads back equal */
        (void)str_format(digits, sizeof digits, "%.*e", precision, v);
    } while (precision++ < 16 && strtod(digits, NULL) != v);
    char *e = strchr(digits, 'e');
    if (e == NULL) {
        return false;
    }
    exponent = (int)strtol(e + 1, NULL, 10);
    *e = '\0';
    char mantissa[40];
    size_t n = 0;
    for (const char *p = digits; *p != '\0'; p++) {
        if (*p >= '0' && *p <= '9') {
            mantissa[n++] = *p;
        }
    }
    mantissa[n] = '\0';
    bool good = !signbit(v) || text_add_char(out, '-');
    if (exponent < -4 || exponent >= 16) {
        good = good && text_add_char(out, mantissa[0]);
        if (n > 1) {
            good = good && text_addf(out, ".%s", mantissa + 1);
        }
        return good && text_addf(out, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
    }
    if (exponent < 0) {
        return good && text_addf(out, "0.%.*s%s", -exponent - 1, "0000", mantissa);
    }
    for (size_t i = 0; i <= (size_t)exponent; i++) {
        good = good && text_add_char(out, i < n ? mantissa[i] : '0');
    }
    return good && text_addf(out, ".%s", n > (size_t)exponent + 1 ? mantissa + exponent + 1 : "0");
}

static bool scan_number(JsonScan *scan, Text *out, LabelKind *kind)
{
    Str raw;
    char text[400];
    if (!json_scan_raw(scan, &raw)) {
        return false;
    }
    bool integer = memchr(raw.p, '.', raw.n) == NULL && memchr(raw.p, 'e', raw.n) == NULL &&
                   memchr(raw.p, 'E', raw.n) == NULL;
    *kind = integer ? LABEL_INT : LABEL_FLOAT;
    if (integer) {
        return text_add_str(out, str_equal(raw, STR("-0")) ? STR("0") : raw) ||
               json_scan_fail(scan, "a number is too long");
    }
    if (!str_format(text, sizeof text, "%.*s", (int)raw.n, raw.p)) {
        return json_scan_fail(scan, "a number is too long");
    }
    return label_add_float(out, strtod(text, NULL)) || json_scan_fail(scan, "the text is full");
}

bool label_scan(JsonScan *scan, Text *scratch, Text *out, LabelKind *kind, bool *null)
{
    char c = json_scan_peek(scan);
    Str value;
    bool flag;
    *null = false;
    *kind = LABEL_TEXT;
    if (c == '"') {
        return json_scan_string(scan, scratch, &value) &&
               (text_add_str(out, value) || json_scan_fail(scan, "a label is too long"));
    }
    if (c == 'n') {
        *null = true;
        return json_scan_null(scan);
    }
    if (c == 't' || c == 'f') {
        *kind = LABEL_BOOL;
        return json_scan_bool(scan, &flag) && text_add_c(out, flag ? "True" : "False");
    }
    if (c == '{' || c == '[') {
        *kind = LABEL_OTHER;
        return json_scan_raw(scan, &value) &&
               (text_add_str(out, value) || json_scan_fail(scan, "a label is too long"));
    }
    return scan_number(scan, out, kind);
}
