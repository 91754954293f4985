/* `rolltop engine`: an inference server with SGLang's native routes (sglang-api §14.4).
 *
 * One thread runs HTTP (libuv), one runs the model (scheduler + Infer); requests and token
 * events cross in bounded queues. --synthetic: no model; token and log-prob are a function of
 * (policy digest, prompt, position), see synthetic.h. --faults opens POST /_fault. */
#ifndef ROLLTOP_SERVE_ENGINE_H
#define ROLLTOP_SERVE_ENGINE_H

/* Subcommand entry; returns the exit status. Prints one line "engine NAME listening on
 * http://HOST:PORT" to stdout when it accepts connections. */
int engine_main(int argc, char **argv);

#endif
