#include "core/app/example.h"

#include "core/app/app.h"
#include "core/base/fs.h"
#include "core/base/mem.h"

#include <stdlib.h>
#include <zstd.h>

enum { PACKED_MAX = 4 << 20, UNPACKED_MAX = 64 << 20 };

static Err unpack(const char *from, Text *out, Fault *fault)
{
    Text packed;
    text_init(&packed, PACKED_MAX);
    Err err = fs_read(from, &packed, fault);
    unsigned long long n = err ? 0 : ZSTD_getFrameContentSize(packed.p, packed.n);
    bool good = err == ERR_OK && n <= UNPACKED_MAX && text_reserve(out, (size_t)n) &&
                ZSTD_decompress(out->p, (size_t)n, packed.p, packed.n) == n;
    if (err == ERR_OK && !good) {
        err = fault_set(fault, ERR_FORMAT, "install rolltop again", "%s is damaged", from);
    }
    out->n = good ? (size_t)n : 0;
    text_free(&packed);
    return err;
}

Err example_unpack(char **path, Fault *fault)
{
    char *from = app_data_path("incident.db.zst", "tests/data/incident.db.zst");
    char *state = NULL;
    Text log;
    Err err = ERR_OK;
    text_init(&log, UNPACKED_MAX);
    *path = NULL;
    if (!from) {
        err = fault_set(fault, ERR_NOT_FOUND, "./setup install puts it beside the program",
                        "incident.db.zst, the recorded incident, is not installed");
    }
    err = err ? err : unpack(from, &log, fault);
    err = err ? err : fs_state_dir(&state, fault);
    if (err == ERR_OK) {
        *path = fs_join(state, "incident.db");
        err = fs_write_atomic(*path, log.p, log.n, fault);
    }
    if (err != ERR_OK) {
        free(*path);
        *path = NULL;
    }
    text_free(&log);
    free(state);
    free(from);
    return err;
}
