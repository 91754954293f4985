/* Byte-level BPE: the vocabulary, the merges and the merging of one piece.
 *
 * Merging is the reference's: a heap of candidate merges by (rank, place), so a piece of n bytes
 * costs n log n. A piece that is a token by itself is looked up: whether the merges really lead
 * to that token is found out once per token and kept as a flag. Immutable but for those flags,
 * which are atomic; one Bpe serves all threads, each with its own BpeScratch. */
#ifndef ROLLTOP_MODEL_BPE_H
#define ROLLTOP_MODEL_BPE_H

#include "core/model/tokenizer.h"

enum { BPE_TOKENS_MAX = 1 << 24 };

typedef struct Bpe Bpe;
Bpe *bpe_new(void);
void bpe_free(Bpe *bpe);
/* `token` as tokenizer.json writes it, bytes as characters. ERR_LIMIT: id out of bounds;
 * ERR_EXISTS: the token or the id stands twice. */
Err bpe_add_token(Bpe *bpe, Str token, int32_t id);
/* Call once after the last token, before merges. Then merges in order of rank.
 * ERR_NOT_FOUND: a part or the whole is no token. */
Err bpe_index_tokens(Bpe *bpe);
Err bpe_add_merge(Bpe *bpe, Str left, Str right);
void bpe_ignore_merges(Bpe *bpe); /* a piece that is a token is that token */

int32_t bpe_max_id(const Bpe *bpe);
/* The bytes that a token stands for; p NULL when there is no such token. */
Str bpe_token_bytes(const Bpe *bpe, int32_t id);
int32_t bpe_find(const Bpe *bpe, Str token); /* written as in the file; -1 when absent */
bool bpe_all_bytes(const Bpe *bpe);          /* each of the 256 bytes has a token */

typedef struct BpeScratch BpeScratch;
BpeScratch *bpe_scratch_new(void);
void bpe_scratch_free(BpeScratch *scratch);
/* Appends the ids of one piece. A byte without a token vanishes before merging. */
void bpe_encode(const Bpe *bpe, BpeScratch *scratch, Str piece, TokenIds *out);

/* Bytes of a token's written form: characters of the byte alphabet become their byte; a token
 * with any other character stands for its own UTF-8. */
bool bpe_text_to_bytes(Str token, Text *out);
/* The character (as UTF-8, 1 or 2 bytes) that stands for a byte. */
size_t bpe_byte_char(unsigned char byte, char out[4]);

void token_ids_add(TokenIds *ids, int32_t id);

#endif
