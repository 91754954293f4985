#include "core/base/fs.h"

#include "core/base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

char *fs_join(const char *dir, const char *name)
{
    size_t n = strlen(dir);
    return xasprintf("%s%s%s", dir, n > 0 && dir[n - 1] == '/' ? "" : "/", name);
}

bool fs_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

bool fs_is_dir(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static bool is_executable(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

bool fs_is_program(const char *name)
{
    const char *path = getenv("PATH");
    if (strchr(name, '/')) {
        return is_executable(name);
    }
    Str rest = str_from(path ? path : "/usr/bin:/bin");
    Str folder;
    bool found = false;
    while (!found && name[0] && str_split(&rest, ':', &folder)) {
        char *file = xasprintf("%.*s/%s", folder.n > 0 ? (int)folder.n : 1,
                               folder.n > 0 ? folder.p : ".", name);
        found = is_executable(file);
        free(file);
    }
    return found;
}

static Err open_regular(const char *path, int *fd, struct stat *st, Fault *fault)
{
    /* O_NONBLOCK: a FIFO under the name must not hang us before fstat tells what it is. */
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0) {
        return fault_set_sys(fault, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO, errno, NULL,
                             "%s cannot be opened", path);
    }
    if (fstat(*fd, st) != 0 || !S_ISREG(st->st_mode)) {
        close(*fd);
        *fd = -1;
        return fault_set(fault, ERR_IO, NULL, "%s is not a regular file", path);
    }
    return ERR_OK;
}

Err fs_read(const char *path, Text *out, Fault *fault)
{
    int fd = -1;
    struct stat st;
    Err err = open_regular(path, &fd, &st, fault);
    if (err != ERR_OK) {
        return err;
    }
    char block[65536];
    for (;;) {
        ssize_t n = read(fd, block, sizeof block);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            err = fault_set_sys(fault, ERR_IO, errno, NULL, "%s cannot be read", path);
            break;
        }
        if (n == 0) {
            break;
        }
        if (!text_add(out, block, (size_t)n)) {
            err = fault_set(fault, ERR_LIMIT, NULL, "%s is larger than the %zu bytes allowed here",
                            path, out->max);
            break;
        }
    }
    close(fd);
    return err;
}

bool fs_write_all(int fd, const void *bytes, size_t n)
{
    const char *p = bytes;
    while (n > 0) {
        ssize_t done = write(fd, p, n);
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done <= 0) {
            errno = done < 0 ? errno : EIO; /* a device that takes nothing and says nothing */
            return false;
        }
        p += done;
        n -= (size_t)done;
    }
    return true;
}

static void sync_parent(const char *path)
{
    char *dir = xstrdup(path);
    char *slash = strrchr(dir, '/');
    if (slash) {
        slash[slash == dir ? 1 : 0] = '\0';
    }
    int fd = open(slash ? dir : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
    free(dir);
}

Err fs_write_atomic(const char *path, const void *bytes, size_t n, Fault *fault)
{
    char *temp = xasprintf("%s.%d.tmp", path, (int)getpid());
    Err err = ERR_OK;
    int fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) {
        err = fault_set_sys(fault, ERR_IO, errno, "choose a writable place", "%s cannot be written",
                            temp);
        goto done;
    }
    if (!fs_write_all(fd, bytes, n) || fsync(fd) != 0) {
        err = fault_set_sys(fault, ERR_IO, errno, errno == ENOSPC ? "free some space" : NULL,
                            "%s cannot be written", temp);
        close(fd);
        unlink(temp);
        goto done;
    }
    close(fd);
    if (rename(temp, path) != 0) {
        err = fault_set_sys(fault, ERR_IO, errno, NULL, "%s cannot be put in place", path);
        unlink(temp);
        goto done;
    }
    sync_parent(path);
done:
    free(temp);
    return err;
}

Err fs_mkdirs(const char *path, unsigned mode, Fault *fault)
{
    char *copy = xstrdup(path);
    Err err = ERR_OK;
    for (char *p = copy + 1;; p++) {
        if (*p != '/' && *p != '\0') {
            continue;
        }
        bool last = *p == '\0';
        *p = '\0';
        if (mkdir(copy, mode) != 0 && errno != EEXIST) {
            err = fault_set_sys(fault, ERR_IO, errno, "choose a writable place",
                                "directory %s cannot be made", copy);
            break;
        }
        if (last) {
            break;
        }
        *p = '/';
    }
    if (err == ERR_OK && !fs_is_dir(path)) {
        err = fault_set(fault, ERR_IO, NULL, "%s exists and is not a directory", path);
    }
    free(copy);
    return err;
}

