/* Files and the user's directories. The only module below app that touches paths by name. */
#ifndef ROLLTOP_BASE_FS_H
#define ROLLTOP_BASE_FS_H

#include "core/base/str.h"

/* Whole file into *out (text_init'ed by the caller; its max is the bound). */
Err fs_read(const char *path, Text *out, Fault *fault);
/* Temp file in the same directory, fsync, rename, fsync of the directory. */
Err fs_write_atomic(const char *path, const void *bytes, size_t n, Fault *fault);
/* All n bytes, in as many pieces as it takes; false: errno says why. */
bool fs_write_all(int fd, const void *bytes, size_t n);
Err fs_mkdirs(const char *path, unsigned mode, Fault *fault); /* like mkdir -p */
Err fs_remove_tree(const char *path, Fault *fault); /* missing is fine; follows no symlink */
bool fs_exists(const char *path);
bool fs_is_dir(const char *path);
/* Would exec find it: a path with a slash, or a name in one of PATH's folders? */
bool fs_is_program(const char *name);
Err fs_free_bytes(const char *path, uint64_t *out, Fault *fault);
/* dir + "/" + name, malloc'ed. */
char *fs_join(const char *dir, const char *name);
/* $XDG_STATE_HOME/rolltop or ~/.local/state/rolltop; made when missing (0700). Malloc'ed. */
Err fs_state_dir(char **out, Fault *fault);
/* $XDG_RUNTIME_DIR/rolltop or /tmp/rolltop-UID; made when missing, must be 0700 and ours. */
Err fs_runtime_dir(char **out, Fault *fault);

/* A regular file, read at places. Not a mapping: when somebody cuts the file short meanwhile, a
 * read says so (ERR_IO), where a mapping would end the program with SIGBUS. */
typedef struct FsFile {
    int fd; /* -1: closed */
    uint64_t n; /* bytes when it was opened */
} FsFile;
Err fs_open(const char *path, FsFile *out, Fault *fault);
void fs_close(FsFile *file);
/* Exactly n bytes from `at`; any thread. ERR_IO: unreadable, or the file ends before. */
Err fs_read_at(const FsFile *file, uint64_t at, void *out, size_t n);

#endif
