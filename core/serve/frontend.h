/* `rolltop frontend`: answers as a Dynamo frontend does (dynamo-api §17) over engines that speak
 * SGLang's native routes. Adds "x-rolltop-engine: HOST:PORT" to generation replies, so that the
 * core knows who holds a sample. Engines come from --engine HOST:PORT (repeatable) and, while it
 * runs, POST /_workers {"add"|"remove"|"drain": "HOST:PORT"} on loopback. */
#ifndef ROLLTOP_SERVE_FRONTEND_H
#define ROLLTOP_SERVE_FRONTEND_H

#include "core/base/flags.h"

int frontend_main(int argc, char **argv);
void frontend_flags(FlagVisit *visit, void *to);

#endif
