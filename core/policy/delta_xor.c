/* zstd's own search for matches passes every byte of the payload through hash tables, although
 * nearly all of them are zero. The places that differ are found by comparing words anyway, and
 * they say all there is to know: changed bytes are literals, the zeros between them one match of
 * distance 1. zstd is given these sequences and only codes them (ZSTD_compressSequences, there
 * since 1.5.0 and still called experimental).
 *
 * It wants all of the payload at once, and touching that much fresh memory costs more than the
 * rest together. So it codes a piece that fits the cache, and the blocks of all pieces are put
 * behind one frame header. Blocks may be joined so because each piece begins without tables of
 * entropy to repeat and with the same three recent distances: a match always has a literal before
 * it and distance 1, the first of them, so they never change. A piece too dense for this takes
 * zstd's usual way into a frame of its own kind (`whole`). */
#define ZSTD_STATIC_LINKING_ONLY
#include "core/policy/delta_xor.h"

#include "core/base/mem.h"
#include "core/policy/delta_sum.h"

#include <endian.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

enum {
    LINE = 64, AHEAD = 4096,
    FRAME_BLOCK = DELTA_BLOCK, WINDOW_LOG = 17, /* the largest block of the format */
    WINDOW_MOST = 1 << 27, /* of frames that others wrote: as zstd's own readers have it */
    PIECE = 4 * FRAME_BLOCK,
    HEADER = 14, /* magic, descriptor, window, eight bytes of size */
    RUN_MIN = 12,      /* fewer zeros cost less as literals */
    DENSE = 24,        /* bytes a sequence on average below which zstd searches itself */
    RUNS_MAX = PIECE / DENSE,
    DENSE_LEVEL = -3   /* any frame is valid */
};

/* A bit for each byte of a line, the first one lowest: set where a and b differ. */
static inline uint64_t line_differs(const unsigned char *a, const unsigned char *b)
{
    uint64_t same = 0;
#ifdef __SSE2__
    for (int i = 0; i < LINE / 16; i++) {
        const __m128i x = _mm_loadu_si128((const __m128i *)(const void *)(a + 16 * i));
        const __m128i y = _mm_loadu_si128((const __m128i *)(const void *)(b + 16 * i));
        same |= (uint64_t)(unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(x, y)) << (16 * i);
    }
#else
    for (int i = 0; i < LINE; i++) {
        same |= (uint64_t)(a[i] == b[i]) << i;
    }
#endif
    return ~same;
}

typedef uint64_t Lane __attribute__((vector_size(16)));
enum { LANE = sizeof(Lane) };

static inline Lane lane_at(const unsigned char *p)
{
    Lane lane;
    memcpy(&lane, p, LANE);
    return lane;
}

static inline void xor_line(unsigned char *out, const unsigned char *a, const unsigned char *b)
{
    for (int at = 0; at < LINE; at += LANE) {
        const Lane lane = lane_at(a + at) ^ lane_at(b + at);
        memcpy(out + at, &lane, LANE);
    }
}

static inline bool is_zero_line(const unsigned char *p)
{
    const Lane any = (lane_at(p) | lane_at(p + LANE))
                     | (lane_at(p + 2 * LANE) | lane_at(p + 3 * LANE));
    return (any[0] | any[1]) == 0;
}

static void xor_bytes(unsigned char *out, const unsigned char *a, const unsigned char *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        out[i] = a[i] ^ b[i];
    }
}

typedef struct Runs { /* the sequences of one piece */
    ZSTD_Sequence items[RUNS_MAX];
    size_t count;
    size_t from; /* first byte that no sequence covers */
    size_t last; /* past the newest byte that differs, or `from` */
    uint64_t changed;
    bool dense;
} Runs;

static void put_run(Runs *runs, size_t literals, size_t match)
{
    if (runs->count == RUNS_MAX) {
        runs->dense = true;
        return;
    }
    runs->items[runs->count++] = (ZSTD_Sequence){.offset = match > 0, .rep = 0,
                                                 .litLength = (unsigned)literals,
                                                 .matchLength = (unsigned)match};
}

/* Zeros from runs->last to `to`: one of them is a literal, the others repeat it. */
static inline void skip_zeros(Runs *runs, unsigned char *payload, size_t to)
{
    if (to - runs->last >= RUN_MIN) {
        payload[runs->last] = 0;
        put_run(runs, runs->last + 1 - runs->from, to - runs->last - 1);
        runs->from = to;
    }
}

