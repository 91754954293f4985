/* Writing a safetensors file: streamed from the tensors' own memory, so that a publication costs
 * no second copy of the model. */
#include "core/model/safetensors.h"

#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HEADER_MAX = 100000000 };

static Err write_part(int fd, const void *bytes, size_t n, const char *path, Fault *fault)
{
    return fs_write_all(fd, bytes, n)
               ? ERR_OK
               : fault_set_sys(fault, ERR_IO, errno, "free some space or choose another place",
                               "cannot write %s", path);
}

/* Bytes of the data; false when the shape is negative or overflows. */
static bool tensor_bytes(const StWriteTensor *tensor, size_t *out)
{
    size_t n = st_dtype_size(tensor->dtype);
    if (n == 0 || tensor->rank < 0 || tensor->rank > ST_RANK_MAX) {
        return false;
    }
    for (int i = 0; i < tensor->rank; i++) {
        if (tensor->shape[i] < 0 || !size_mul(n, (size_t)tensor->shape[i], &n)) {
            return false;
        }
    }
    *out = n;
    return true;
}

static Err build_header(const char *path, const StWriteTensor *tensors, size_t count,
                        const char *const *metadata, Text *text, Fault *fault)
{
    static const char blank[8] = "\0\0\0\0\0\0\0"; /* the length, set at the end */
    JsonOut out;
    size_t at = 0;
    (void)text_add(text, blank, sizeof blank);
    json_begin(&out, text);
    json_object_begin(&out);
    if (metadata != NULL) {
        json_key(&out, "__metadata__");
        json_object_begin(&out);
        for (size_t i = 0; metadata[i] != NULL && metadata[i + 1] != NULL; i += 2) {
            json_member_string(&out, metadata[i], metadata[i + 1]);
        }
        json_object_end(&out);
    }
    for (size_t i = 0; i < count; i++) {
        const StWriteTensor *t = &tensors[i];
        size_t bytes;
        size_t end;
        if (!tensor_bytes(t, &bytes) || !size_add(at, bytes, &end)) {
            return fault_set(fault, ERR_ARG, NULL, "%s: tensor %s has a shape that does not fit",
                             path, t->name);
        }
        json_key(&out, t->name);
        json_object_begin(&out);
        json_member_string(&out, "dtype", st_dtype_name(t->dtype));
        json_key(&out, "shape");
        json_array_begin(&out);
        for (int d = 0; d < t->rank; d++) {
            json_put_i64(&out, t->shape[d]);
        }
        json_array_end(&out);
        json_key(&out, "data_offsets");
        json_array_begin(&out);
        json_put_u64(&out, at);
        json_put_u64(&out, end);
        json_array_end(&out);
        json_object_end(&out);
        at = end;
    }
    json_object_end(&out);
    while (!text->cut && text->n % 8 != 0) {
        (void)text_add_char(text, ' ');
    }
    if (text->cut) {
        return fault_set(fault, ERR_LIMIT, NULL, "%s: the header would pass 100 MB", path);
    }
    for (int i = 0; i < 8; i++) {
        text->p[i] = (char)((uint64_t)(text->n - 8) >> (8 * i) & 0xFF);
    }
    return ERR_OK;
}

static Err sync_directory(const char *path, Fault *fault)
{
    const char *slash = strrchr(path, '/');
    char *dir = slash == NULL  ? xstrdup(".")
                : slash == path ? xstrdup("/")
                                : xstrndup(path, (size_t)(slash - path));
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    Err err = ERR_OK;
    if (fd < 0 || (fsync(fd) != 0 && errno != EINVAL)) {
        err = fault_set_sys(fault, ERR_IO, errno, NULL, "cannot sync the directory %s", dir);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    free(dir);
    return err;
}

Err st_write(const char *path, const StWriteTensor *tensors, size_t count,
             const char *const *metadata, Fault *fault)
{
    Text header;
    text_init(&header, HEADER_MAX);
    char *temp = xasprintf("%s.%ld.tmp", path, (long)getpid());
    int fd = -1;
    Err err = build_header(path, tensors, count, metadata, &header, fault);
    if (err != ERR_OK) {
        goto done;
    }
    fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0) {
        err = fault_set_sys(fault, ERR_IO, errno, "check that the directory exists and is yours",
                            "cannot create %s", temp);
        goto done;
    }
    err = write_part(fd, header.p, header.n, temp, fault);
    for (size_t i = 0; i < count && err == ERR_OK; i++) {
        size_t bytes = 0;
        (void)tensor_bytes(&tensors[i], &bytes);
        err = write_part(fd, tensors[i].data, bytes, temp, fault);
    }
    if (err == ERR_OK && fsync(fd) != 0) {
        err = fault_set_sys(fault, ERR_IO, errno, NULL, "cannot sync %s", temp);
    }
    if (close(fd) != 0 && err == ERR_OK) {
        err = fault_set_sys(fault, ERR_IO, errno, NULL, "cannot close %s", temp);
    }
    if (err == ERR_OK && rename(temp, path) != 0) {
        err = fault_set_sys(fault, ERR_IO, errno, NULL, "cannot rename %s to %s", temp, path);
    }
    if (err != ERR_OK) {
        (void)unlink(temp);
    } else {
        err = sync_directory(path, fault);
    }
done:
    free(temp);
    text_free(&header);
    return err;
}
