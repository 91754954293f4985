/* tokenizer.json is read with the pull scanner: 300,000 strings become table entries at once, and
 * no tree of them is ever built. Qwen3's 11 MB take 0.1 s. */
#include "core/model/tokenizer_impl.h"

#include "core/base/fs.h"
#include "core/base/mem.h"
#include "core/base/utf8.h"

#include <stdlib.h>
#include <string.h>

enum { FILE_BYTES_MAX = 1 << 28, TOKEN_BYTES_MAX = 1 << 20, ADDED_MAX = 1 << 16 };

typedef struct Load {
    JsonScan scan;
    Text scratch, other;
    const char *path;
    Tokenizer *tokenizer;
    Str merges; /* raw list, read when the vocabulary is complete */
    bool model_seen, vocab_seen, byte_level_decoder, unk_token, pretoken_seen;
    Fault *fault;
} Load;

static Err malformed(const Load *l)
{
    return fault_set(l->fault, ERR_FORMAT, "fetch the file again",
                     "%s is malformed: %s at byte %zu", l->path,
                     l->scan.error != NULL ? l->scan.error : "unexpected value", l->scan.at);
}

static Err unsupported(const Load *l, const char *what)
{
    return fault_set(l->fault, ERR_UNSUPPORTED,
                     "use a checkpoint whose tokenizer is byte-level BPE, as Qwen3 or SmolLM2",
                     "%s: %s is not supported", l->path, what);
}

/* ---- added tokens ---- */

static bool scan_added(Load *l, AddedToken *token)
{
    JsonScan *s = &l->scan;
    Str key;
    Str value;
    uint64_t id = UINT64_MAX;
    bool good = json_scan_object(s);
    while (good && json_scan_key(s, &l->scratch, &key)) {
        if (str_equal(key, STR("content"))) {
            good = json_scan_string(s, &l->scratch, &value);
            if (good) {
                free(token->content);
                token->content = xcalloc(value.n + 1, 1);
                token->n = value.n;
                if (value.n > 0) {
                    memcpy(token->content, value.p, value.n);
                }
            }
        } else if (str_equal(key, STR("id"))) {
            good = json_scan_u64(s, &id);
        } else if (str_equal(key, STR("special"))) {
            good = json_scan_bool(s, &token->special);
        } else if (str_equal(key, STR("normalized"))) {
            good = json_scan_bool(s, &token->normalized);
        } else if (str_equal(key, STR("lstrip"))) {
            good = json_scan_bool(s, &token->lstrip);
        } else if (str_equal(key, STR("rstrip"))) {
            good = json_scan_bool(s, &token->rstrip);
        } else if (str_equal(key, STR("single_word"))) {
            good = json_scan_bool(s, &token->single_word);
        } else {
            good = json_scan_skip(s);
        }
    }
    token->id = id < BPE_TOKENS_MAX ? (int32_t)id : -1;
    return s->error == NULL;
}

static void note_added(Tokenizer *t, const AddedToken *token)
{
    size_t wanted = (size_t)token->id + 1;
    if (wanted > t->added_count) {
        t->added = xrealloc(t->added, wanted, sizeof *t->added);
        memset(t->added + t->added_count, 0, (wanted - t->added_count) * sizeof *t->added);
        t->added_count = wanted;
    }
    struct AddedEntry *entry = &t->added[token->id];
    entry->at = t->added_bytes.n;
    (void)bpe_text_to_bytes((Str){token->content, token->n}, &t->added_bytes);
    entry->n = (uint32_t)(t->added_bytes.n - entry->at);
    entry->used = true;
    entry->special = token->special;
}

