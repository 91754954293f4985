/* Ports of this machine for servers that the core starts and whose port it has to know before. */
#ifndef ROLLTOP_NET_PORT_H
#define ROLLTOP_NET_PORT_H

#include "core/base/err.h"

/* A port of 127.0.0.1 that nobody uses at this moment; somebody may take it the next. */
Err port_free(int *port, Fault *fault);
/* The same, kept: as long as *fd is open (the caller closes it) no other process is given that port
 * when it asks for any, and none but one that names it can listen there, again and again. The
 * socket is bound and never listens; a server that sets SO_REUSEADDR, as libuv's do, shares it. */
Err port_reserve(int *port, int *fd, Fault *fault);

#endif
