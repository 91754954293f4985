/* One suite of requests against rolltop's own engine and frontend and against real ones.
 *
 *   conformance_test                  starts both here and compares with the recorded shapes of the
 *                                     real peers; every difference must stand in differences.txt,
 *                                     and every line there must be one
 *   conformance_test --engine URL --frontend URL            the same against running servers
 *   conformance_test --engine URL --frontend URL --record   prints their shapes
 *
 * ROLLTOP_PEER_ENGINE and ROLLTOP_PEER_FRONTEND name the URLs as --engine and --frontend do. */
#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/mem.h"
#include "core/net/child.h"
#include "core/net/http_client.h"
#include "tests/harness.h"
#include "tests/peers/cases.h"
#include "tests/peers/shape.h"

#include <fnmatch.h>
#include <unistd.h>

enum { REPLY_MS = 30000, PARTS = 2 };

static uv_loop_t loop;
static HttpClient *client;
static char urls[2][128]; /* by CaseAt */
static char *model_path;  /* of the engine, for "@disk" */
static Shape shapes[CASES];

/* ---- asking ------------------------------------------------------------------------------- */

typedef struct Asked {
    bool over;
    const Case *item;
    Shape *shape;
} Asked;

static void on_done(HttpCall *call, const HttpResult *result, void *user)
{
    (void)call;
    Asked *asked = user;
    Shape *shape = asked->shape;
    asked->over = true;
    shape->status = result->end == HTTP_END_OK ? result->status : 0;
    size_t at = 0;
    if (result->end != HTTP_END_OK) {
        shape_add(shape, http_end_name(result->end));
    } else if (asked->item->reads == READS_METRICS) {
        shape_metrics(shape, result->body,
                      asked->item->at == AT_ENGINE ? "sglang:" : "dynamo_frontend_");
    } else if (asked->item->reads == READS_STREAM && str_find(result->body, STR("data: "), &at)) {
        shape_stream(shape, result->body);
    } else if (asked->item->reads != READS_STATUS) {
        shape_json(shape, result->body);
    }
    cJSON *tree = NULL;
    if (strcmp(asked->item->name, "model-info") == 0 && !model_path &&
        json_parse(result->body, 1 << 20, "model info", &tree, NULL) == ERR_OK) {
        model_path = xstrdup(json_string(tree, "model_path", ""));
    }
    cJSON_Delete(tree);
    shape_sort(shape);
}

static void ask(const Case *item, Shape *shape)
{
    char *url = xasprintf("%s%s", urls[item->at], item->path);
    char *body = item->body && strcmp(item->body, "@disk") == 0
                     ? xasprintf("{\"model_path\":\"%s\",\"weight_version\":\"5\","
                                 "\"flush_cache\":false}", model_path ? model_path : "")
                     : xstrdup(item->body ? item->body : "");
    Asked asked = {.item = item, .shape = shape};
    HttpRequestSpec spec = {.method = item->method, .url = url, .body = str_from(body),
                            .content_type = item->content_type, .total_ms = REPLY_MS,
                            .silence_ms = -1, .max_body = 64 << 20, .on_done = on_done,
                            .user = &asked};
    Fault fault = {0};
    *shape = (Shape){0};
    if (http_start(client, &spec, NULL, &fault) != ERR_OK) {
        fault_print(&fault);
        asked.over = true;
    }
    while (!asked.over) {
        uv_run(&loop, UV_RUN_ONCE);
    }
    free(url);
    free(body);
}

/* ---- recorded shapes ---------------------------------------------------------------------- */

static const char *word(CaseAt at)
{
    return at == AT_ENGINE ? "engine" : "frontend";
}

static void print_shapes(void)
{
    for (int i = 0; i < CASES; i++) {
        printf("= %s %s %d\n", word(cases[i].at), cases[i].name, shapes[i].status);
        for (int k = 0; k < shapes[i].count; k++) {
            printf("%s\n", shapes[i].parts[k]);
        }
    }
}

static Text read_text(const char *name)
{
    Text text;
    char *path = xasprintf(ROLLTOP_SOURCE "/tests/peers/%s", name);
    Fault fault = {0};
    text_init(&text, 4 << 20);
    if (fs_read(path, &text, &fault) != ERR_OK) {
        fault_print(&fault);
        exit(1);
    }
    free(path);
    return text;
}

