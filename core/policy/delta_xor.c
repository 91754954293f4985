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

#include <endian.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

enum {
    LINE = 64, AHEAD = 4096,
    FRAME_BLOCK = 1 << 17, WINDOW_LOG = 17, /* the largest block of the format */
    PIECE = 8 * FRAME_BLOCK,
    THREADS = 2, THREAD_BYTES = 8 * PIECE, /* from there on a second thread takes half */
    HEADER = 14, /* magic, descriptor, window, eight bytes of size */
    RUN_MIN = 12,      /* fewer zeros cost less as literals */
    DENSE = 24,        /* bytes a sequence on average below which zstd searches itself */
    RUNS_MAX = PIECE / DENSE,
    DENSE_LEVEL = -3   /* any frame is valid */
};

typedef uint64_t Lane __attribute__((vector_size(16)));
enum { LANES = LINE / 16 };

static inline void xor_line(Lane out[LANES], const unsigned char *a, const unsigned char *b)
{
    Lane x[LANES];
    Lane y[LANES];
    memcpy(x, a, LINE);
    memcpy(y, b, LINE);
    for (int i = 0; i < LANES; i++) {
        out[i] = x[i] ^ y[i];
    }
}

static inline bool lanes_zero(const Lane x[LANES])
{
    Lane any = (x[0] | x[1]) | (x[2] | x[3]);
    return (any[0] | any[1]) == 0;
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
static void skip_zeros(Runs *runs, size_t to)
{
    if (to - runs->last >= RUN_MIN) {
        put_run(runs, runs->last + 1 - runs->from, to - runs->last - 1);
        runs->from = to;
    }
}

static void word_runs(Runs *runs, uint64_t differs, size_t at)
{
    while (differs != 0) {
        size_t byte = at + (size_t)__builtin_ctzll(differs) / 8;
        skip_zeros(runs, byte);
        runs->last = byte + 1;
        runs->changed++;
        differs &= ~(UINT64_C(0xff) << (8 * (byte - at)));
    }
}

static void line_runs(Runs *runs, const unsigned char *a, const unsigned char *b,
                      unsigned char *payload, size_t at)
{
    Lane x[LANES];
    uint64_t words[LINE / 8];
    xor_line(x, a + at, b + at);
    if (lanes_zero(x)) {
        return;
    }
    memcpy(words, x, LINE);
    memcpy(payload + at, x, LINE);
    for (int w = 0; w < LINE / 8; w++) {
        word_runs(runs, le64toh(words[w]), at + (size_t)w * 8);
    }
}

/* One block: its sequences and the delimiter with the literals that are left. `payload` is zero
 * where nothing differs. */
static void block_runs(Runs *runs, const unsigned char *a, const unsigned char *b,
                       unsigned char *payload, size_t at, size_t end)
{
    runs->from = runs->last = at;
    for (; at + LINE <= end && !runs->dense; at += LINE) {
        line_runs(runs, a, b, payload, at);
    }
    for (; at < end; at++) {
        payload[at] = a[at] ^ b[at];
        word_runs(runs, payload[at], at);
    }
    skip_zeros(runs, end);
    put_run(runs, end - runs->from, 0);
}

typedef struct Coder {
    Runs runs;
    unsigned char payload[PIECE]; /* zero between pieces */
    ZSTD_CCtx *zstd;
    unsigned char *frame;
    size_t used, capacity, last_block; /* last_block: where the newest block's header is */
} Coder;

static bool coder_open(Coder *coder)
{
    coder->zstd = ZSTD_createCCtx();
    coder->capacity = HEADER + 2 * ZSTD_compressBound(PIECE);
    coder->frame = malloc(coder->capacity);
    coder->used = HEADER; /* room for it; all but the first leave it out */
    if (!coder->zstd || !coder->frame) {
        return false;
    }
    (void)ZSTD_CCtx_setParameter(coder->zstd, ZSTD_c_compressionLevel, 1);
    (void)ZSTD_CCtx_setParameter(coder->zstd, ZSTD_c_windowLog, WINDOW_LOG);
    (void)ZSTD_CCtx_setParameter(coder->zstd, ZSTD_c_hashLog, ZSTD_HASHLOG_MIN);
    (void)ZSTD_CCtx_setParameter(coder->zstd, ZSTD_c_blockDelimiters,
                                 ZSTD_sf_explicitBlockDelimiters);
    return true;
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
    memset(coder->payload, 0, n);
    coder->used += written - head;
    return join_blocks(coder, coder->used - (written - head), coder->used);
}

/* The whole payload by zstd's own search. */
static Err whole(const unsigned char *a, const unsigned char *b, size_t n, void **frame,
                 size_t *frame_n, uint64_t *changed, Fault *fault)
{
    size_t bound = ZSTD_compressBound(n);
    unsigned char *payload = malloc(n + 1);
    void *out = payload ? malloc(bound) : NULL;
    Err err = out ? ERR_OK
                  : fault_set(fault, ERR_MEMORY, NULL, "no memory for a delta of %zu bytes", n);
    *changed = 0;
    for (size_t i = 0; i < n && out; i++) {
        payload[i] = a[i] ^ b[i];
        *changed += a[i] != b[i];
    }
    size_t written = out ? ZSTD_compress(out, bound, payload, n, DENSE_LEVEL) : 0;
    if (ZSTD_isError(written)) {
        err = fault_set(fault, ERR_FORMAT, NULL, "zstd: %s", ZSTD_getErrorName(written));
    }
    bool kept = err == ERR_OK && *changed > 0;
    *frame = kept ? out : NULL;
    *frame_n = kept ? written : 0;
    if (!kept) {
        free(out);
    }
    free(payload);
    return err;
}

typedef struct Part { /* what one thread codes */
    Coder coder;
    const unsigned char *a, *b;
    size_t n;
    bool coded;
} Part;

static void *code_part(void *arg)
{
    Part *part = arg;
    Coder *coder = &part->coder;
    Runs *runs = &coder->runs;
    part->coded = coder_open(coder);
    for (size_t at = 0; at < part->n && part->coded; at += PIECE) {
        size_t size = part->n - at < PIECE ? part->n - at : PIECE;
        runs->count = 0;
        for (size_t from = 0; from < size && !runs->dense; from += FRAME_BLOCK) {
            size_t end = size - from < FRAME_BLOCK ? size : from + FRAME_BLOCK;
            block_runs(runs, part->a + at, part->b + at, coder->payload, from, end);
        }
        part->coded = !runs->dense && code_piece(coder, size);
    }
    return NULL;
}

/* All parts, at once where there are several. */
static bool code_parts(Part *parts, int count)
{
    pthread_t threads[THREADS];
    bool started[THREADS] = {false};
    for (int i = 1; i < count; i++) {
        started[i] = pthread_create(&threads[i], NULL, code_part, &parts[i]) == 0;
    }
    for (int i = 0; i < count; i++) {
        if (!started[i]) {
            (void)code_part(&parts[i]);
        }
    }
    bool coded = true;
    for (int i = 0; i < count; i++) {
        if (started[i]) {
            (void)pthread_join(threads[i], NULL);
        }
        coded = coded && parts[i].coded;
    }
    return coded;
}

/* The parts' blocks behind one header; NULL: no memory. */
static unsigned char *join_parts(Part *parts, int count, size_t n, size_t *frame_n)
{
    size_t total = HEADER;
    for (int i = 0; i < count; i++) {
        total += parts[i].coder.used - HEADER;
    }
    unsigned char *frame = malloc(total);
    Coder *last = &parts[count - 1].coder;
    last->frame[last->last_block] |= 1;
    size_t at = HEADER;
    for (int i = 0; i < count && frame; i++) {
        const Coder *coder = &parts[i].coder;
        memcpy(frame + at, coder->frame + HEADER, coder->used - HEADER);
        at += coder->used - HEADER;
    }
    if (frame) {
        write_header(frame, n);
    }
    *frame_n = frame ? total : 0;
    return frame;
}

Err delta_xor_encode(const unsigned char *a, const unsigned char *b, size_t n, void **frame,
                     size_t *frame_n, uint64_t *changed, Fault *fault)
{
    int count = n >= THREAD_BYTES ? THREADS : 1;
    Part *parts = calloc((size_t)count, sizeof *parts);
    size_t half = count > 1 ? (n / 2 + PIECE - 1) / PIECE * PIECE : n;
    for (int i = 0; i < count && parts; i++) {
        size_t from = (size_t)i * half;
        parts[i].a = a + from;
        parts[i].b = b + from;
        parts[i].n = i + 1 < count ? half : n - from;
    }
    bool coded = parts && code_parts(parts, count);
    Err err = ERR_OK;
    *frame = NULL;
    *frame_n = 0;
    *changed = 0;
    for (int i = 0; i < count && coded; i++) {
        *changed += parts[i].coder.runs.changed;
    }
    if (coded && *changed > 0) {
        *frame = join_parts(parts, count, n, frame_n);
        coded = *frame != NULL;
    }
    if (!coded) {
        err = whole(a, b, n, frame, frame_n, changed, fault);
    }
    for (int i = 0; i < count && parts; i++) {
        ZSTD_freeCCtx(parts[i].coder.zstd);
        free(parts[i].coder.frame);
    }
    free(parts);
    return err;
}

/* ---- applying ----------------------------------------------------------------------------- */

static void xor_into(unsigned char *bytes, const unsigned char *payload, size_t n)
{
    size_t i = 0;
    for (; i + LINE <= n; i += LINE) {
        Lane x[LANES];
        __builtin_prefetch(bytes + i + AHEAD, 1); /* lines that are skipped hide the stream */
        memcpy(x, payload + i, LINE);
        if (!lanes_zero(x)) {
            xor_line(x, payload + i, bytes + i);
            memcpy(bytes + i, x, LINE);
        }
    }
    for (; i < n; i++) {
        bytes[i] ^= payload[i];
    }
}

Err delta_xor_apply(const void *frame, size_t frame_n, unsigned char *bytes, size_t n,
                    Fault *fault)
{
    ZSTD_DCtx *zstd = ZSTD_createDCtx();
    unsigned char *chunk = malloc(FRAME_BLOCK);
    ZSTD_inBuffer in = {frame, frame_n, 0};
    size_t at = 0;
    size_t left = 1;
    Err err = zstd && chunk ? ERR_OK
                            : fault_set(fault, ERR_MEMORY, NULL, "no memory to apply a delta");
    while (err == ERR_OK && left != 0) { /* one block at a time: it stays in the cache */
        ZSTD_outBuffer out = {chunk, FRAME_BLOCK, 0};
        left = ZSTD_decompressStream(zstd, &out, &in);
        bool stuck = left != 0 && out.pos == 0 && in.pos == in.size;
        if (ZSTD_isError(left) || stuck || out.pos > n - at) {
            err = fault_set(fault, ERR_FORMAT, "publish the version again",
                            "the delta is damaged: zstd cannot read it");
            break;
        }
        xor_into(bytes + at, chunk, out.pos);
        at += out.pos;
    }
    if (err == ERR_OK && (at != n || in.pos != in.size)) {
        err = fault_set(fault, ERR_FORMAT, "publish the version again",
                        "the delta is damaged: it ends early, or more follows");
    }
    free(chunk);
    ZSTD_freeDCtx(zstd);
    return err;
}
