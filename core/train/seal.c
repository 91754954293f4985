#include "core/train/seal.h"

#include "core/base/fs.h"
#include "core/base/hash.h"
#include "core/base/json.h"
#include "core/base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { SEAL_CHUNK = 1 << 20, SEAL_TEXT_MAX = 1 << 16 };

static const char seal_name[] = "state.json";
static const char start_over[] =
    "take the state saved before it; if its files were changed on purpose, remove state.json";

/* A disk that does not give the bytes back is as bad as one that gives others. */
static Err unreadable(const char *dir, const Fault *why, Fault *fault)
{
    return fault_set(fault, ERR_FORMAT, start_over, "the state %s is damaged: %s", dir,
                     why->sentence);
}

static Err digest_file(const char *path, int64_t *bytes, char digest[DIGEST_TEXT], Fault *fault)
{
    FsFile file;
    Err err = fs_open(path, &file, fault);
    if (err) {
        return err;
    }
    Hasher *hasher = hasher_new();
    char *chunk = xcalloc(SEAL_CHUNK, 1);
    for (uint64_t at = 0; at < file.n && !err;) {
        size_t n = file.n - at < SEAL_CHUNK ? (size_t)(file.n - at) : SEAL_CHUNK;
        err = fs_read_at(&file, at, chunk, n);
        hasher_add(hasher, chunk, err ? 0 : n);
        at += n;
    }
    if (err) {
        err = fault_set(fault, err, NULL, "%s cannot be read", path);
    }
    *bytes = (int64_t)file.n;
    hasher_text(hasher, digest);
    free(chunk);
    hasher_free(hasher);
    fs_close(&file);
    return err;
}

static Err put_entry(JsonOut *out, const char *dir, const char *name, Fault *fault)
{
    int64_t bytes = 0;
    char digest[DIGEST_TEXT];
    char *path = fs_join(dir, name);
    Err err = digest_file(path, &bytes, digest, fault);
    free(path);
    json_object_begin(out);
    json_member_string(out, "name", name);
    json_member_i64(out, "bytes", bytes);
    json_member_string(out, "xxh3", digest);
    json_object_end(out);
    return err;
}

Err seal_write(const char *dir, Fault *fault)
{
    DIR *folder = opendir(dir);
    if (!folder) {
        return fault_set_sys(fault, ERR_IO, errno, NULL, "cannot look into %s", dir);
    }
    Text text;
    JsonOut out;
    Err err = ERR_OK;
    text_init(&text, SEAL_TEXT_MAX);
    json_begin(&out, &text);
    json_object_begin(&out);
    json_key(&out, "files");
    json_array_begin(&out);
    for (struct dirent *entry = readdir(folder); entry && !err; entry = readdir(folder)) {
        if (entry->d_name[0] != '.' && strcmp(entry->d_name, seal_name) != 0) {
            err = put_entry(&out, dir, entry->d_name, fault);
        }
    }
    closedir(folder);
    json_array_end(&out);
    json_object_end(&out);
    if (!err) {
        char *path = fs_join(dir, seal_name);
        err = fs_write_atomic(path, text.p, text.n, fault);
        free(path);
    }
    text_free(&text);
    return err;
}

static Err check_entry(const char *dir, const cJSON *entry, Fault *fault)
{
    const char *name = json_string(entry, "name", "");
    const char *digest = json_string(entry, "xxh3", "");
    int64_t bytes = json_i64(entry, "bytes", -1);
    int64_t now_bytes = 0;
    char now[DIGEST_TEXT];
    if (!name[0] || strchr(name, '/') || bytes < 0) {
        return fault_set(fault, ERR_FORMAT, start_over, "%s/%s is damaged", dir, seal_name);
    }
    char *path = fs_join(dir, name);
    Fault why = {0};
    Err err = ERR_OK;
    if (!fs_exists(path)) {
        err = fault_set(fault, ERR_FORMAT, start_over, "the state %s is damaged: %s is missing",
                        dir, name);
    } else if (digest_file(path, &now_bytes, now, &why) != ERR_OK) {
        err = unreadable(dir, &why, fault);
    }
    free(path);
    if (!err && now_bytes != bytes) {
        err = fault_set(fault, ERR_FORMAT, start_over,
                        "the state %s is damaged: %s has %lld bytes, %lld were saved", dir, name,
                        (long long)now_bytes, (long long)bytes);
    } else if (!err && strcmp(now, digest) != 0) {
        err = fault_set(fault, ERR_FORMAT, start_over,
                        "the state %s is damaged: %s has digest %s, %.40s was saved", dir, name,
                        now, digest);
    }
    return err;
}

Err seal_check(const char *dir, Fault *fault)
{
    char *path = fs_join(dir, seal_name);
    Text text;
    cJSON *tree = NULL;
    Fault why = {0};
    Err err = ERR_OK;
    text_init(&text, SEAL_TEXT_MAX);
    if (fs_exists(path)) {
        err = fs_read(path, &text, &why) != ERR_OK ? unreadable(dir, &why, fault) : ERR_OK;
        if (!err && json_parse(text_str(&text), SEAL_TEXT_MAX, path, &tree, NULL) != ERR_OK) {
            err = fault_set(fault, ERR_FORMAT, start_over, "%s is damaged", path);
        }
    }
    const cJSON *files = json_get(tree, "files");
    if (!err && tree && (!cJSON_IsArray(files) || cJSON_GetArraySize(files) == 0)) {
        err = fault_set(fault, ERR_FORMAT, start_over, "%s is damaged", path);
    }
    const cJSON *entry = NULL;
    cJSON_ArrayForEach(entry, files) {
        err = err ? err : check_entry(dir, entry, fault);
    }
    cJSON_Delete(tree);
    text_free(&text);
    free(path);
    return err;
}
