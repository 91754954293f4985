/* `rolltop snapshot`, `top --batch` and `events` as a program reads them: real output of the binary
 * on the recorded incident, parsed back, held against the published schema, and compared with what
 * the screen shows at the same moment. */
#include "tests/harness.h"
#include "tests/json_schema.h"
#include "tests/tui/player.h"
#include "tui/snapshot_json.h"

#include <sys/wait.h>

enum { OUT_MAX = 32 << 20 };

static Player player;
static cJSON *schema;

/* What the binary writes; *status is how it ended. */
static char *ask(const char *words, int *status)
{
    char command[512];
    Text out;
    char chunk[65536];
    size_t n;
    text_init(&out, OUT_MAX);
    (void)snprintf(command, sizeof command, "'%s' %s", ROLLTOP_BINARY, words);
    FILE *pipe = popen(command, "r");
    while (pipe && (n = fread(chunk, 1, sizeof chunk, pipe)) > 0) {
        (void)text_add(&out, chunk, n);
    }
    int how = pipe ? pclose(pipe) : -1;
    *status = WIFEXITED(how) ? WEXITSTATUS(how) : -1;
    (void)text_add_c(&out, "");
    return out.p ? text_take(&out) : strdup("");
}

static cJSON *parse(const char *text, size_t n)
{
    cJSON *json = NULL;
    Fault fault = {0};
    if (json_parse((Str){text, n}, OUT_MAX, "output", &json, &fault) != ERR_OK) {
        fprintf(stderr, "%s\n", fault.sentence);
    }
    return json;
}

static bool holds(const cJSON *value)
{
    char why[512];
    bool good = schema_holds(schema, schema, value, why);
    if (!good) {
        fprintf(stderr, "  %s\n", why);
    }
    return good;
}

/* One picture of the binary at T, as "2026-…T…" in whole seconds. */
static cJSON *snapshot_at(int64_t t_us)
{
    char words[256];
    char date[FORMAT_MAX];
    int status = 0;
    (void)snprintf(words, sizeof words, "snapshot '%s' --json --at '%s'", player.path,
                   format_date(t_us, date));
    char *text = ask(words, &status);
    CHECK_I64(status, 0);
    cJSON *json = parse(text, strlen(text) - (text[0] ? 1 : 0)); /* without the newline */
    free(text);
    return json;
}

static Val val_in(const cJSON *object, const char *key)
{
    const cJSON *val = json_get(object, key);
    CHECK(val != NULL);
    return cJSON_IsObject(val)
               ? val_of(json_double(val, "value", NAN), json_i64(val, "seen_us", 0))
               : val_none();
}

static char *screen_text(void)
{
    Text text;
    text_init(&text, 1 << 20);
    player_draw(&player);
    surface_dump_text(player.surface, &text);
    return text_take(&text);
}

/* The line of the screen that has both words; "" when none does. */
static void line_with(const char *screen, const char *a, const char *b, char line[1024])
{
    Str rest = str_from(screen);
    Str part;
    size_t at = 0;
    line[0] = '\0';
    while (!line[0] && str_split(&rest, '\n', &part)) {
        if (str_find(part, str_from(a), &at) && str_find(part, str_from(b), &at)) {
            (void)str_format(line, 1024, "%.*s", (int)part.n, part.p);
        }
    }
}

static bool has(const char *line, const char *words)
{
    bool found = strstr(line, words) != NULL;
    if (!found) {
        fprintf(stderr, "  no \"%s\" in \"%s\"\n", words, line);
    }
    return found;
}

/* Each number of the JSON, formatted as people read it, stands on the screen of the same T. */
static void compare_engines(const cJSON *json, const char *screen, int64_t t_us)
{
    const cJSON *row;
    char a[FORMAT_MAX];
    char line[1024];
    cJSON_ArrayForEach(row, json_get(json_get(json, "engines"), "rows")) {
        const char *state = json_string(row, "state", "?");
        line_with(screen, json_string(row, "name", "?"), state, line);
        CHECK(line[0] != '\0');
        CHECK(has(line, format_version(json_i64(row, "policy_version", -1), a)));
        CHECK(has(line, format_count_val(val_in(row, "tokens_per_s"), a)));
        CHECK(has(line, format_count_val(val_in(row, "running"), a)));
        CHECK(has(line, format_percent(val_in(row, "kv_usage"), a)));
        CHECK(has(line, format_ms(val_in(row, "ttft_ms"), a)));
        CHECK(has(line, format_age(t_us - json_i64(row, "seen_us", 0), a)));
    }
}