static Err remove_at(int dir_fd, const char *name, int depth)
{
    if (unlinkat(dir_fd, name, 0) == 0 || errno == ENOENT) {
        return ERR_OK;
    }
    if ((errno != EISDIR && errno != EPERM) || depth > 64) {
        return ERR_IO;
    }
    int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!dir) {
        if (fd >= 0) {
            close(fd);
        }
        return ERR_IO;
    }
    Err err = ERR_OK;
    for (struct dirent *entry = readdir(dir); entry && err == ERR_OK; entry = readdir(dir)) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            err = remove_at(dirfd(dir), entry->d_name, depth + 1);
        }
    }
    closedir(dir);
    if (err == ERR_OK && unlinkat(dir_fd, name, AT_REMOVEDIR) != 0 && errno != ENOENT) {
        err = ERR_IO;
    }
    return err;
}

Err fs_remove_tree(const char *path, Fault *fault)
{
    if (remove_at(AT_FDCWD, path, 0) != ERR_OK) {
        return fault_set_sys(fault, ERR_IO, errno, NULL, "%s cannot be removed", path);
    }
    return ERR_OK;
}

Err fs_free_bytes(const char *path, uint64_t *out, Fault *fault)
{
    struct statvfs st;
    if (statvfs(path, &st) != 0) {
        return fault_set_sys(fault, ERR_IO, errno, NULL, "free space of %s cannot be read", path);
    }
    *out = (uint64_t)st.f_bavail * st.f_frsize;
    return ERR_OK;
}

static Err user_dir(char *path, char **out, Fault *fault)
{
    Err err = fs_mkdirs(path, 0700, fault);
    if (err != ERR_OK) {
        free(path);
        return err;
    }
    *out = path;
    return ERR_OK;
}

Err fs_state_dir(char **out, Fault *fault)
{
    *out = NULL;
    const char *xdg = getenv("XDG_STATE_HOME");
    if (xdg && xdg[0] == '/') {
        return user_dir(fs_join(xdg, "rolltop"), out, fault);
    }
    const char *home = getenv("HOME");
    if (!home || home[0] != '/') {
        return fault_set(fault, ERR_ARG, "set HOME or XDG_STATE_HOME, or give --log FILE",
                         "no place for logs is known");
    }
    return user_dir(fs_join(home, ".local/state/rolltop"), out, fault);
}

Err fs_runtime_dir(char **out, Fault *fault)
{
    *out = NULL;
    const char *xdg = getenv("XDG_RUNTIME_DIR");
    char *path = xdg && xdg[0] == '/' && fs_is_dir(xdg)
                     ? fs_join(xdg, "rolltop")
                     : xasprintf("/tmp/rolltop-%u", (unsigned)getuid());
    char *made = NULL;
    Err err = user_dir(path, &made, fault);
    if (err != ERR_OK) {
        return err;
    }
    /* Sockets in it are obeyed: a directory that others can write is refused. */
    struct stat st;
    if (lstat(made, &st) != 0 || !S_ISDIR(st.st_mode) || st.st_uid != getuid() ||
        (st.st_mode & 0077) != 0) {
        err = fault_set(fault, ERR_STATE, "remove it, or chmod 700 if it is yours",
                        "%s is not a private directory of this user", made);
        free(made);
        return err;
    }
    *out = made;
    return ERR_OK;
}

Err fs_open(const char *path, FsFile *out, Fault *fault)
{
    struct stat st;
    *out = (FsFile){.fd = -1};
    Err err = open_regular(path, &out->fd, &st, fault);
    if (err == ERR_OK) {
        out->n = (uint64_t)st.st_size;
    }
    return err;
}

void fs_close(FsFile *file)
{
    if (file->fd >= 0) {
        close(file->fd);
    }
    *file = (FsFile){.fd = -1};
}

Err fs_read_at(const FsFile *file, uint64_t at, void *out, size_t n)
{
    char *to = out;
    while (n > 0) {
        ssize_t got = pread(file->fd, to, n, (off_t)at);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return ERR_IO;
        }
        to += got;
        at += (uint64_t)got;
        n -= (size_t)got;
    }
    return ERR_OK;
}
