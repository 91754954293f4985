/* Lines of the small ini files that people write: the console's settings, themes, alert rules.
 * `[section]`, `name = value`, blank lines, and comments that are lines of their own: '#' and ';'
 * may stand in values. Pure. */
#ifndef ROLLTOP_BASE_INI_H
#define ROLLTOP_BASE_INI_H

#include "core/base/str.h"

typedef enum IniKind {
    INI_NOTHING, /* blank, or a comment */
    INI_SECTION, /* key: what stands in the brackets */
    INI_PAIR,    /* key and value; either may be empty */
    INI_ZERO,    /* a byte 0 stands in it: no text */
    INI_OTHER
} IniKind;

typedef struct IniLine { /* parts of the line, without the blanks around them */
    Str text, key, value;
} IniLine;

IniKind ini_read(Str line, IniLine *out);

#endif
