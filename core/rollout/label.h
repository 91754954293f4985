/* Labels keep the JSON type that they had in the prompt file: for some rewards the number 0 and
 * the string "0" are different labels (slime-semantics 5.3). */
#ifndef ROLLTOP_ROLLOUT_LABEL_H
#define ROLLTOP_ROLLOUT_LABEL_H

#include "core/model/json_scan.h"

typedef enum LabelKind {
    LABEL_TEXT = 0, /* the default of a zeroed struct; null is told by a NULL text */
    LABEL_INT,
    LABEL_FLOAT,
    LABEL_BOOL,
    LABEL_OTHER /* list or object: its JSON */
} LabelKind;

/* Reads any value at the scanner as the text that Python's str() gives it: True, 5.0, 1e+22. For
 * null *null is set. The text is appended to *out. False: malformed, see scan->error. */
bool label_scan(JsonScan *scan, Text *scratch, Text *out, LabelKind *kind, bool *null);

#endif
