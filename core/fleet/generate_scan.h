/* Private to fleet: what the generation client tells and asks the scanner beyond generate.h. */
#ifndef ROLLTOP_FLEET_GENERATE_SCAN_H
#define ROLLTOP_FLEET_GENERATE_SCAN_H

#include "core/fleet/generate.h"

/* What the reply must answer: its rid and the length of the prompt; 0 and NULL: not checked. */
void generate_scan_expect(GenerateScan *scan, const char *rid, size_t prompt_tokens);
/* For tests and benches that use one scan again and again. */
void generate_scan_clear(GenerateScan *scan, int32_t vocab, size_t max_tokens);
size_t generate_scan_tokens(const GenerateScan *scan);
/* NULL while every rule holds; else the broken one, for GENERATE_INVALID. */
const char *generate_scan_broken(const GenerateScan *scan);
bool generate_scan_terminal(const GenerateScan *scan);
/* Status code that an error object or an abort carried; 0 none. */
int generate_scan_code(const GenerateScan *scan);

#endif
