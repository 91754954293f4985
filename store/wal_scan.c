#include "store/wal_scan.h"

#include "core/base/fs.h"
#include "core/base/mem.h"

#include <stdlib.h>
#include <string.h>

/* https://www.sqlite.org/fileformat2.html#walformat: a header of 32 bytes, then frames of 24 bytes
 * and a page. Checksums run on from frame to frame. Numbers are big-endian; the words that a
 * checksum adds up are so only if the magic says it. */
enum { HEADER = 32, FRAME = 24, PAGE_LEAST = 512, PAGE_MOST = 65536 };
#define MAGIC 0x377f0682u

static uint32_t be32(const unsigned char *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static uint32_t le32(const unsigned char *p)
{
    return (uint32_t)p[3] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[1] << 8 | p[0];
}

static void add_sum(bool big, const unsigned char *p, size_t n, uint32_t sum[2])
{
    for (size_t i = 0; i + 8 <= n; i += 8) {
        sum[0] += (big ? be32(p + i) : le32(p + i)) + sum[1];
        sum[1] += (big ? be32(p + i + 4) : le32(p + i + 4)) + sum[0];
    }
}

typedef struct Scan {
    bool big, broken;
    uint32_t sum[2];
    unsigned char salts[8];
} Scan;

static void see_frame(Scan *scan, const unsigned char *frame, size_t page, WalScan *out)
{
    if (memcmp(frame + 8, scan->salts, sizeof scan->salts) != 0) {
        scan->broken = true; /* of an earlier generation, or damaged: nothing behind is read */
        return;
    }
    bool commit = be32(frame + 4) != 0;
    if (!scan->broken) {
        uint32_t sum[2] = {scan->sum[0], scan->sum[1]};
        add_sum(scan->big, frame, 8, sum);
        add_sum(scan->big, frame + FRAME, page, sum);
        scan->broken = sum[0] != be32(frame + 16) || sum[1] != be32(frame + 20);
        memcpy(scan->sum, sum, sizeof sum);
    }
    if (scan->broken) {
        out->behind++;
        out->commits_behind += commit;
        return;
    }
    out->frames++;
    out->committed = commit ? out->frames : out->committed;
}

Err wal_scan(const char *path, WalScan *out, Fault *fault)
{
    *out = (WalScan){0};
    char *name = xasprintf("%s-wal", path);
    FsFile file = {.fd = -1};
    unsigned char header[HEADER];
    Err err = fs_exists(name) ? fs_open(name, &file, fault) : ERR_OK;
    free(name);
    if (err != ERR_OK || file.fd < 0 || file.n == 0) {
        fs_close(&file);
        return err;
    }
    out->found = true;
    if (file.n < HEADER || fs_read_at(&file, 0, header, HEADER) != ERR_OK) {
        fs_close(&file);
        return ERR_OK;
    }
    Scan scan = {.big = (be32(header) & 1) != 0};
    size_t page = be32(header + 8);
    add_sum(scan.big, header, 24, scan.sum);
    out->header_good = (be32(header) & ~1u) == MAGIC && page >= PAGE_LEAST && page <= PAGE_MOST &&
                       scan.sum[0] == be32(header + 24) && scan.sum[1] == be32(header + 28);
    memcpy(scan.salts, header + 16, sizeof scan.salts);
    unsigned char *frame = out->header_good ? xcalloc(1, FRAME + page) : NULL;
    for (uint64_t at = HEADER; frame != NULL && at + FRAME + page <= file.n; at += FRAME + page) {
        if (fs_read_at(&file, at, frame, FRAME + page) != ERR_OK) {
            break;
        }
        see_frame(&scan, frame, page, out);
    }
    free(frame);
    fs_close(&file);
    return ERR_OK;
}
