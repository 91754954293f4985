/* Frames of the trainer's protocol: u32 LE head length, u32 LE tail length, JSON head, binary
 * tail. Pure: bytes in, frames out, with bounds checked before anything is allocated. */
#ifndef ROLLTOP_TRAIN_FRAME_H
#define ROLLTOP_TRAIN_FRAME_H

#include "core/base/str.h"

enum { FRAME_PREFIX = 8, FRAME_HEAD_MAX = 1 << 20 };
static const size_t FRAME_TAIL_MAX = (size_t)1 << 30;

void frame_prefix(size_t head, size_t tail, unsigned char out[FRAME_PREFIX]);

/* Incremental reader of one stream. */
typedef struct FrameReader {
    size_t tail_max;
    unsigned char prefix[FRAME_PREFIX];
    size_t got; /* of the whole frame, prefix included */
    size_t head_n, tail_n;
    char *head;          /* NUL-terminated */
    unsigned char *tail; /* malloc'ed, so aligned for every number */
} FrameReader;

void frame_reader_init(FrameReader *reader, size_t tail_max);
void frame_reader_free(FrameReader *reader);
/* Takes bytes until one frame is whole (*whole), or all are used. *used says how many. After a
 * whole frame was looked at, frame_reader_next makes room for the following one. */
Err frame_reader_feed(FrameReader *reader, const void *bytes, size_t n, size_t *used, bool *whole,
                      Fault *fault);
void frame_reader_next(FrameReader *reader);

#endif
