#include "core/base/ini.h"

#include <string.h>

IniKind ini_read(Str line, IniLine *out)
{
    size_t equals = 0;
    Str text = str_trim(line);
    *out = (IniLine){.text = text};
    if (text.n == 0 || text.p[0] == '#' || text.p[0] == ';') {
        return INI_NOTHING;
    }
    if (memchr(text.p, '\0', text.n)) {
        return INI_ZERO;
    }
    if (text.p[0] == '[' && text.p[text.n - 1] == ']') {
        out->key = str_trim(str_slice(text, 1, text.n - 1));
        return INI_SECTION;
    }
    if (!str_find(text, STR("="), &equals)) {
        return INI_OTHER;
    }
    out->key = str_trim(str_slice(text, 0, equals));
    out->value = str_trim(str_slice(text, equals + 1, text.n));
    return INI_PAIR;
}