static bool recorded_shape(Str all, const Case *item, Shape *shape)
{
    char head[160];
    Str line;
    bool found = false;
    (void)str_format(head, sizeof head, "= %s %s ", word(item->at), item->name);
    *shape = (Shape){0};
    while (str_split(&all, '\n', &line)) {
        if (str_starts(line, STR("= "))) {
            if (found) {
                break;
            }
            found = str_starts(line, str_from(head));
            shape->status = found ? atoi(line.p + strlen(head)) : 0;
        } else if (found && line.n > 0) {
            char part[SHAPE_PART];
            (void)str_format(part, sizeof part, "%.*s", (int)line.n, line.p);
            shape_add(shape, part);
        }
    }
    shape_sort(shape);
    return found;
}

/* ---- comparing ---------------------------------------------------------------------------- */

typedef struct Allowed { /* lines of differences.txt: "engine CASE WORDS", as shell patterns */
    Str all;
    char used[4096]; /* by line */
    int differences, unknown;
} Allowed;

static bool same_line(Str line, const char *text)
{
    char pattern[SHAPE_PART + 160];
    return str_format(pattern, sizeof pattern, "%.*s", (int)line.n, line.p)
           && fnmatch(pattern, text, FNM_NOESCAPE) == 0;
}

static void differs(Allowed *allowed, const char *text)
{
    Str rest = allowed->all;
    Str line;
    allowed->differences++;
    for (int i = 0; str_split(&rest, '\n', &line) && i < (int)sizeof allowed->used; i++) {
        if (line.n > 0 && line.p[0] != '#' && same_line(str_trim(line), text)) {
            allowed->used[i] = 1;
            return;
        }
    }
    allowed->unknown++;
    fprintf(stderr, "%s\n", text);
}

/* What a peer sends and we do not; what we add is no difference to a client that reads by name. */
static void compare(const Case *item, const Shape *ours, const Shape *theirs, Allowed *allowed)
{
    char text[SHAPE_PART + 160];
    if (ours->status != theirs->status) {
        (void)str_format(text, sizeof text, "%s %s status %d, not %d", word(item->at), item->name,
                       ours->status, theirs->status);
        differs(allowed, text);
        return;
    }
    for (int i = 0; i < theirs->count; i++) {
        if (!shape_has(ours, theirs->parts[i])) {
            (void)str_format(text, sizeof text, "%s %s lacks %s", word(item->at), item->name,
                           theirs->parts[i]);
            differs(allowed, text);
        }
    }
}

/* `ours`: what the list names must be there, or the line is stale. A real peer of another build
 * may lack what we lack too: no client here needs it. */
static void compare_all(bool ours)
{
    Text recorded = read_text("recorded.txt");
    Text list = read_text("differences.txt");
    Allowed allowed = {.all = text_str(&list)};
    static Shape theirs;
    for (int i = 0; i < CASES; i++) {
        bool found = recorded_shape(text_str(&recorded), &cases[i], &theirs);
        if (!found) {
            fprintf(stderr, "%s %s is not recorded\n", word(cases[i].at), cases[i].name);
        }
        CHECK(found);
        compare(&cases[i], &shapes[i], &theirs, &allowed);
    }
    CHECK_I64(allowed.unknown, 0);
    Str rest = allowed.all;
    Str line;
    for (int i = 0; str_split(&rest, '\n', &line); i++) {
        bool stale = ours && line.n > 0 && line.p[0] != '#' && !allowed.used[i];
        if (stale) {
            fprintf(stderr, "no difference any more: %.*s\n", (int)line.n, line.p);
        }
        CHECK(!stale);
    }
    printf("%d differences from the recorded peers, %d of them new\n", allowed.differences,
           allowed.unknown);
    text_free(&recorded);
    text_free(&list);
}