static void compare_samples(const cJSON *json, const char *screen, int64_t t_us)
{
    const cJSON *row;
    char a[FORMAT_MAX];
    char name[64];
    char line[1024];
    cJSON_ArrayForEach(row, json_get(json_get(json, "in_flight"), "rows")) {
        (void)snprintf(name, sizeof name, "  %lld/%lld ", (long long)json_i64(row, "step", -1),
                       (long long)json_i64(row, "sample", -1));
        line_with(screen, name, json_string(row, "engine", "?"), line);
        CHECK(has(line, format_age(t_us - json_i64(row, "started_us", 0), a)));
        CHECK(has(line, format_count((double)json_i64(row, "tokens", -1), a)));
    }
}

static void compare_header(const cJSON *json, const char *screen, int64_t t_us)
{
    const cJSON *header = json_get(json, "header");
    char a[FORMAT_MAX];
    char text[128];
    (void)snprintf(text, sizeof text, "%s tok/s",
                   format_count_val(val_in(header, "tokens_per_s"), a));
    CHECK(has(screen, text));
    (void)snprintf(text, sizeof text, "%lld in flight",
                   (long long)json_i64(header, "samples_inflight", -1));
    CHECK(has(screen, text));
    (void)snprintf(text, sizeof text, "step %lld", (long long)json_i64(header, "step", -9));
    CHECK(has(screen, text));
    (void)snprintf(text, sizeof text, "reward %s",
                   format_ratio_val(val_in(header, "reward_mean"), a));
    CHECK(has(screen, text));
    (void)snprintf(text, sizeof text, "%s %s", phase_word(player.snap.header.phase),
                   format_age(t_us - json_i64(header, "phase_since_us", 0), a));
    CHECK(has(screen, text));
    CHECK_STR(json_string(header, "phase", ""), loop_phase_name(player.snap.header.phase));
    (void)snprintf(text, sizeof text, "ALERTS %lld",
                   (long long)json_i64(header, "alerts_open", -1));
    CHECK(has(screen, text));
    const cJSON *alerts = json_get(json_get(json, "alerts"), "rows");
    const cJSON *alert;
    cJSON_ArrayForEach(alert, alerts) {
        (void)snprintf(text, sizeof text, "%s %s %s", json_string(alert, "engine", ""),
                       json_string(alert, "class", "?"),
                       format_age(t_us - json_i64(alert, "onset_us", 0), a));
        CHECK(has(screen, text));
    }
}

static void compare_lists(const cJSON *json, const char *screen)
{
    const cJSON *row;
    char a[FORMAT_MAX];
    char b[FORMAT_MAX];
    char text[128];
    char line[1024];
    int64_t steps = json_i64(json_get(json, "steps"), "total", -1);
    int64_t events = json_i64(json_get(json, "events"), "total", -1);
    CHECK_I64(steps, player.snap.steps.total);
    CHECK_I64(events, player.snap.events.total);
    row = cJSON_GetArrayItem(json_get(json_get(json, "policies"), "rows"), 0);
    line_with(screen, format_version(json_i64(row, "version", -1), a),
              json_string(row, "state", "?"), line);
    CHECK(line[0] != '\0');
    row = cJSON_GetArrayItem(json_get(json_get(json, "updates"), "rows"), 0);
    (void)snprintf(text, sizeof text, "%s > %s",
                   format_version(json_i64(row, "from_version", -1), a),
                   format_version(json_i64(row, "to_version", -1), b));
    CHECK(has(screen, text));
    row = json_get(json_get(json, "events"), "rows");
    row = cJSON_GetArrayItem(row, cJSON_GetArraySize(row) - 1); /* the newest is the last */
    (void)snprintf(text, sizeof text, "%s %c", format_clock(json_i64(row, "t_us", 0), a),
                   json_string(row, "severity", "i")[0] == 'w' ? 'W' : 'I');
    CHECK(has(screen, text));
}

