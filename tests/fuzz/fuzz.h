/* A fuzz target is one function over one input. Under the `fuzz` preset libFuzzer drives it for as
 * long as one likes; in every other build driver.c feeds it seeds and a bounded number of seeded
 * mutations of them, so that `./setup test` runs each target too. */
#ifndef ROLLTOP_TESTS_FUZZ_H
#define ROLLTOP_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Seeds for driver.c, NULL-terminated; lengths by strlen unless `lengths` says otherwise. */
extern const char *const fuzz_seeds[];

#endif
