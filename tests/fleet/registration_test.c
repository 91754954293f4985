/* Who is on the frontend's list: an update may reach an engine only behind its registration. */
#include "core/fleet/registration.h"
#include "core/fleet/engine_settings.h"
#include "tests/fleet/captures.h"
#include "tests/harness.h"

static int64_t now_us = 5000000;

static int port = 40000; /* of every entry: a sidecar's, or the engine's */

static void look(Registration *r, int count, const char *const ids[])
{
    Text body;
    text_init(&body, 1 << 16);
    text_add_c(&body, "{\"status\":\"healthy\",\"instances\":[");
    for (int i = 0; i < count; i++) { /* as it comes: several endpoints of one worker */
        text_addf(&body,
                  "%s{\"component\":\"backend\",\"endpoint\":\"generate\",\"instance_id\":%s,"
                  "\"transport\":{\"tcp\":\"127.0.0.9:%d/x\"}},"
                  "{\"endpoint\":\"clear_kv_blocks\",\"instance_id\":%s}",
                  i ? "," : "", ids[i], port, ids[i]);
    }
    text_add_c(&body, "]}");
    CHECK(registration_health(r, text_str(&body), now_us));
    text_free(&body);
}
#define LOOK(r, ...)                                                                              \
    do {                                                                                          \
        const char *const ids_[] = {__VA_ARGS__};                                                 \
        look(r, (int)(sizeof ids_ / sizeof *ids_), ids_);                                         \
    } while (0)

static void engines_wait_until_each_is_listed(void)
{
    Registration *r = registration_new();
    CHECK(registration_listed(r, 0)); /* no list was seen: nothing to wait for */
    LOOK(r, "16657605962069824095");
    CHECK_I64(registration_count(r), 1);
    registration_came(r, 0, "10.0.0.0:30000", now_us);
    CHECK(registration_listed(r, 0));
    registration_came(r, 1, "10.0.0.1:30000", now_us);
    CHECK(!registration_listed(r, 1));
    LOOK(r, "16657605962069824095", "13894328399927010000");
    CHECK(registration_listed(r, 1));
    registration_free(r);

    r = registration_new(); /* one of two: nobody knows which */
    registration_came(r, 0, "10.0.0.0:30000", now_us);
    registration_came(r, 1, "10.0.0.1:30000", now_us);
    LOOK(r, "7");
    CHECK(!registration_listed(r, 0) && !registration_listed(r, 1));
    LOOK(r, "7", "8");
    CHECK(registration_listed(r, 0) && registration_listed(r, 1));
    registration_free(r);
}

/* SIGKILL of engine 0: listed for some 10 s more; its next process answers 5 to 20 s before its
 * sidecar registers. */
static void a_killed_process_leaves_its_entry_behind(void)
{
    Registration *r = registration_new();
    registration_came(r, 0, "10.0.0.0:30000", now_us);
    registration_came(r, 1, "10.0.0.1:30000", now_us);
    LOOK(r, "7", "8");
    registration_lost(r, 0);
    LOOK(r, "7", "8");
    registration_came(r, 0, "10.0.0.0:30000", now_us);
    CHECK(!registration_listed(r, 0));
    CHECK(registration_listed(r, 1));
    LOOK(r, "7", "8");
    CHECK(!registration_listed(r, 0)); /* 7 is the dead one's */
    LOOK(r, "8");
    CHECK(!registration_listed(r, 0));
    LOOK(r, "8", "9");
    CHECK(registration_listed(r, 0));
    registration_free(r);
}

static void strangers_and_empty_lists(void)
{
    Registration *r = registration_new(); /* 1 and 2 are workers of somebody else */
    registration_came(r, 0, "10.0.0.0:30000", now_us);
    LOOK(r, "1", "2", "7");
    CHECK(registration_listed(r, 0));
    registration_lost(r, 0);
    registration_came(r, 0, "10.0.0.0:30000", now_us);
    LOOK(r, "1", "2");
    CHECK(!registration_listed(r, 0)); /* they were there before the loss */
    LOOK(r, "1", "2", "12");
    CHECK(registration_listed(r, 0));
    registration_lost(r, 0); /* it was silent for a moment and is the same process */
    LOOK(r, "1", "2", "12");
    CHECK(registration_listed(r, 0));
    LOOK(r, "1", "2"); /* a frozen worker's entry goes and stays away */
    CHECK(!registration_listed(r, 0));
    registration_gone(r, 0);
    registration_free(r);

    r = registration_new(); /* the list could not be read by the frontend itself: 200 and empty */
    registration_came(r, 0, "10.0.0.0:30000", now_us);
    LOOK(r, "7");
    CHECK(registration_health(r, STR("{\"status\":\"healthy\",\"instances\":[]}"), now_us));
    CHECK(!registration_listed(r, 0));
    LOOK(r, "7");
    CHECK(registration_listed(r, 0));
    registration_free(r);
}

