/* Private to fleet: the two long lists of a reply, token ids and log-prob triples, of 10 and 35
 * bytes a token. Nearly all of an 8,192-token reply of 360 kB is in them, so the compact form in
 * which engines print them is read eight bytes at a time; whatever looks different, and every
 * error, goes through JsonCursor byte by byte, with the same values. */
#ifndef ROLLTOP_FLEET_GENERATE_LISTS_H
#define ROLLTOP_FLEET_GENERATE_LISTS_H

#include "core/fleet/json_cursor.h"

typedef struct TokenList { /* owned; `ids` and `logprobs` are equally long */
    int32_t *ids;
    float *logprobs;
    size_t count, capacity;
    bool lent;           /* both lie in memory of the caller's */
} TokenList;

void token_list_free(TokenList *list);
/* An empty list that holds `capacity` tokens in memory of the caller's, and moves out of it when it
 * grows beyond. */
void token_list_lend(TokenList *list, int32_t *ids, float *logprobs, size_t capacity);
/* Appends n tokens, copied; `logprobs` NULL: NAN for each. */
void token_list_add(TokenList *list, const int32_t *ids, const float *logprobs, size_t n);

/* Both read an array and append at most `most` entries; the rest is checked and passed over. An id
 * that is no int32 >= 0 becomes -1; ids without a log-prob get 0. Errors are the cursor's. */
void generate_read_ids(JsonCursor *c, TokenList *list, size_t most);
/* [log-prob, id, …] each. *null_logprob is set when one is null or not finite as a float. */
void generate_read_triples(JsonCursor *c, TokenList *list, size_t most, bool *null_logprob);

#endif