/* What clients read of a page that may lack much else. */
static void check_figures(void)
{
    static const char *const names[] = {
        "sglang:num_running_reqs", "sglang:num_queue_reqs", "sglang:token_usage",
        "sglang:gen_throughput", "sglang:cache_hit_rate", "sglang:num_used_tokens",
        "sglang:generation_tokens_total", "sglang:realtime_tokens_total",
        "sglang:num_requests_total", "sglang:time_to_first_token_seconds_bucket",
        "sglang:e2e_request_latency_seconds_bucket"};
    for (int i = 0; i < CASES; i++) {
        for (size_t k = 0; cases[i].reads == READS_METRICS && k < sizeof names / sizeof *names;
             k++) {
            bool found = shape_has(&shapes[i], names[k]);
            if (!found) {
                fprintf(stderr, "no %s\n", names[k]);
            }
            CHECK(found);
        }
    }
}

/* ---- our own ------------------------------------------------------------------------------ */

typedef struct Part {
    Child *child;
    char address[64];
    bool ended;
} Part;
static Part parts[PARTS];

static void on_line(Child *child, bool is_stderr, Str line, void *user)
{
    (void)child;
    Part *part = user;
    size_t at = 0;
    if (!is_stderr && str_find(line, STR("listening on http://"), &at)) {
        Str address = str_trim(str_slice(line, at + 20, line.n));
        (void)str_format(part->address, sizeof part->address, "%.*s", (int)address.n, address.p);
    }
}

static void on_exit_of(Child *child, int64_t status, int signal_number, void *user)
{
    (void)child;
    (void)status;
    (void)signal_number;
    ((Part *)user)->ended = true;
}

static void start(Part *part, const char *const *argv)
{
    ChildSpec spec = {.name = argv[1], .argv = argv, .on_line = on_line, .on_exit = on_exit_of,
                      .user = part};
    Fault fault = {0};
    if (child_start(&loop, &spec, &part->child, &fault) != ERR_OK) {
        fault_print(&fault);
        exit(1);
    }
    while (!part->address[0] && !part->ended) {
        uv_run(&loop, UV_RUN_ONCE);
    }
}

static void start_ours(void)
{
    const char *const engine[] = {ROLLTOP_BINARY, "engine", "--synthetic", "--port", "0",
                                  "--incremental-streaming-output", "--context-length", "4096",
                                  "--served-model-name", "policy", NULL};
    start(&parts[0], engine);
    model_path = xstrdup(ROLLTOP_TEST_DATA "/golden-qwen3/tied"); /* a synthetic engine has none */
    const char *const frontend[] = {ROLLTOP_BINARY, "frontend", "--port", "0", "--engine",
                                    parts[0].address, NULL};
    start(&parts[1], frontend);
    for (int i = 0; i < PARTS; i++) {
        (void)str_format(urls[i], sizeof urls[i], "http://%s", parts[i].address);
    }
}

static void stop_ours(void)
{
    for (int i = 0; i < PARTS; i++) {
        if (parts[i].child) {
            child_free(parts[i].child);
        }
    }
}

int main(int argc, char **argv)
{
    const char *engine = getenv("ROLLTOP_PEER_ENGINE");
    const char *frontend = getenv("ROLLTOP_PEER_FRONTEND");
    bool record = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--record") == 0) {
            record = true;
        } else if (i + 1 < argc && strcmp(argv[i], "--engine") == 0) {
            engine = argv[++i];
        } else if (i + 1 < argc && strcmp(argv[i], "--frontend") == 0) {
            frontend = argv[++i];
        }
    }
    if (access(ROLLTOP_BINARY, X_OK) != 0 && !(engine && frontend)) {
        puts("skipped: the rolltop binary is not built");
        return 77;
    }
    uv_loop_init(&loop);
    CHECK_I64(http_client_new(&loop, NULL, &client, NULL), ERR_OK);
    bool real = engine && frontend;
    if (real) {
        (void)str_format(urls[AT_ENGINE], sizeof urls[0], "%s", engine);
        (void)str_format(urls[AT_FRONTEND], sizeof urls[1], "%s", frontend);
    } else {
        start_ours();
    }
    for (int i = 0; i < CASES; i++) {
        ask(&cases[i], &shapes[i]);
    }
    if (record) {
        print_shapes();
    } else {
        compare_all(!real);
        check_figures();
    }
    stop_ours();
    http_client_free(client);
    while (uv_run(&loop, UV_RUN_NOWAIT) != 0) {
    }
    free(model_path);
    return record ? 0 : test_end();
}