static inline void line_runs(Runs *runs, unsigned char *payload, uint64_t differs, size_t at)
{
    runs->changed += (uint64_t)__builtin_popcountll(differs);
    for (; differs != 0; differs &= differs - 1) {
        const size_t byte = at + (size_t)__builtin_ctzll(differs);
        skip_zeros(runs, payload, byte);
        runs->last = byte + 1;
    }
}

/* One block: its sequences and the delimiter with the literals that are left. Of the payload only
 * lines in which something differs are written, and those zeros elsewhere that are literals: zstd
 * looks at no other byte. */
static void block_runs(Runs *runs, const unsigned char *a, const unsigned char *b,
                       unsigned char *payload, size_t at, size_t end)
{
    runs->from = runs->last = at;
    for (; at + LINE <= end && !runs->dense; at += LINE) {
        const uint64_t differs = line_differs(a + at, b + at);
        if (differs) {
            xor_line(payload + at, a + at, b + at);
            line_runs(runs, payload, differs, at);
        }
    }
    xor_bytes(payload + at, a + at, b + at, end - at);
    for (; at < end; at++) {
        line_runs(runs, payload, payload[at] != 0, at);
    }
    skip_zeros(runs, payload, end);
    if (end > runs->last && runs->from <= runs->last) {
        memset(payload + runs->last, 0, end - runs->last);
    }
    put_run(runs, end - runs->from, 0);
}

typedef struct Coder {
    Runs runs;
    unsigned char payload[PIECE];
    ZSTD_CCtx *zstd;
    unsigned char *frame; /* grows; a copy of what is used of it is given away */
    size_t used, capacity, last_block; /* last_block: where the newest block's header is */
} Coder;

typedef struct Decoder { /* blocks are read into a ring of the window and one block, or, where
                          * that is less, into room for all that the frame holds */
    ZSTD_DCtx *zstd;
    unsigned char *ring;
    size_t capacity, size, at, block;
    bool begins_anew; /* it is a ring; else nothing is written over: matches may reach all of it */
} Decoder;

struct DeltaScratch { /* made when first needed: fresh memory costs more than what is done in it */
    Coder *coder;
    Decoder decoder;
};

DeltaScratch *delta_scratch_new(void)
{
    return xcalloc(1, sizeof(DeltaScratch));
}

void delta_scratch_free(DeltaScratch *scratch)
{
    if (!scratch) {
        return;
    }
    if (scratch->coder) {
        ZSTD_freeCCtx(scratch->coder->zstd);
        free(scratch->coder->frame);
        free(scratch->coder);
    }
    ZSTD_freeDCtx(scratch->decoder.zstd);
    free(scratch->decoder.ring);
    free(scratch);
}

static bool coder_make(DeltaScratch *scratch)
{
    Coder *coder = malloc(sizeof *coder);
    if (!coder) {
        return false;
    }
    scratch->coder = coder;
    coder->zstd = ZSTD_createCCtx();
    coder->capacity = HEADER + 2 * ZSTD_compressBound(PIECE);
    coder->frame = malloc(coder->capacity);
    if (!coder->zstd || !coder->frame) {
        ZSTD_freeCCtx(coder->zstd);
        free(coder->frame);
        free(coder);
        scratch->coder = NULL;
        return false;
    }
    (void)ZSTD_CCtx_setParameter(coder->zstd, ZSTD_c_compressionLevel, 1);
    (void)ZSTD_CCtx_setParameter(coder->zstd, ZSTD_c_windowLog, WINDOW_LOG);
    (void)ZSTD_CCtx_setParameter(coder->zstd, ZSTD_c_hashLog, ZSTD_HASHLOG_MIN);
    (void)ZSTD_CCtx_setParameter(coder->zstd, ZSTD_c_blockDelimiters,
                                 ZSTD_sf_explicitBlockDelimiters);
    return true;
}

/* NULL: no memory. */
static Coder *coder_open(DeltaScratch *scratch)
{
    if (!scratch->coder && !coder_make(scratch)) {
        return NULL;
    }
    scratch->coder->used = HEADER;
    scratch->coder->runs.changed = 0;
    scratch->coder->runs.dense = false;
    return scratch->coder;
}

static void write_header(unsigned char *frame, size_t n)
{
    static const unsigned char head[6] = {0x28, 0xb5, 0x2f, 0xfd, 3 << 6, (WINDOW_LOG - 10) << 3};
    uint64_t size = htole64((uint64_t)n);
    memcpy(frame, head, sizeof head);
    memcpy(frame + sizeof head, &size, sizeof size);
}