/* Every fifth second of the log: the shape holds, and numbers are those of the screen. */
static void pictures_are_those_of_the_screen(void)
{
    int64_t first = player.snap.run.first_us / 1000000 * 1000000 + 3000000;
    int seen = 0;
    player_size(&player, 200, 60, false);
    for (int64_t t = first; t <= player.snap.run.last_us; t += 5000000, seen++) {
        cJSON *json = snapshot_at(t);
        player_go(&player, t);
        char *screen = screen_text();
        CHECK(holds(json));
        CHECK_I64(json_i64(json, "t_us", 0), t);
        compare_header(json, screen, t);
        compare_engines(json, screen, t);
        if (json_i64(json_get(json, "in_flight"), "total", 99) <= 6) {
            compare_samples(json, screen, t);
        }
        compare_lists(json, screen);
        free(screen);
        cJSON_Delete(json);
    }
    CHECK(seen > 6);
}

/* A break of the shape is found: a member less, one more, another type, another word. */
static void breaks_are_found(void)
{
    cJSON *json = snapshot_at(player.snap.run.last_us);
    CHECK(holds(json));
    cJSON *header = cJSON_GetObjectItemCaseSensitive(json, "header");
    cJSON *engine = cJSON_GetArrayItem(
        cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(json, "engines"), "rows"),
        0);
    char why[512];
    cJSON *kept = cJSON_DetachItemFromObjectCaseSensitive(header, "samples_want");
    CHECK(!schema_holds(schema, schema, json, why));
    CHECK_STR(why, "/header: lacks samples_want");
    cJSON_AddItemToObject(header, "samples_want", kept);
    cJSON_AddNumberToObject(header, "samples", 3);
    CHECK(!schema_holds(schema, schema, json, why));
    CHECK_STR(why, "/header: has an unknown member samples");
    cJSON_DeleteItemFromObjectCaseSensitive(header, "samples");
    CHECK(schema_holds(schema, schema, json, why));
    kept = cJSON_DetachItemFromObjectCaseSensitive(engine, "running");
    cJSON_AddNumberToObject(engine, "running", 3);
    CHECK(!schema_holds(schema, schema, json, why));
    CHECK_STR(why, "/engines/rows/0/running: has another type than those allowed");
    cJSON_ReplaceItemInObjectCaseSensitive(engine, "running", kept);
    kept = cJSON_CreateString("FINE");
    cJSON_ReplaceItemInObjectCaseSensitive(engine, "state", kept);
    CHECK(!schema_holds(schema, schema, json, why));
    CHECK_STR(why, "/engines/rows/0/state: is none of the words allowed: FINE");
    cJSON_Delete(json);
}

/* Nothing at all, and everything at once: what is not known is null, and the shape holds. */
static void edges_hold(void)
{
    static Snapshot empty;
    Text text;
    text_init(&text, 1 << 20);
    empty = (Snapshot){.t_us = 1, .header = {.phase_median_s = -1, .policy_version = -1,
                                             .trainer_version = -1, .tail_p50_s = -1,
                                             .tail_p99_s = -1, .tail_max_s = -1}};
    EngineRow odd = {.engine = 1, .name = "a\x1b[2J\x9b", .state = (EngineState)77,
                     .policy_version = -1, .reported_version = -1, .running = val_of(NAN, 5),
                     .waiting = val_of(2, 0)};
    empty.engines = (EngineList){&odd, 1};
    snapshot_json(&empty, true, &text);
    cJSON *json = parse(text.p, text.n - 1);
    CHECK(holds(json));
    const cJSON *row = cJSON_GetArrayItem(json_get(json_get(json, "engines"), "rows"), 0);
    CHECK(cJSON_IsNull(json_get(row, "running")));
    CHECK(cJSON_IsNull(json_get(row, "policy_version")));
    CHECK(cJSON_IsNull(json_get(json_get(row, "waiting"), "seen_us")));
    CHECK_I64(json_i64(json_get(json, "in_flight"), "total", -1), 0);
    CHECK(strchr(text.p, '\x1b') == NULL); /* escaped: a terminal that shows it stays whole */
    cJSON_Delete(json);
    text_clear(&text);
    empty.header.samples_done = empty.header.samples_want = empty.header.samples_inflight = -1;
    empty.header.grain_s = 60;
    DamageRow hole = {.from_us = 5, .to_us = 0, .rows = 3};
    empty.damage = &hole;
    empty.damage_count = 1;
    empty.tail.trimmed = true; /* what was in flight then is not 0: it is not known any more */
    snapshot_json(&empty, false, &text);
    json = parse(text.p, text.n - 1);
    CHECK(holds(json));
    CHECK(cJSON_IsNull(json_get(json_get(json, "header"), "samples_inflight")));
    CHECK(cJSON_IsNull(json_get(json_get(json, "in_flight"), "total")));
    CHECK(cJSON_IsNull(json_get(json_get(json, "groups"), "complete")));
    CHECK_I64(json_i64(json_get(json, "header"), "grain_s", 0), 60);
    row = cJSON_GetArrayItem(json_get(json_get(json, "damage"), "rows"), 0);
    CHECK_I64(json_i64(row, "rows", 0), 3);
    CHECK(cJSON_IsNull(json_get(row, "to_us")));
    cJSON_Delete(json);
    text_free(&text);
}

