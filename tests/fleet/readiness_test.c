/* What a frontend's model routes say of its readiness, from recorded replies and from others. */
#include "core/fleet/readiness.h"
#include "tests/fleet/captures.h"
#include "tests/harness.h"

static int64_t now_us = 7000000;
static Captures all;

/* The next question, half a second later, answered with `status` and `body`. */
static bool reply(ReadinessState *s, const char *path, int status, Str body)
{
    char asked[READINESS_PATH] = "";
    now_us += 500000;
    CHECK(readiness_path(s, now_us, asked));
    CHECK_STR(asked, path);
    return readiness_reply(s, status, body, now_us);
}

static bool recorded(ReadinessState *s, const char *path, const char *name)
{
    CaptureReply r = capture_reply(captures_get(&all, name));
    return reply(s, path, r.status, str_trim(r.body));
}

static const char READY[] = "/v1/models/policy/ready";

/* Two workers, one killed, then the last one; and both back. */
static void a_fleet_that_loses_its_workers(void)
{
    ReadinessState s = {0};
    CHECK(!recorded(&s, "/v1/models", "dynamo/models.http"));
    CHECK_I64(s.now, READINESS_UNKNOWN); /* listed is not routable */
    CHECK(!s.settled);
    CHECK(recorded(&s, READY, "dynamo/model-ready.http"));
    CHECK_I64(s.now, READINESS_READY);
    CHECK_I64(s.workers, 2);
    CHECK(!recorded(&s, READY, "dynamo/model-ready-after-kill.http"));
    CHECK_I64(s.workers, 1); /* while /health lists two for 13 s */
    CHECK(recorded(&s, READY, "dynamo/model-ready-503.http"));
    CHECK_I64(s.now, READINESS_NONE);
    CHECK(strstr(s.words, "no namespace has all required worker types live") != NULL);
    now_us += READINESS_MODELS_US;
    CHECK(!recorded(&s, "/v1/models", "dynamo/models-while-inhibited.http"));
    CHECK_I64(s.now, READINESS_NONE); /* the list is empty meanwhile; its name stays known */
    CHECK(recorded(&s, READY, "dynamo-sglang/model-ready.http"));
    CHECK_I64(s.now, READINESS_READY);
    CHECK(!recorded(&s, READY, "dynamo/drain-models.http")); /* draining says nothing of workers */
    CHECK(reply(&s, READY, 404, STR("{\"message\":\"Model not found\",\"code\":404}")));
    CHECK_I64(s.now, READINESS_NONE);
    CHECK(!reply(&s, "/v1/models", 200, STR("{\"object\":\"list\",\"data\":[]}")));
    CHECK_I64(s.now, READINESS_NONE);
}

/* An update that reached an engine before its sidecar had registered. */
static void two_models(void)
{
    ReadinessState s = {0};
    CHECK(!recorded(&s, "/v1/models", "dynamo-sglang/models.http"));
    CHECK(recorded(&s, READY, "dynamo-sglang/model-ready.http"));
    now_us += READINESS_MODELS_US;
    CHECK(reply(&s, "/v1/models", 200, STR("{\"data\":[{\"id\":\"policy\"},{\"id\":\"/c/b\"}]}")));
    CHECK_I64(s.now, READINESS_SPLIT);
    CHECK(strstr(s.words, "2 models (policy, /c/b)") != NULL);
    char path[READINESS_PATH];
    CHECK(!readiness_path(&s, now_us + 500000, path)); /* which one would be asked for? */
    now_us += READINESS_MODELS_US;
    CHECK(reply(&s, "/v1/models", 200, STR("{\"data\":[{\"id\":\"/c/b 1\"}]}")));
    CHECK_I64(s.now, READINESS_UNKNOWN);
    CHECK(!reply(&s, "/v1/models/%2Fc%2Fb%201/ready", 500, STR("")));
}

static void others_say_nothing(void)
{
    static const struct { int status; const char *body; } others[] = {
        {404, "{\"detail\":\"Not Found\"}"}, {405, ""}, {200, "OK"}, {200, "{}"}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        ReadinessState s = {0};
        char path[READINESS_PATH];
        CHECK(!reply(&s, "/v1/models", others[i].status, str_from(others[i].body)));
        CHECK_I64(s.now, READINESS_UNKNOWN);
        CHECK(s.settled);
        CHECK(!readiness_path(&s, now_us + 1000000, path)); /* and are not asked all the time */
        CHECK(readiness_path(&s, now_us + READINESS_AGAIN_US, path));
        ReadinessState t = {0}; /* SGLang's router: models, and no such route */
        CHECK(!reply(&t, "/v1/models", 200, STR("{\"data\":[{\"id\":\"policy\"}]}")));
        CHECK(!reply(&t, READY, others[i].status, str_from(others[i].body)));
        CHECK_I64(t.now, READINESS_UNKNOWN);
        CHECK(t.settled);
    }
    ReadinessState s = {0}; /* hostile */
    CHECK(!reply(&s, "/v1/models", 200, STR("{\"data\":[{\"id\":")));
    now_us += READINESS_AGAIN_US;
    CHECK(!reply(&s, "/v1/models", 200, STR("{\"data\":[{\"id\":\"policy\"}]}")));
    CHECK(reply(&s, READY, 200, STR("{\"ready\":true,\"namespaces\":{\"a\":{\"worker_types\":"
                                    "{\"x\":{\"workers\":-9e99}}}}}")));
    CHECK_I64(s.workers, 0);
}

int main(void)
{
    all = captures_load();
    RUN(a_fleet_that_loses_its_workers);
    RUN(two_models);
    RUN(others_say_nothing);
    captures_free(&all);
    return test_end();
}
