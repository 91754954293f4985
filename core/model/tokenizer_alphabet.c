/* A tokenizer of single characters, for small models made on the spot. */
#include "core/model/tokenizer_impl.h"

#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { FILE_MAX = 1 << 20 };

static Err check(const char *const *special, size_t special_count, Str alphabet, Fault *fault)
{
    bool seen[128] = {false};
    for (size_t i = 0; i < special_count; i++) {
        for (size_t k = 0; k < i; k++) {
            if (strcmp(special[i], special[k]) == 0) {
                return fault_set(fault, ERR_ARG, "list each special token once",
                                 "the special token %s stands twice", special[i]);
            }
        }
        if (special[i][0] == '\0') {
            return fault_set(fault, ERR_ARG, NULL, "special token %zu is empty", i);
        }
    }
    for (size_t i = 0; i < alphabet.n; i++) {
        unsigned char c = (unsigned char)alphabet.p[i];
        if (c >= 128 || seen[c]) {
            return fault_set(fault, ERR_ARG, "give ASCII characters, each once",
                             "place %zu of the alphabet is %s", i,
                             c >= 128 ? "not ASCII" : "a character that stands twice");
        }
        seen[c] = true;
    }
    return ERR_OK;
}

static void write_byte_level(JsonOut *out, const char *key, bool use_regex)
{
    json_key(out, key);
    json_object_begin(out);
    json_member_string(out, "type", "ByteLevel");
    json_member_bool(out, "add_prefix_space", false);
    json_member_bool(out, "trim_offsets", false);
    json_member_bool(out, "use_regex", use_regex);
    json_object_end(out);
}

static void write_null(JsonOut *out, const char *key)
{
    json_key(out, key);
    json_put_null(out);
}

static void write_added(JsonOut *out, const char *const *special, size_t count)
{
    json_key(out, "added_tokens");
    json_array_begin(out);
    for (size_t i = 0; i < count; i++) {
        json_object_begin(out);
        json_member_i64(out, "id", (int64_t)i);
        json_member_string(out, "content", special[i]);
        json_member_bool(out, "single_word", false);
        json_member_bool(out, "lstrip", false);
        json_member_bool(out, "rstrip", false);
        json_member_bool(out, "normalized", false);
        json_member_bool(out, "special", true);
        json_object_end(out);
    }
    json_array_end(out);
}

static void write_model(JsonOut *out, size_t special_count, Str alphabet)
{
    json_key(out, "model");
    json_object_begin(out);
    json_member_string(out, "type", "BPE");
    write_null(out, "dropout");
    write_null(out, "unk_token");
    write_null(out, "continuing_subword_prefix");
    write_null(out, "end_of_word_suffix");
    json_member_bool(out, "fuse_unk", false);
    json_member_bool(out, "byte_fallback", false);
    json_member_bool(out, "ignore_merges", false);
    json_key(out, "vocab");
    json_object_begin(out);
    for (size_t i = 0; i < alphabet.n; i++) {
        char text[5] = {0};
        size_t n = bpe_byte_char((unsigned char)alphabet.p[i], text);
        text[n] = '\0';
        json_member_i64(out, text, (int64_t)(special_count + i));
    }
    json_object_end(out);
    json_key(out, "merges");
    json_array_begin(out);
    json_array_end(out);
    json_object_end(out);
}

Err tokenizer_write_alphabet(const char *dir, const char *const *special, size_t special_count,
                             Str alphabet, Fault *fault)
{
    Text text;
    JsonOut out;
    Err err = check(special, special_count, alphabet, fault);
    if (err == ERR_OK) {
        err = fs_mkdirs(dir, 0755, fault);
    }
    if (err != ERR_OK) {
        return err;
    }
    text_init(&text, FILE_MAX);
    json_begin(&out, &text);
    json_object_begin(&out);
    json_member_string(&out, "version", "1.0");
    write_null(&out, "truncation");
    write_null(&out, "padding");
    write_added(&out, special, special_count);
    write_null(&out, "normalizer");
    write_byte_level(&out, "pre_tokenizer", false);
    write_null(&out, "post_processor");
    write_byte_level(&out, "decoder", true);
    write_model(&out, special_count, alphabet);
    json_object_end(&out);
    char *path = fs_join(dir, "tokenizer.json");
    err = text.cut ? fault_set(fault, ERR_LIMIT, "use fewer or shorter special tokens",
                               "the special tokens do not fit into %s", path)
                   : fs_write_atomic(path, text.p, text.n, fault);
    free(path);
    text_free(&text);
    return err;
}