static Err load_added(Load *l)
{
    Tokenizer *t = l->tokenizer;
    if (!json_scan_array(&l->scan)) {
        return malformed(l);
    }
    while (json_scan_item(&l->scan)) {
        AddedToken token = {0};
        bool good = scan_added(l, &token);
        if (!good || token.content == NULL || token.n == 0 || token.id < 0) {
            free(token.content);
            json_scan_fail(&l->scan, "an added token lacks content or a sane id");
            return malformed(l);
        }
        if (token.lstrip || token.rstrip || token.single_word ||
            t->raw.count + t->normalized.count >= ADDED_MAX) {
            free(token.content);
            return unsupported(l, "an added token with lstrip, rstrip or single_word");
        }
        note_added(t, &token);
        added_tokens_add(token.normalized && !token.special ? &t->normalized : &t->raw, token);
    }
    return l->scan.error == NULL ? ERR_OK : malformed(l);
}

/* ---- normalizer and decoder ---- */

/* Reads the types of a part, and of its children when it is a Sequence, through `seen`. */
static Err load_types(Load *l, Err (*seen)(Load *, Str type), const char *children, int depth)
{
    JsonScan *s = &l->scan;
    Str key;
    Str value;
    Err err = ERR_OK;
    if (json_scan_peek(s) == 'n') {
        return json_scan_null(s) ? ERR_OK : malformed(l);
    }
    bool good = json_scan_object(s);
    while (err == ERR_OK && good && json_scan_key(s, &l->scratch, &key)) {
        if (str_equal(key, STR("type"))) {
            good = json_scan_string(s, &l->scratch, &value);
            err = good && !str_equal(value, STR("Sequence")) ? seen(l, value) : ERR_OK;
        } else if (str_equal(key, str_from(children)) && depth < 4) {
            good = json_scan_array(s);
            while (err == ERR_OK && good && json_scan_item(s)) {
                err = load_types(l, seen, children, depth + 1);
            }
        } else {
            good = json_scan_skip(s);
        }
    }
    return err != ERR_OK ? err : s->error == NULL ? ERR_OK : malformed(l);
}

static Err see_normalizer(Load *l, Str type)
{
    char text[96];
    if (str_equal(type, STR("NFC"))) {
        l->tokenizer->nfc = true;
        return ERR_OK;
    }
    (void)str_format(text, sizeof text, "the normalizer %.*s", (int)str_slice(type, 0, 60).n,
                     type.p);
    return unsupported(l, text);
}

static Err see_decoder(Load *l, Str type)
{
    char text[96];
    if (str_equal(type, STR("ByteLevel"))) {
        l->byte_level_decoder = true;
        return ERR_OK;
    }
    (void)str_format(text, sizeof text, "the decoder %.*s", (int)str_slice(type, 0, 60).n, type.p);
    return unsupported(l, text);
}

/* ---- the model ---- */

static Err load_vocab(Load *l)
{
    JsonScan *s = &l->scan;
    Str key;
    if (!json_scan_object(s)) {
        return malformed(l);
    }
    while (json_scan_key(s, &l->scratch, &key)) {
        uint64_t id;
        if (!json_scan_u64(s, &id)) {
            return malformed(l);
        }
        Err err = bpe_add_token(l->tokenizer->bpe, key, id < BPE_TOKENS_MAX ? (int32_t)id : -1);
        if (err != ERR_OK) {
            json_scan_fail(s, err == ERR_EXISTS ? "an id of the vocabulary stands twice"
                                                : "an id or token of the vocabulary is too large");
            return malformed(l);
        }
    }
    l->vocab_seen = true;
    return s->error == NULL ? ERR_OK : malformed(l);
}

/* Both spellings: "left right" and ["left", "right"]. */
static bool scan_merge(JsonScan *s, Text *left_text, Text *right_text, Str *left, Str *right)
{
    if (json_scan_peek(s) == '[') {
        return json_scan_array(s) && json_scan_item(s) && json_scan_string(s, left_text, left) &&
               json_scan_item(s) && json_scan_string(s, right_text, right) && !json_scan_item(s) &&
               s->error == NULL;
    }
    size_t at;
    if (!json_scan_string(s, left_text, left)) {
        return false;
    }
    if (!str_find(*left, STR(" "), &at)) {
        return json_scan_fail(s, "a merge has no blank between its parts");
    }
    *right = (Str){left->p + at + 1, left->n - at - 1};
    left->n = at;
    return true;
}

