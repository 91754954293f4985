/* The operator's words on who belongs to the fleet outlive the core: they stand in the log as
 * commands, and a resumed run hears them again, in their order, before it starts anything. Flags
 * and sources are the fleet's base; a word stands above them until the opposite word.
 *
 * What was asked is durable before it is done, the answer may be lost with the core: a command
 * without an answer counts, one that was refused does not. */
#include "core/loop/driver_private.h"

#include "core/base/json.h"
#include "store/query.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RECALL_LINE_MAX = 1 << 20 };

typedef struct Word { /* the newest about one slot */
    int8_t word; /* +1 in, -1 out, 0 none */
    char who[128];
} Word;

/* The slot of a target as `rolltop ctl` takes it: "eng-02", "2" or an address; -1: none has it. */
static int slot_of(const Driver *d, const char *target)
{
    char address[DISCOVER_ADDRESS];
    int64_t slot = -1;
    if (str_to_i64(str_from(target), &slot)) {
        return slot >= 0 && slot < fleet_count(d->fleet) ? (int)slot : -1;
    }
    const bool plain = discover_address(target, address, NULL) == ERR_OK;
    for (int i = fleet_count(d->fleet) - 1; i >= 0; i--) { /* the newest that had an address */
        FleetEngine e = fleet_engine(d->fleet, i);
        if (strcmp(e.name, target) == 0 || (plain && strcmp(e.address, address) == 0)) {
            return i;
        }
    }
    return -1;
}

static void hear(Driver *d, const cJSON *row, Word *words)
{
    const char *what = json_string(row, "what", "");
    const char *target = json_string(row, "target", "");
    const char *who = json_string(row, "who", "");
    const bool in = strcmp(what, "engine-add") == 0;
    const int slot = slot_of(d, target);
    char address[DISCOVER_ADDRESS], reason[128];
    if (slot >= 0) {
        words[slot].word = in ? 1 : -1;
        (void)str_format(words[slot].who, sizeof words[slot].who, "%s", who);
    } else if (in && discover_address(target, address, NULL) == ERR_OK) {
        (void)str_format(reason, sizeof reason, "added by %s before this start", who);
        driver_members_word(d, address, true, reason); /* the log has no row of it yet */
    }
}

/* Members, and local engines that are going to be started. */
static int members(const Driver *d)
{
    int count = discover_count(d->members.discover);
    for (int i = 0; i < (int)d->config->local_engines; i++) {
        count += !d->seats[i].kept_out;
    }
    return count;
}

static void obey(Driver *d, int slot, const Word *word)
{
    FleetEngine e = fleet_engine(d->fleet, slot);
    const bool local = slot < (int)d->config->local_engines;
    char reason[160];
    (void)str_format(reason, sizeof reason, "%s by %.100s before this start",
                     word->word > 0 ? "added" : "taken out", word->who);
    if (word->word < 0 && members(d) <= 1) {
        driver_event(d, SEVERITY_WARN, e.name, slot + 1, "was %s, and is the only engine of this "
                     "start: it stays", reason);
    } else if (local && word->word < 0) {
        d->seats[slot].kept_out = true;
        driver_event(d, SEVERITY_INFO, e.name, slot + 1, "stays out of the fleet: %s; `rolltop ctl "
                     "engine add %s` brings it back", reason, e.name);
    } else if (!local) {
        driver_members_word(d, e.address, word->word > 0, reason);
    }
}

void driver_recall(Driver *d)
{
    static const char sql[] =
        "select c.what, c.target, c.who from command c where c.state = 'asked' and c.what in "
        "('engine-add', 'engine-remove', 'engine-drain') and not exists (select 1 from command a "
        "where a.command_id = c.command_id and a.state = 'refused') order by c.command_id";
    char *text = NULL;
    size_t n = 0;
    Fault fault = {0};
    FILE *memory = open_memstream(&text, &n);
    Word *words = xcalloc(FLEET_ENGINES_MAX, sizeof *words);
    Err err = memory ? query_sql(d->config->log_path, sql, true, memory, &fault)
                     : fault_set(&fault, ERR_MEMORY, NULL, "no memory");
    if (memory) {
        fclose(memory);
    }
    if (err != ERR_OK) {
        driver_event(d, SEVERITY_WARN, "fleet", 0, "engines that were added or removed by hand "
                     "are not known: %s", fault.sentence);
    }
    Str rest = {text, err == ERR_OK ? n : 0};
    Str line = {0};
    while (str_split(&rest, '\n', &line)) {
        cJSON *row = NULL;
        if (line.n > 1 && json_parse(line, RECALL_LINE_MAX, "command", &row, NULL) == ERR_OK) {
            hear(d, row, words);
        }
        cJSON_Delete(row);
    }
    for (int8_t said = 1; said >= -1; said -= 2) { /* those who come first: one must be there */
        for (int i = 0; i < fleet_count(d->fleet); i++) {
            if (words[i].word == said) {
                obey(d, i, &words[i]);
            }
        }
    }
    free(words);
    free(text);
}
