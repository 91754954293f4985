/* What the parts of the tokenizer share; private to core/model. */
#ifndef ROLLTOP_MODEL_TOKENIZER_IMPL_H
#define ROLLTOP_MODEL_TOKENIZER_IMPL_H

#include "core/model/added_tokens.h"
#include "core/model/bpe.h"
#include "core/model/pretoken.h"

struct Tokenizer {
    Bpe *bpe;
    Pretoken *pretoken;
    AddedTokens raw;        /* found in the text as it comes */
    AddedTokens normalized; /* found after normalisation */
    Text added_bytes;       /* what added tokens decode to, back to back */
    struct AddedEntry {
        size_t at;
        uint32_t n;
        bool used, special;
    } *added; /* by id */
    size_t added_count;
    bool nfc;
    int vocab;
};

#endif
