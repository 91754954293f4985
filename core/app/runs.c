#include "core/app/runs.h"

#include "core/base/fs.h"
#include "core/base/mem.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

enum { STATUS_MS = 2000 };

/* A core that ends closes what it has not answered yet: then nobody listens at the second try. */
static bool ask(const char *socket, cJSON **status, Err *err)
{
    for (int tries = 0; tries < 2; tries++) {
        CtlClient *client = NULL;
        *err = ctl_connect(socket, STATUS_MS, &client, NULL);
        if (*err != ERR_OK) {
            return false;
        }
        Err how = ctl_call(client, STR("{\"cmd\":\"status\"}"), STATUS_MS, status, NULL);
        ctl_client_free(client);
        if (how != ERR_NET) {
            break;
        }
    }
    return true;
}

static int by_id(const void *a, const void *b)
{
    return strcmp(((const RunEntry *)a)->id, ((const RunEntry *)b)->id);
}

Err runs_check_id(const char *id, Fault *fault)
{
    static const char good[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    size_t n = strlen(id);
    if (n == 0 || n > RUN_ID_MAX || id[0] == '.' || strspn(id, good) != n) {
        return fault_set(fault, ERR_ARG, "use letters, digits, dashes and dots, at most 48",
                         "--run-id %s cannot be the name of a run", id);
    }
    return ERR_OK;
}

Err runs_list(RunList *out, Fault *fault)
{
    *out = (RunList){.count = 0};
    char *folder = NULL;
    Err err = fs_runtime_dir(&folder, fault);
    if (err != ERR_OK) {
        return err;
    }
    DIR *dir = opendir(folder);
    for (struct dirent *entry = dir ? readdir(dir) : NULL; entry && out->count < RUNS_MAX;
         entry = readdir(dir)) {
        Str name = str_from(entry->d_name);
        if (!str_ends(name, STR(".sock"))) {
            continue;
        }
        char *socket = fs_join(folder, entry->d_name);
        cJSON *status = NULL;
        Err why = ERR_OK;
        if (ask(socket, &status, &why)) {
            out->items[out->count++] =
                (RunEntry){.id = xstrndup(name.p, name.n - 5), .socket = socket, .status = status};
        } else {
            if (why == ERR_NOT_FOUND) { /* refused: its core died without tidying up */
                ctl_sweep(socket);
            }
            free(socket);
        }
    }
    if (dir) {
        closedir(dir);
    }
    free(folder);
    qsort(out->items, out->count, sizeof *out->items, by_id);
    return ERR_OK;
}

void runs_free(RunList *list)
{
    for (size_t i = 0; i < list->count; i++) {
        free(list->items[i].id);
        free(list->items[i].socket);
        cJSON_Delete(list->items[i].status);
    }
    list->count = 0;
}

Err runs_pick(const RunList *list, const char *id, const RunEntry **out, Fault *fault)
{
    Text names;
    text_init(&names, 300);
    for (size_t i = 0; i < list->count; i++) {
        if (id && strcmp(list->items[i].id, id) == 0) {
            *out = &list->items[i];
            text_free(&names);
            return ERR_OK;
        }
        text_addf(&names, "%s%s", i ? ", " : "", list->items[i].id);
    }
    Err err = ERR_OK;
    if (list->count == 0) {
        err = fault_set(fault, ERR_NOT_FOUND, "start one: rolltop demo", "no run is alive");
    } else if (id) {
        err = fault_set(fault, ERR_NOT_FOUND, "give the name of one of them",
                        "no run is called %s; alive: %s", id, text_c(&names));
    } else if (list->count > 1) {
        err = fault_set(fault, ERR_ARG, "name one with --run ID", "several runs are alive: %s",
                        text_c(&names));
    } else {
        *out = &list->items[0];
    }
    text_free(&names);
    return err;
}
