#include "core/net/port.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

Err port_reserve(int *port, int *fd, Fault *fault)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t n = sizeof address;
    int yes = 1;
    *fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool good = *fd >= 0 && setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
                bind(*fd, (struct sockaddr *)&address, n) == 0 &&
                getsockname(*fd, (struct sockaddr *)&address, &n) == 0;
    if (!good) {
        int why = errno;
        if (*fd >= 0) {
            close(*fd);
            *fd = -1;
        }
        return fault_set_sys(fault, ERR_IO, why, NULL, "no free port on 127.0.0.1");
    }
    *port = ntohs(address.sin_port);
    return ERR_OK;
}

Err port_free(int *port, Fault *fault)
{
    int fd = -1;
    Err err = port_reserve(port, &fd, fault);
    if (fd >= 0) {
        close(fd);
    }
    return err;
}
