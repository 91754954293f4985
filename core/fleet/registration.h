/* Which engines the frontend has on its list. Pure.
 *
 * An engine answers for itself 5 to 20 s before its sidecar registers it. A weight update in that
 * gap changes the name under which it registers, and from then on the frontend refuses every
 * request for every engine ("multiple SGLang models are registered") until that engine is started
 * again. So the first update of a process waits until the frontend lists it.
 *
 * The list gives ids and the sidecars' own ports, not the engines' (dynamo-api 2.2); a killed
 * process stays on it for up to 13 s. Hence the rule: an id belongs to one process for ever, ids
 * are given to waiting engines only when there is one for each of them, and one that was on the
 * list when an engine's process was lost is not for its next process. Which of several is whose is
 * a guess when they are handed out together; it is put right when one lapses while its supposed
 * engine lives and another's process was lost.
 *
 * Frontends that route to the engine's own port (rolltop's) have no sidecar in between and keep an
 * entry over a restart. Two pieces of evidence tell: the entry names the very address of the
 * engine, or it names the engine's port under another name of its host and has outlived the process
 * before by REGISTRATION_KEPT_US: a sidecar listens elsewhere, and no dead one stays so long.
 *
 * Expected: up to 1,024 engines, two looks a second. */
#ifndef ROLLTOP_FLEET_REGISTRATION_H
#define ROLLTOP_FLEET_REGISTRATION_H

#include "core/base/str.h"

typedef struct Registration Registration;

enum { REGISTRATION_IDS_MAX = 4096, REGISTRATION_KEPT_US = 30000000 };

Registration *registration_new(void);
void registration_free(Registration *registration);

/* Body of the frontend's /health, at now_us of a clock that does not go back. False when it holds
 * no list of instances: another kind of router, or an older frontend; then every engine counts as
 * listed. An unreadable body and one over the bound change nothing. */
bool registration_health(Registration *registration, Str body, int64_t now_us);
/* Its process does not answer any more: whoever comes next is listed after this. It may also come
 * back itself: then nothing has changed. */
void registration_lost(Registration *registration, int engine);
void registration_back(Registration *registration, int engine);
/* Another process answers for this engine (slots count from 0) at "HOST:PORT" or a URL. */
void registration_came(Registration *registration, int engine, const char *address,
                       int64_t now_us);
void registration_gone(Registration *registration, int engine); /* taken out of the fleet */

bool registration_listed(const Registration *registration, int engine);
/* Workers on the newest list; what tests judge the reading of a list by. */
int registration_count(const Registration *registration);

#endif