static Err load_merges(Load *l)
{
    JsonScan s = json_scan(l->merges);
    Str left;
    Str right;
    size_t index = 0;
    if (l->merges.p == NULL) {
        return unsupported(l, "a model without merges");
    }
    (void)json_scan_array(&s);
    while (json_scan_item(&s)) {
        if (!scan_merge(&s, &l->scratch, &l->other, &left, &right)) {
            break;
        }
        if (bpe_add_merge(l->tokenizer->bpe, left, right) != ERR_OK) {
            return fault_set(l->fault, ERR_FORMAT, "fetch the file again",
                             "%s: merge %zu names a token that the vocabulary lacks", l->path,
                             index);
        }
        index++;
    }
    if (s.error != NULL) {
        return fault_set(l->fault, ERR_FORMAT, "fetch the file again",
                         "%s: merge %zu is malformed: %s", l->path, index, s.error);
    }
    return ERR_OK;
}

/* A field that must be absent, null, false, 0 or "": others change the result. */
static Err must_be_off(Load *l, Str key)
{
    char text[128];
    Str value;
    if (!json_scan_raw(&l->scan, &value)) {
        return malformed(l);
    }
    if (str_equal(value, STR("null")) || str_equal(value, STR("false")) ||
        str_equal(value, STR("\"\"")) || str_equal(value, STR("0")) ||
        str_equal(value, STR("0.0"))) {
        return ERR_OK;
    }
    (void)str_format(text, sizeof text, "the BPE setting %.*s", (int)key.n, key.p);
    return unsupported(l, text);
}

static Err load_model_field(Load *l, Str key)
{
    JsonScan *s = &l->scan;
    Str value;
    bool flag = false;
    if (str_equal(key, STR("vocab"))) {
        return load_vocab(l);
    }
    if (str_equal(key, STR("merges"))) {
        return json_scan_raw(s, &l->merges) ? ERR_OK : malformed(l);
    }
    if (str_equal(key, STR("ignore_merges"))) {
        if (!json_scan_bool(s, &flag)) {
            return malformed(l);
        }
        if (flag) {
            bpe_ignore_merges(l->tokenizer->bpe);
        }
        return ERR_OK;
    }
    if (str_equal(key, STR("type"))) {
        if (!json_scan_string(s, &l->scratch, &value)) {
            return malformed(l);
        }
        return str_equal(value, STR("BPE")) ? ERR_OK : unsupported(l, "a model other than BPE");
    }
    static const char *const off[] = {"dropout", "continuing_subword_prefix", "end_of_word_suffix",
                                      "byte_fallback"};
    for (size_t i = 0; i < sizeof off / sizeof off[0]; i++) {
        if (str_equal(key, str_from(off[i]))) {
            return must_be_off(l, str_from(off[i]));
        }
    }
    if (str_equal(key, STR("unk_token"))) {
        l->unk_token = json_scan_peek(s) != 'n';
    }
    return json_scan_skip(s) ? ERR_OK : malformed(l);
}

static Err load_model(Load *l)
{
    Str key;
    Err err = ERR_OK;
    if (l->model_seen || !json_scan_object(&l->scan)) {
        json_scan_fail(&l->scan, "the model stands twice");
        return malformed(l);
    }
    l->model_seen = true;
    while (err == ERR_OK && json_scan_key(&l->scan, &l->scratch, &key)) {
        err = load_model_field(l, key);
    }
    return err != ERR_OK ? err : l->scan.error == NULL ? ERR_OK : malformed(l);
}

/* ---- the file ---- */

