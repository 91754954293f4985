/* A fuzz target is one function over one input. Under the `fuzz` preset libFuzzer drives it for as
 * long as one likes; in every other build driver.c feeds it seeds and a bounded number of seeded
 * mutations of them, so that `./setup test` runs each target too. */
#ifndef ROLLTOP_TESTS_FUZZ_H
#define ROLLTOP_TESTS_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Seeds for driver.c, NULL-terminated. */
extern const char *const fuzz_seeds[];

/* More of them, where a target has recorded bytes; by position, false behind the last one. A
 * target that does not define it has none. What it gives is valid until the next call. */
bool fuzz_recorded(size_t position, const uint8_t **data, size_t *size) __attribute__((weak));

#endif