/* Marks no block of the piece as the frame's last one, and notes where the newest begins. */
static bool join_blocks(Coder *coder, size_t from, size_t to)
{
    while (from + 3 <= to) {
        unsigned char *block = coder->frame + from;
        uint32_t head = (uint32_t)block[0] | (uint32_t)block[1] << 8 | (uint32_t)block[2] << 16;
        bool repeated = (head >> 1 & 3) == 1; /* its size is not that of what follows: one byte */
        block[0] &= 0xfe;
        coder->last_block = from;
        from += 3 + (repeated ? 1 : head >> 3);
    }
    return from == to;
}

/* Codes a piece behind what there is. False: no memory, or zstd will not. */
static bool code_piece(Coder *coder, size_t n)
{
    size_t bound = ZSTD_compressBound(n);
    if (coder->capacity - coder->used < bound) {
        size_t capacity = 2 * coder->capacity + bound;
        unsigned char *grown = realloc(coder->frame, capacity);
        if (!grown) {
            return false;
        }
        coder->frame = grown;
        coder->capacity = capacity;
    }
    unsigned char *at = coder->frame + coder->used;
    const Runs *runs = &coder->runs;
    size_t written = ZSTD_compressSequences(coder->zstd, at, coder->capacity - coder->used,
                                            runs->items, runs->count, coder->payload, n);
    size_t head = ZSTD_isError(written) ? 0 : ZSTD_frameHeaderSize(at, written);
    if (ZSTD_isError(written) || ZSTD_isError(head)) {
        return false;
    }
    memmove(at, at + head, written - head);
    coder->used += written - head;
    return join_blocks(coder, coder->used - (written - head), coder->used);
}

/* The whole payload by zstd's own search. */
static Err whole(const unsigned char *a, const unsigned char *b, size_t n, DeltaSum kind,
                 DeltaFrame *frame, Fault *fault)
{
    size_t bound = ZSTD_compressBound(n);
    unsigned char *payload = malloc(n + 1);
    void *out = payload ? malloc(bound) : NULL;
    Err err = out ? ERR_OK
                  : fault_set(fault, ERR_MEMORY, NULL, "no memory for a delta of %zu bytes", n);
    frame->changed = 0;
    for (size_t i = 0; i < n && out; i++) {
        payload[i] = a[i] ^ b[i];
        frame->changed += a[i] != b[i];
    }
    size_t written = out ? ZSTD_compress(out, bound, payload, n, DENSE_LEVEL) : 0;
    if (ZSTD_isError(written)) {
        err = fault_set(fault, ERR_FORMAT, NULL, "zstd: %s", ZSTD_getErrorName(written));
    }
    if (err == ERR_OK && frame->changed > 0) {
        delta_sum(kind, b, n, frame->sum);
        frame->bytes = out;
        frame->n = written;
        out = NULL;
    }
    free(out);
    free(payload);
    return err;
}

/* Codes all of it, block by block: what is compared is summed while it is in the cache. The sum
 * begins with the first change, since most tensors may have none. */
static bool code_all(Coder *coder, const unsigned char *a, const unsigned char *b, size_t n,
                     DeltaSummer *summer)
{
    Runs *runs = &coder->runs;
    bool coded = true;
    size_t summed = 0;
    for (size_t at = 0; at < n && coded; at += PIECE) {
        const size_t size = n - at < PIECE ? n - at : PIECE;
        runs->count = 0;
        for (size_t from = 0; from < size && !runs->dense; from += FRAME_BLOCK) {
            const size_t end = size - from < FRAME_BLOCK ? size : from + FRAME_BLOCK;
            block_runs(runs, a + at, b + at, coder->payload, from, end);
            if (runs->changed > 0) {
                delta_summer_add(summer, b + summed, at + end - summed);
                summed = at + end;
            }
        }
        coded = !runs->dense && code_piece(coder, size);
    }
    return coded;
}

static Err take_frame(Coder *coder, size_t n, DeltaFrame *frame, Fault *fault)
{
    unsigned char *bytes = malloc(coder->used);
    if (!bytes) {
        return fault_set(fault, ERR_MEMORY, NULL, "no memory for a delta of %zu bytes", n);
    }
    write_header(coder->frame, n);
    coder->frame[coder->last_block] |= 1;
    memcpy(bytes, coder->frame, coder->used);
    frame->bytes = bytes;
    frame->n = coder->used;
    frame->changed = coder->runs.changed;
    return ERR_OK;
}

