#include "core/fleet/engine_settings.h"

#include <math.h>
#include <string.h>

/* A value as its flag would have been written: lists as words, booleans as true and false. */
static void write_value(const cJSON *value, Text *out)
{
    const cJSON *item = NULL;
    if (cJSON_IsString(value)) {
        text_add_c(out, value->valuestring);
    } else if (cJSON_IsBool(value)) {
        text_add_c(out, cJSON_IsTrue(value) ? "true" : "false");
    } else if (cJSON_IsNumber(value)) {
        text_addf(out, "%.12g", value->valuedouble);
    } else if (cJSON_IsArray(value)) {
        cJSON_ArrayForEach(item, value) {
            if (item != value->child) {
                text_add_c(out, " ");
            }
            write_value(item, out);
        }
    } else {
        text_add_c(out, "nothing");
    }
}

static bool same(const cJSON *value, const char *found, const char *wanted)
{
    double number = 0.0;
    if (cJSON_IsNumber(value) && str_to_double(str_from(wanted), &number)) {
        return fabs(number - value->valuedouble) <= 1e-9 * fabs(number);
    }
    return strcmp(found, wanted) == 0;
}

int engine_settings_compare(const cJSON *server_info, const EngineSetting *settings, size_t count,
                            Text *out)
{
    int differ = 0;
    for (size_t i = 0; i < count; i++) {
        const cJSON *value = json_get(server_info, settings[i].name);
        Text found;
        text_init(&found, 256);
        write_value(value, &found);
        if (!value) {
            text_addf(out, "%s%s is not known to it", differ ? "; " : "", settings[i].name);
            differ++;
        } else if (!same(value, text_c(&found), settings[i].value)) {
            text_addf(out, "%s%s %s instead of %s", differ ? "; " : "", settings[i].name,
                      text_c(&found), settings[i].value);
            differ++;
        }
        text_free(&found);
    }
    return differ;
}
