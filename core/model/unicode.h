/* What tokenizers need of Unicode, frozen to the versions inside the reference implementation:
 * letters and numbers of Unicode 16, the 25 White_Space characters, NFC of Unicode 9. A system
 * library would follow its own version and give other tokens for a few thousand code points. */
#ifndef ROLLTOP_MODEL_UNICODE_H
#define ROLLTOP_MODEL_UNICODE_H

#include "core/base/str.h"

enum { UNICODE_LETTER = 1, UNICODE_NUMBER = 2, UNICODE_SPACE = 4 };

/* Class of every code point; BMP by table, the rest by search. */
typedef struct UnicodeClasses UnicodeClasses;
UnicodeClasses *unicode_classes_new(void);
void unicode_classes_free(UnicodeClasses *classes);
unsigned unicode_class(const UnicodeClasses *classes, uint32_t code); /* 0 or one of the above */

/* True when the text surely is in NFC already (a quick look; false means "maybe not"). */
bool unicode_nfc_quick(Str valid_utf8);
/* Appends NFC of valid UTF-8; linear in the length whatever the marks. False: *out is full. */
bool unicode_nfc(Str valid_utf8, Text *out);

#endif