static Err load_field(Load *l, Str key)
{
    if (str_equal(key, STR("added_tokens"))) {
        return load_added(l);
    }
    if (str_equal(key, STR("normalizer"))) {
        return load_types(l, see_normalizer, "normalizers", 0);
    }
    if (str_equal(key, STR("decoder"))) {
        return load_types(l, see_decoder, "decoders", 0);
    }
    if (str_equal(key, STR("pre_tokenizer")) && !l->pretoken_seen) {
        l->pretoken_seen = true;
        Err err = pretoken_parse(&l->scan, l->path, &l->tokenizer->pretoken, l->fault);
        return err;
    }
    if (str_equal(key, STR("model"))) {
        return load_model(l);
    }
    /* truncation, padding: the caller's business; post_processor: nothing is added to a text */
    return json_scan_skip(&l->scan) ? ERR_OK : malformed(l);
}

static Err finish(Load *l)
{
    Tokenizer *t = l->tokenizer;
    if (!l->vocab_seen || t->pretoken == NULL || !pretoken_byte_level(t->pretoken) ||
        !l->byte_level_decoder) {
        return unsupported(l, "a file without a vocabulary or without ByteLevel on both sides");
    }
    if (bpe_index_tokens(t->bpe) != ERR_OK) {
        return fault_set(l->fault, ERR_FORMAT, "fetch the file again",
                         "%s: a token of the vocabulary stands twice", l->path);
    }
    Err err = load_merges(l);
    if (err != ERR_OK) {
        return err;
    }
    if (l->unk_token && !bpe_all_bytes(t->bpe)) {
        return unsupported(l, "an unk_token where some byte has no token");
    }
    if (!added_tokens_index(&t->raw) || !added_tokens_index(&t->normalized)) {
        return fault_set(l->fault, ERR_FORMAT, "fetch the file again",
                         "%s: an added token stands twice", l->path);
    }
    t->vocab = bpe_max_id(t->bpe) + 1;
    if ((size_t)t->vocab < t->added_count) {
        t->vocab = (int)t->added_count;
    }
    return ERR_OK;
}

static Err load_text(Load *l, Str text)
{
    Str key;
    Err err = ERR_OK;
    l->scan = json_scan(text);
    if (!utf8_valid(text)) {
        json_scan_fail(&l->scan, "invalid UTF-8");
    }
    if (!json_scan_object(&l->scan)) {
        return malformed(l);
    }
    while (err == ERR_OK && json_scan_key(&l->scan, &l->scratch, &key)) {
        err = load_field(l, key);
    }
    if (err == ERR_OK && !json_scan_end(&l->scan)) {
        err = malformed(l);
    }
    return err == ERR_OK ? finish(l) : err;
}

Err tokenizer_load(const char *dir, Tokenizer **out, Fault *fault)
{
    Text text;
    char *path = fs_join(dir, "tokenizer.json");
    Load l = {.path = path, .fault = fault};
    *out = NULL;
    text_init(&text, FILE_BYTES_MAX);
    text_init(&l.scratch, TOKEN_BYTES_MAX);
    text_init(&l.other, TOKEN_BYTES_MAX);
    Err err = fs_read(path, &text, fault);
    if (err == ERR_OK) {
        l.tokenizer = xcalloc(1, sizeof *l.tokenizer);
        l.tokenizer->bpe = bpe_new();
        text_init(&l.tokenizer->added_bytes, FILE_BYTES_MAX);
        err = load_text(&l, text_str(&text));
    }
    if (err == ERR_OK) {
        *out = l.tokenizer;
    } else {
        tokenizer_free(l.tokenizer);
    }
    text_free(&text);
    text_free(&l.scratch);
    text_free(&l.other);
    free(path);
    return err;
}

void tokenizer_free(Tokenizer *t)
{
    if (t == NULL) {
        return;
    }
    bpe_free(t->bpe);
    pretoken_free(t->pretoken);
    added_tokens_free(&t->raw);
    added_tokens_free(&t->normalized);
    text_free(&t->added_bytes);
    free(t->added);
    free(t);
}