/* A busy machine: engine 1 seems dead for a moment and its entry lapses while engine 0 really is
 * replaced. Its own entry comes back, and both are listed. */
static void a_lapsed_entry_comes_back_to_its_owner(void)
{
    Registration *r = registration_new();
    registration_came(r, 0, "10.0.0.0:30000", now_us);
    registration_came(r, 1, "10.0.0.1:30000", now_us);
    LOOK(r, "7", "8");
    registration_lost(r, 0);
    LOOK(r, "8");
    registration_came(r, 0, "10.0.0.0:30000", now_us);
    registration_lost(r, 1);
    CHECK(registration_health(r, STR("{\"instances\":[]}"), now_us));
    CHECK(!registration_listed(r, 0) && !registration_listed(r, 1));
    LOOK(r, "9"); /* the new one is engine 0's: engine 1 has an id of its own */
    CHECK(registration_listed(r, 0) && !registration_listed(r, 1));
    LOOK(r, "8", "9");
    CHECK(registration_listed(r, 0) && registration_listed(r, 1));
    registration_free(r);
}

/* As rolltop's frontend lists: the entry names the engine's own port and outlives the process. */
static void entries_by_address_outlive_a_process(void)
{
    static const char body[] =
        "{\"instances\":[{\"component\":\"backend\",\"endpoint\":\"generate\",\"instance_id\":7,"
        "\"transport\":{\"tcp\":\"10.0.0.7:30000/7/rolltop/backend/generate\"}},"
        "{\"endpoint\":\"generate\",\"instance_id\":8,"
        "\"transport\":{\"tcp\":\"127.0.0.1:30001/8/rolltop/backend/generate\"}}]}";
    Registration *r = registration_new();
    registration_came(r, 0, "http://10.0.0.7:30000", now_us);
    CHECK(registration_health(r, STR(body), now_us));
    registration_came(r, 1, "localhost:30001", now_us);
    CHECK(registration_listed(r, 0) && registration_listed(r, 1));
    for (int i = 0; i < 2; i++) { /* another process at the same address */
        registration_lost(r, i);
        registration_came(r, i, i ? "localhost:30001" : "10.0.0.7:30000", now_us);
        CHECK(registration_listed(r, 0) && registration_listed(r, 1));
    }
    registration_gone(r, 1); /* the frontend was started anew: other ids, the same addresses */
    CHECK(registration_health(r, STR("{\"instances\":[{\"endpoint\":\"generate\","
                                     "\"instance_id\":99,\"transport\":{\"http\":"
                                     "\"tcp://10.0.0.7:30000\"}}]}"), now_us));
    CHECK(registration_listed(r, 0) && !registration_listed(r, 1));
    registration_came(r, 0, "10.0.0.8:30000", now_us); /* it moved: that entry is another's */
    CHECK(!registration_listed(r, 0));
    registration_free(r);
}

/* A name that cannot be compared: the entry of the process before is believed once it has stayed
 * for longer than any dead process's does, and never when it lapsed meanwhile. */
static void an_entry_that_stays_is_the_next_process_s(void)
{
    for (int other = 0; other < 3; other++) { /* 1: it lapses; 2: it is a sidecar's, elsewhere */
        Registration *r = registration_new();
        port = other == 2 ? 40000 : 30000;
        registration_came(r, 0, "engine-0.svc:30000", now_us);
        registration_came(r, 1, "engine-1.svc:30000", now_us);
        LOOK(r, "7", "8");
        registration_lost(r, 1);
        registration_came(r, 1, "engine-1.svc:30000", now_us);
        CHECK(!registration_listed(r, 1));
        for (int s = 0; s < 29; s++) {
            now_us += 1000000;
            LOOK(r, "7", "8");
            CHECK(!registration_listed(r, 1));
        }
        if (other == 1) {
            LOOK(r, "7");
        }
        now_us += 1000000;
        LOOK(r, "7", "8");
        CHECK_I64(registration_listed(r, 1), other == 0);
        CHECK(registration_listed(r, 0));
        registration_free(r);
    }
    port = 40000;
}