Err delta_xor_encode(DeltaScratch *scratch, const unsigned char *a, const unsigned char *b,
                     size_t n, DeltaSum kind, DeltaFrame *frame, Fault *fault)
{
    Coder *coder = coder_open(scratch);
    DeltaSummer summer;
    delta_summer_begin(&summer, kind);
    const bool coded = coder && code_all(coder, a, b, n, &summer);
    Err err = ERR_OK;
    if (!coded) {
        err = whole(a, b, n, kind, frame, fault);
    } else if (coder->runs.changed > 0) {
        err = take_frame(coder, n, frame, fault);
    }
    delta_summer_end(&summer, coded && frame->bytes ? frame->sum : NULL);
    return err;
}

/* ---- applying ----------------------------------------------------------------------------- */

/* Lines that are skipped hide the stream from the processor: with the fetch 64 MiB of FP32 are
 * applied in 11 ms of CPU, without in 17 to 18 (bench_delta 64, in turns). */
static void xor_into(unsigned char *bytes, const unsigned char *payload, size_t n)
{
    size_t i = 0;
    for (; i + LINE <= n; i += LINE) {
        __builtin_prefetch(bytes + i + AHEAD, 1);
        if (!is_zero_line(payload + i)) {
            xor_line(bytes + i, bytes + i, payload + i);
        }
    }
    xor_bytes(bytes + i, bytes + i, payload + i, n - i);
}

static Err decoder_open(Decoder *decoder, const void *frame, size_t frame_n, size_t n,
                        Fault *fault)
{
    ZSTD_frameHeader header;
    if (ZSTD_getFrameHeader(&header, frame, frame_n) != 0 || header.frameType != ZSTD_frame
        || header.frameContentSize != n || header.windowSize > WINDOW_MOST) {
        return delta_damaged(fault, "its header is not that of a frame of this tensor");
    }
    const size_t size = ZSTD_decodingBufferSize_min(header.windowSize, n);
    if (!ZSTD_isError(size) && size > decoder->capacity) {
        free(decoder->ring);
        decoder->ring = malloc(size);
        decoder->capacity = decoder->ring ? size : 0;
    }
    decoder->zstd = decoder->zstd ? decoder->zstd : ZSTD_createDCtx();
    if (ZSTD_isError(size) || size > decoder->capacity || !decoder->zstd
        || ZSTD_isError(ZSTD_decompressBegin(decoder->zstd))) {
        return fault_set(fault, ERR_MEMORY, NULL, "no memory to apply a delta");
    }
    decoder->size = size;
    decoder->at = 0;
    decoder->block = header.blockSizeMax;
    decoder->begins_anew = size < n;
    return ERR_OK;
}

/* The next part of the frame; *out may come out empty. False: it is damaged. */
static bool decoder_next(Decoder *decoder, const unsigned char *part, size_t part_n,
                         const unsigned char **out, size_t *out_n)
{
    if (decoder->begins_anew && decoder->at + decoder->block > decoder->size) {
        decoder->at = 0;
    }
    *out = decoder->ring + decoder->at;
    *out_n = ZSTD_decompressContinue(decoder->zstd, decoder->ring + decoder->at,
                                     decoder->size - decoder->at, part, part_n);
    if (ZSTD_isError(*out_n)) {
        return false;
    }
    decoder->at += *out_n;
    return true;
}

Err delta_xor_apply(DeltaScratch *scratch, const void *frame, size_t frame_n,
                    unsigned char *bytes, size_t n, DeltaSum kind, char sum[DELTA_SUM_TEXT],
                    Fault *fault)
{
    Decoder *decoder = &scratch->decoder;
    DeltaSummer summer;
    const unsigned char *part = frame;
    size_t at = 0;
    size_t left = frame_n;
    delta_summer_begin(&summer, kind);
    Err err = decoder_open(decoder, frame, frame_n, n, fault);
    size_t wanted = err == ERR_OK ? ZSTD_nextSrcSizeToDecompress(decoder->zstd) : 0;
    while (err == ERR_OK && wanted > 0) {
        const unsigned char *out = NULL;
        size_t out_n = 0;
        if (wanted > left || !decoder_next(decoder, part, wanted, &out, &out_n)
            || out_n > n - at) {
            err = delta_damaged(fault, "zstd cannot read it");
            break;
        }
        xor_into(bytes + at, out, out_n);
        delta_summer_add(&summer, bytes + at, out_n);
        at += out_n;
        part += wanted;
        left -= wanted;
        wanted = ZSTD_nextSrcSizeToDecompress(decoder->zstd);
    }
    if (err == ERR_OK && (at != n || left != 0)) {
        err = delta_damaged(fault, "it ends early, or more follows");
    }
    delta_summer_end(&summer, err == ERR_OK ? sum : NULL);
    return err;
}
