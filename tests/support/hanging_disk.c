/* A disk that hangs: fdatasync, or pwrite, waits while the file named by HANGING_DISK says which.
 * Loaded by LD_PRELOAD, see hanging_disk.py. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static void wait_for(const char *call)
{
    const char *path = getenv("HANGING_DISK");
    for (;;) {
        char said[16] = "";
        int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
        if (fd < 0)
            return;
        ssize_t count = read(fd, said, sizeof said - 1);
        close(fd);
        if (count < 0 || strcmp(said, call))
            return;
        usleep(20000);
    }
}

int fdatasync(int fd)
{
    int (*next)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    wait_for("fdatasync");
    return next(fd);
}

ssize_t pwrite(int fd, const void *data, size_t count, off_t offset)
{
    ssize_t (*next)(int, const void *, size_t, off_t) =
        (ssize_t (*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, "pwrite");
    wait_for("pwrite");
    return next(fd, data, count, offset);
}

ssize_t pwrite64(int fd, const void *data, size_t count, off64_t offset)
{
    ssize_t (*next)(int, const void *, size_t, off64_t) =
        (ssize_t (*)(int, const void *, size_t, off64_t))dlsym(RTLD_NEXT, "pwrite64");
    wait_for("pwrite");
    return next(fd, data, count, offset);
}