/* Two that registered together: which id is whose was a guess. One is killed, and it is the other
 * one's supposed id that lapses. The one that lives stays listed; the killed one's next process is
 * not, until it registers, however long that takes. */
static void a_wrong_guess_is_put_right(void)
{
    for (int way = 0; way < 8; way++) { /* seen before the list was, or one by one after it */
        const int killed = way & 1, lapsed = way >> 1 & 1;
        Registration *r = registration_new();
        if (way & 4) {
            LOOK(r, "7", "8");
        }
        registration_came(r, 0, "127.0.0.1:30000", now_us);
        registration_came(r, 1, "127.0.0.1:30001", now_us);
        LOOK(r, "7", "8");
        registration_lost(r, killed);
        LOOK(r, "7", "8");
        for (int i = 0; i < 200; i++) {
            now_us += 500000;
            if (i == 10) {
                registration_lost(r, !killed); /* silent for a moment */
            } else if (i == 12) {
                registration_back(r, !killed);
            } else if (i == 100) {
                registration_came(r, killed, "127.0.0.1:3000x", now_us);
            }
            if (lapsed) {
                LOOK(r, "7");
            } else {
                LOOK(r, "8");
            }
            CHECK(registration_listed(r, !killed) || (i >= 10 && i < 12));
            CHECK(!registration_listed(r, killed));
        }
        if (lapsed) {
            LOOK(r, "7", "9");
        } else {
            LOOK(r, "8", "9");
        }
        CHECK(registration_listed(r, 0) && registration_listed(r, 1));
        registration_free(r);
    }
}

typedef struct Worker { /* what is really so */
    bool answers, registered;
    int id;       /* of the process; its entry … */
    int gone_at;  /* … leaves the list at that look; 0: it stays */
    int comes_at, registers_at;
} Worker;

/* Engines are killed and come back in every order: none is called listed before its process has
 * registered, and each one that lives comes to be listed. */
static void kills_in_every_order(void)
{
    enum { ENGINES = 4, LOOKS = 400, IDS = 200 };
    for (unsigned seed = 1; seed <= 60; seed++) {
        Registration *r = registration_new();
        Worker w[ENGINES] = {{0}};
        int gone[IDS] = {0}; /* the look at which an entry goes; 0: it stays */
        bool entered[IDS] = {false};
        int next = 1;
        unsigned random = seed * 2654435761u;
        for (int k = 0; k < ENGINES; k++) {
            w[k] = (Worker){true, true, next, 0, 0, 0};
            entered[next++] = true;
            if (seed % 2) { /* else one by one behind the first look */
                registration_came(r, k, "10.0.0.1:30000", now_us);
            }
        }
        for (int at = 1; at < LOOKS; at++) {
            random = random * 1664525u + 1013904223u;
            int k = (int)(random >> 24) % ENGINES;
            if (seed % 2 == 0 && at >= 2 && at < 2 + ENGINES) {
                registration_came(r, at - 2, "10.0.0.1:30000", now_us);
            }
            bool calm = at <= 2 + ENGINES || at >= LOOKS - 120;
            if (!calm && (random >> 8) % 12 == 0 && w[k].answers && next < IDS) {
                gone[w[k].id] = at + 1 + (int)(random >> 12) % 26; /* up to 13 s */
                w[k] = (Worker){.comes_at = at + 1 + (int)(random >> 16) % 60};
                registration_lost(r, k);
            }
            for (k = 0; k < ENGINES; k++) {
                if (!w[k].answers && w[k].comes_at == at) {
                    w[k] = (Worker){.answers = true, .id = next++,
                                    .registers_at = at + 3 + (int)(random >> 20) % 40};
                    registration_came(r, k, "10.0.0.1:30000", now_us);
                } else if (w[k].answers && w[k].registers_at == at) {
                    w[k].registered = entered[w[k].id] = true;
                }
            }
            Text body;
            text_init(&body, 1 << 16);
            text_add_c(&body, "{\"instances\":[{\"endpoint\":\"x\",\"instance_id\":1}");
            for (int id = 1; id < next; id++) {
                if (entered[id] && (gone[id] == 0 || gone[id] > at)) {
                    text_addf(&body, ",{\"endpoint\":\"generate\",\"instance_id\":%d}", id);
                }
            }
            text_add_c(&body, "]}");
            now_us += 500000;
            CHECK(registration_health(r, text_str(&body), now_us));
            text_free(&body);
            for (k = 0; k < ENGINES; k++) {
                CHECK(!registration_listed(r, k) || !w[k].answers || w[k].registered);
                CHECK(at < LOOKS - 1 || registration_listed(r, k));
            }
        }
        registration_free(r);
    }
}

