/* `rolltop engine`: an inference server with SGLang's native routes (sglang-api §14.4).
 *
 * One thread runs HTTP (libuv), one runs the model (scheduler + Infer); requests and token
 * events cross in bounded queues. --synthetic: no model; token and log-prob are a function of
 * (policy digest, prompt, position), see synthetic.h. --faults opens POST /_fault (faults.h).
 *
 * Where it differs from SGLang, on purpose: what upstream dies of is refused (ids outside the
 * vocabulary, a flush or an update while requests run, a bad checkpoint: old weights and version
 * stay); rids match exactly, also of requests held at the pause gate; an abort is answered at once
 * in any pause; new weights never meet prefixes cached under old ones; /health speaks for the HTTP
 * thread and /health_generate for the model, quickly while paused; keys are never shown.
 * Added: `pid`, `start_time_us`, `paused`, `pause_mode`, `updating` in /server_info,
 * `gen_tokens_total`, `paused` and include=inflight in /v1/loads, `weight_versions` spans in the
 * last event of a sample; per_engine_checksum is weights_digest. */
#ifndef ROLLTOP_SERVE_ENGINE_H
#define ROLLTOP_SERVE_ENGINE_H

#include "core/base/flags.h"

/* Subcommand entry; returns the exit status. Prints one line "engine NAME listening on
 * http://HOST:PORT" to stdout when it accepts connections. */
int engine_main(int argc, char **argv);
void engine_flags(FlagVisit *visit, void *to);

#endif
