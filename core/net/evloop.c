#include "core/net/evloop.h"

enum { CLOSE_TURNS = 10 };

Err evloop_open(uv_loop_t *loop, uv_signal_t *sigint, uv_signal_t *sigterm, Fault *fault)
{
    int rc = uv_loop_init(loop);
    if (rc == 0) {
        rc = uv_signal_init(loop, sigint);
        rc = rc != 0 ? rc : uv_signal_init(loop, sigterm);
        if (rc != 0) {
            (void)evloop_close(loop);
        }
    }
    return rc == 0 ? ERR_OK
                   : fault_set(fault, ERR_IO, "raise the limit of open files (ulimit -n)",
                               "no event loop can be made: %s", uv_strerror(rc));
}

static void close_handle(uv_handle_t *handle, void *arg)
{
    (void)arg;
    if (!uv_is_closing(handle)) {
        uv_close(handle, NULL);
    }
}

bool evloop_close(uv_loop_t *loop)
{
    uv_walk(loop, close_handle, NULL);
    for (int i = 0; i < CLOSE_TURNS && uv_run(loop, UV_RUN_NOWAIT) != 0; i++) {
    }
    return uv_loop_close(loop) == 0;
}
