/* Pre-tokenisers of tokenizer.json: cut a text into the pieces that byte-pair merging works on.
 *
 * The three patterns in common use (Qwen2/3, GPT-2, Llama 3 and its one-digit kin) are matched by
 * hand-written code, linear in the text; any other Split pattern goes to PCRE2 with its classes
 * spelt out in the reference's Unicode version, under a match limit. */
#ifndef ROLLTOP_MODEL_PRETOKEN_H
#define ROLLTOP_MODEL_PRETOKEN_H

#include "core/model/json_scan.h"
#include "core/model/unicode.h"

typedef struct Pretoken Pretoken;

/* Reads the value of "pre_tokenizer" at the scanner. A part that is not understood is refused by
 * name: ERR_UNSUPPORTED. `path` names the file in faults. */
Err pretoken_parse(JsonScan *scan, const char *path, Pretoken **out, Fault *fault);
void pretoken_free(Pretoken *pretoken);
bool pretoken_byte_level(const Pretoken *pretoken); /* a ByteLevel step is among the parts */

/* Calls emit for each piece in order; stops and returns false when emit does, or when a pattern
 * passes its match limit. `text` is valid UTF-8, already normalised. */
typedef bool (*PretokenEmit)(void *user, Str piece);
bool pretoken_split(const Pretoken *pretoken, Str text, PretokenEmit emit, void *user);

#endif