static void other_routers_and_broken_bodies(void)
{
    static const char *const bodies[] = {"", "OK", "{}", "[]", "{\"status\":\"healthy\"}",
                                         "{\"instances\":{}}", "{\"instances\":[",
                                         "{\"instances\":[{\"instance_id\":1}]} x"};
    Registration *r = registration_new();
    registration_came(r, 0, "10.0.0.0:30000", now_us);
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        CHECK(!registration_health(r, str_from(bodies[i]), now_us));
        CHECK(registration_listed(r, 0));
    }
    LOOK(r, "7");
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) { /* and now nothing changes */
        CHECK(registration_health(r, str_from(bodies[i]), now_us));
        CHECK(registration_listed(r, 0));
    }
    /* ids that are no 64-bit numbers are nobody's */
    CHECK(registration_health(r, STR("{\"instances\":[{\"endpoint\":\"generate\",\"instance_id\":"
                                     "99999999999999999999999},{\"endpoint\":\"generate\","
                                     "\"instance_id\":-4},{\"endpoint\":\"generate\"}]}"), now_us));
    CHECK_I64(registration_count(r), 0);
    registration_free(r);
}

static void recorded_lists(void)
{
    Captures all = captures_load();
    static const struct { const char *name; int count; } cases[] = {
        {"dynamo-sglang/health-two-engines.http", 2}, {"dynamo/health-two-workers.http", 2},
        {"dynamo/health-no-worker.http", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Registration *r = registration_new();
        CaptureReply reply = capture_reply(captures_get(&all, cases[i].name));
        CHECK(registration_health(r, str_trim(reply.body), now_us));
        CHECK_I64(registration_count(r), cases[i].count);
        registration_free(r);
    }
    captures_free(&all);
}

static void settings_of_others_engines(void)
{
    static const EngineSetting settings[] = {
        {"mem_fraction_static", "0.5"}, {"max_running_requests", "16"},
        {"incremental_streaming_output", "true"}, {"served_model_name", "other"},
        {"no_such_thing", "1"}, {"cuda_graph_bs", "1 2 4"}};
    cJSON *info = NULL;
    Text words;
    text_init(&words, 512);
    CHECK_I64(json_parse(STR("{\"mem_fraction_static\":0.50,\"max_running_requests\":16,"
                             "\"incremental_streaming_output\":false,"
                             "\"served_model_name\":\"policy\",\"cuda_graph_bs\":[1,2,4]}"),
                         4096, "info", &info, NULL), ERR_OK);
    CHECK_I64(engine_settings_compare(info, settings, 6, &words), 3);
    CHECK_STR(text_c(&words), "incremental_streaming_output false instead of true; "
                              "served_model_name policy instead of other; "
                              "no_such_thing is not known to it");
    text_clear(&words);
    CHECK_I64(engine_settings_compare(info, settings, 2, &words), 0);
    CHECK_STR(text_c(&words), "");
    text_free(&words);
    cJSON_Delete(info);
}

int main(void)
{
    RUN(engines_wait_until_each_is_listed);
    RUN(a_killed_process_leaves_its_entry_behind);
    RUN(strangers_and_empty_lists);
    RUN(a_lapsed_entry_comes_back_to_its_owner);
    RUN(entries_by_address_outlive_a_process);
    RUN(an_entry_that_stays_is_the_next_process_s);
    RUN(a_wrong_guess_is_put_right);
    RUN(kills_in_every_order);
    RUN(other_routers_and_broken_bodies);
    RUN(recorded_lists);
    RUN(settings_of_others_engines);
    return test_end();
}
