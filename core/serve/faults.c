#include "core/serve/faults.h"

#include <string.h>

typedef struct FaultRow {
    const char *name, *argument, *help;
} FaultRow;

static const FaultRow ROWS[FAULT_KIND_COUNT] = {
#define FAULT_ROW(id, name, argument, help) {name, argument, help},
    FAULT_KINDS(FAULT_ROW)
#undef FAULT_ROW
};

static Err check_argument(const cJSON *body, const FaultRow *row, FaultItem *item, Fault *fault)
{
    const cJSON *argument = json_get(body, row->argument);
    if (cJSON_IsString(argument)) {
        (void)str_format(item->text, sizeof item->text, "%s", argument->valuestring);
    } else if (cJSON_IsNumber(argument)) {
        item->number = argument->valuedouble;
        (void)str_format(item->text, sizeof item->text, "%.0f", item->number);
    }
    bool share = strcmp(row->argument, "p") == 0;
    if (share && !argument) {
        item->number = 1.0;
    }
    if (share && !(item->number >= 0.0 && item->number <= 1.0)) {
        return fault_set(fault, ERR_ARG, "send a share between 0 and 1",
                         "fault \"%s\": p must be in [0, 1]", row->name);
    }
    bool needs = row->argument[0] && !share && strcmp(row->argument, "code") != 0 &&
                 strcmp(row->argument, "v") != 0;
    if (needs && !argument) {
        return fault_set(fault, ERR_ARG, row->help, "fault \"%s\" needs the member \"%s\"",
                         row->name, row->argument);
    }
    if (strcmp(row->argument, "f") == 0 && !(item->number > 0.0 && item->number <= 1000.0)) {
        return fault_set(fault, ERR_ARG, "0.1 makes it ten times slower",
                         "fault \"slow\": f must be in (0, 1000]");
    }
    return ERR_OK;
}

static Err unknown_kind(const char *name, Fault *fault)
{
    char known[FAULT_TEXT_MAX] = "clear";
    size_t n = strlen(known);
    for (int i = 0; i < FAULT_KIND_COUNT && n + 24 < sizeof known; i++) {
        (void)str_format(known + n, sizeof known - n, ", %s", ROWS[i].name);
        n = strlen(known);
    }
    return fault_set(fault, ERR_ARG, known, "unknown fault kind \"%s\"", name ? name : "");
}

Err faults_apply(Faults *faults, const cJSON *body, int64_t now_us, FaultKind *kind, Fault *fault)
{
    const char *name = json_string(body, "kind", NULL);
    *kind = FAULT_KIND_COUNT;
    if (name && strcmp(name, "clear") == 0) {
        memset(faults, 0, sizeof *faults);
        return ERR_OK;
    }
    int row = 0;
    while (row < FAULT_KIND_COUNT && (!name || strcmp(ROWS[row].name, name) != 0)) {
        row++;
    }
    if (row == FAULT_KIND_COUNT) {
        return unknown_kind(name, fault);
    }
    double after = json_double(body, "after", 0.0);
    double length = json_double(body, "for", 0.0);
    if (!(after >= 0.0 && after < 1e6 && length >= 0.0 && length < 1e6)) {
        return fault_set(fault, ERR_ARG, "send seconds between 0 and 1e6",
                         "fault \"%s\": \"after\" and \"for\" are seconds", name);
    }
    FaultItem item = {.set = true, .seconds = json_double(body, "delay", json_double(body, "s", 0)),
                      .extra = json_double(body, "long", 0)};
    Err err = check_argument(body, &ROWS[row], &item, fault);
    if (err) {
        return err;
    }
    item.from_us = now_us + (int64_t)(after * 1e6);
    item.until_us = length > 0.0 ? item.from_us + (int64_t)(length * 1e6) : 0;
    faults->items[row] = item;
    *kind = (FaultKind)row;
    return ERR_OK;
}

const FaultItem *faults_active(const Faults *faults, FaultKind kind, int64_t now_us)
{
    const FaultItem *item = &faults->items[kind];
    bool on = item->set && now_us >= item->from_us &&
              (item->until_us == 0 || now_us < item->until_us);
    return on ? item : NULL;
}

int64_t faults_next_change_us(const Faults *faults, int64_t now_us)
{
    int64_t next = 0;
    for (int i = 0; i < FAULT_KIND_COUNT; i++) {
        const FaultItem *item = &faults->items[i];
        int64_t at = !item->set ? 0 : item->from_us > now_us ? item->from_us : item->until_us;
        if (at > now_us && (next == 0 || at < next)) {
            next = at;
        }
    }
    return next;
}

void faults_list(const Faults *faults, int64_t now_us, Text *json)
{
    JsonOut out;
    json_begin(&out, json);
    json_object_begin(&out);
    json_key(&out, "faults");
    json_array_begin(&out);
    for (int i = 0; i < FAULT_KIND_COUNT; i++) {
        const FaultItem *item = &faults->items[i];
        if (!item->set || (item->until_us && item->until_us <= now_us)) {
            continue;
        }
        json_object_begin(&out);
        json_member_string(&out, "kind", ROWS[i].name);
        json_member_bool(&out, "active", faults_active(faults, (FaultKind)i, now_us) != NULL);
        json_member_double(&out, "number", item->number);
        json_member_string(&out, "text", item->text);
        json_object_end(&out);
    }
    json_array_end(&out);
    json_object_end(&out);
}