static int count_lines(char *text, const cJSON *rule)
{
    int lines = 0;
    Str rest = str_from(text);
    Str line;
    char why[512] = "";
    while (str_split(&rest, '\n', &line) && line.n > 0) {
        cJSON *json = parse(line.p, line.n);
        lines++;
        CHECK(schema_holds(schema, rule, json, why));
        if (why[0]) {
            fprintf(stderr, "  line %d: %s\n", lines, why);
        }
        cJSON_Delete(json);
    }
    free(text);
    return lines;
}

static void lists_of_lines(void)
{
    const cJSON *event = json_get(json_get(schema, "$defs"), "event_line");
    char words[256];
    int status = 0;
    int all = (int)player.snap.events.total;
    CHECK(event != NULL && all > 20);
    (void)snprintf(words, sizeof words, "top --batch '%s' --json -n 3 -d 2 --at 1", player.path);
    CHECK_I64(count_lines(ask(words, &status), schema), 3);
    CHECK_I64(status, 0);
    (void)snprintf(words, sizeof words, "top --batch '%s' --json -d 40", player.path);
    CHECK_I64(count_lines(ask(words, &status), schema), 1); /* it begins at the end */
    (void)snprintf(words, sizeof words, "events '%s' --json", player.path);
    CHECK_I64(count_lines(ask(words, &status), event), 20);
    (void)snprintf(words, sizeof words, "events '%s' --json -n 100000 --follow", player.path);
    CHECK_I64(count_lines(ask(words, &status), event), all); /* the run is over: it ends */
    CHECK_I64(status, 0);
    (void)snprintf(words, sizeof words, "events '%s' --json --filter severity:warning -n 1",
                   player.path);
    CHECK_I64(count_lines(ask(words, &status), event), 1);
    (void)snprintf(words, sizeof words, "events '%s' --json --filter 'source:policy !v2' -n 2",
                   player.path);
    CHECK_I64(count_lines(ask(words, &status), event), 2);
    (void)snprintf(words, sizeof words, "events '%s' --json -n 0", player.path);
    CHECK_I64(count_lines(ask(words, &status), event), 0);
}

int main(void)
{
    Text text;
    Fault fault = {0};
    text_init(&text, 1 << 20);
    if (fs_read(ROLLTOP_SOURCE "/docs/snapshot.schema.json", &text, &fault) != ERR_OK ||
        !player_open(&player, "incident.db.zst")) {
        fault_print(&fault);
        return 1;
    }
    schema = parse(text.p, text.n);
    CHECK(schema != NULL);
    RUN(pictures_are_those_of_the_screen);
    RUN(breaks_are_found);
    RUN(edges_hold);
    player_go(&player, player.snap.run.last_us);
    RUN(lists_of_lines);
    cJSON_Delete(schema);
    text_free(&text);
    player_close(&player);
    return test_end();
}
