/* The tail is allocated at its stated size only as bytes arrive: a peer that announces a gigabyte
 * and sends ten bytes costs one megabyte. */
#include "core/train/frame.h"

#include "core/base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { FRAME_GROW = 1 << 20 };

static void put_u32(uint32_t v, unsigned char *out)
{
    for (int i = 0; i < 4; i++) {
        out[i] = (unsigned char)(v >> (8 * i));
    }
}

static uint32_t get_u32(const unsigned char *in)
{
    return (uint32_t)in[0] | (uint32_t)in[1] << 8 | (uint32_t)in[2] << 16 | (uint32_t)in[3] << 24;
}

void frame_prefix(size_t head, size_t tail, unsigned char out[FRAME_PREFIX])
{
    put_u32((uint32_t)head, out);
    put_u32((uint32_t)tail, out + 4);
}

/* ERR_LIMIT when a length is over its bound, ERR_FORMAT when the head is empty. */
static Err frame_lengths(const unsigned char prefix[FRAME_PREFIX], size_t tail_max, size_t *head,
                         size_t *tail, Fault *fault)
{
    *head = get_u32(prefix);
    *tail = get_u32(prefix + 4);
    if (*head == 0) {
        return fault_set(fault, ERR_FORMAT, "the peer does not speak the trainer protocol",
                         "a frame has an empty head");
    }
    if (*head > FRAME_HEAD_MAX || *tail > tail_max) {
        return fault_set(fault, ERR_LIMIT, "the peer does not speak the trainer protocol, or the "
                         "batch must be split",
                         "a frame of %zu + %zu bytes is over the bounds %d + %zu", *head, *tail,
                         (int)FRAME_HEAD_MAX, tail_max);
    }
    return ERR_OK;
}

void frame_reader_init(FrameReader *reader, size_t tail_max)
{
    memset(reader, 0, sizeof *reader);
    reader->tail_max = tail_max;
}

void frame_reader_free(FrameReader *reader)
{
    free(reader->head);
    free(reader->tail);
    reader->head = NULL;
    reader->tail = NULL;
    reader->got = 0;
}

void frame_reader_next(FrameReader *reader)
{
    frame_reader_free(reader);
    reader->head_n = 0;
    reader->tail_n = 0;
}

/* Room for `have` + `more` bytes of a tail of `total`: doubled, never over the total. */
static Err tail_room(FrameReader *reader, size_t have, size_t more, Fault *fault)
{
    size_t need = have + more;
    size_t room = FRAME_GROW;
    while (room < have) {
        room *= 2; /* the size of the last growth */
    }
    if (reader->tail && need <= room) {
        return ERR_OK;
    }
    while (room < need) {
        room *= 2;
    }
    size_t size = room < reader->tail_n ? room : reader->tail_n;
    unsigned char *grown = realloc(reader->tail, size ? size : 1);
    if (!grown) {
        return fault_set(fault, ERR_MEMORY, "train on smaller batches",
                         "no memory for a frame of %zu bytes", reader->tail_n);
    }
    reader->tail = grown;
    return ERR_OK;
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

Err frame_reader_feed(FrameReader *reader, const void *bytes, size_t n, size_t *used, bool *whole,
                      Fault *fault)
{
    const unsigned char *p = bytes;
    *used = 0;
    *whole = false;
    while (*used < n || reader->got >= FRAME_PREFIX) {
        size_t left = n - *used;
        size_t part;
        if (reader->got < FRAME_PREFIX) {
            part = smaller(left, FRAME_PREFIX - reader->got);
            memcpy(reader->prefix + reader->got, p + *used, part);
            if (reader->got + part == FRAME_PREFIX) {
                Err err = frame_lengths(reader->prefix, reader->tail_max, &reader->head_n,
                                        &reader->tail_n, fault);
                if (err) {
                    return err;
                }
                reader->head = xcalloc(reader->head_n + 1, 1);
            }
        } else if (reader->got < FRAME_PREFIX + reader->head_n) {
            size_t at = reader->got - FRAME_PREFIX;
            part = smaller(left, reader->head_n - at);
            memcpy(reader->head + at, p + *used, part);
        } else {
            size_t at = reader->got - FRAME_PREFIX - reader->head_n;
            part = smaller(left, reader->tail_n - at);
            Err err = tail_room(reader, at, part, fault);
            if (err) {
                return err;
            }
            if (part > 0) {
                memcpy(reader->tail + at, p + *used, part);
            }
            if (at + part == reader->tail_n) {
                *used += part;
                reader->got += part;
                *whole = true;
                return ERR_OK;
            }
        }
        if (part == 0) {
            break;
        }
        *used += part;
        reader->got += part;
    }
    return ERR_OK;
}
