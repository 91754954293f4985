#include "tests/fuzz/fuzz.h"

#include "core/model/st_header.h"

#include <stdlib.h>
#include <string.h>

/* Seeds are headers; the length field in front is made here, sometimes wrongly by one. */
const char *const fuzz_seeds[] = {
    "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
    "{\"__metadata__\":{\"k\":\"v\"},\"x\":{\"dtype\":\"BF16\",\"shape\":[2,2],"
    "\"data_offsets\":[0,8]},\"y\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[8,9]}}",
    "{}", NULL};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { BODY = 16 };
    size_t n = 8 + size + BODY;
    char *file = calloc(1, n);
    if (!file) {
        return 0;
    }
    uint64_t length = size;
    memcpy(file, &length, sizeof length);
    memcpy(file + 8, data, size);
    for (size_t body = 0; body <= BODY; body++) {
        StHeader header = {0};
        size_t whole = 8 + size + body;
        Str head = {file, st_header_extent((Str){file, 8}, whole)};
        if (head.n > whole) {
            abort();
        }
        if (st_header_parse(head, whole, "fuzz", &header, NULL) == ERR_OK) {
            for (size_t i = 0; i < header.count; i++) {
                const StTensor *t = &header.tensors[i];
                if (t->at < 8 + size || t->at > whole || t->bytes > whole - t->at) {
                    abort();
                }
            }
            st_header_free(&header);
        }
    }
    free(file);
    return 0;
}
