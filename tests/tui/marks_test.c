/* Marks in every pane, and what takes the marked rows: actions, copies, exports, comparisons. */
#include "core/base/fs.h"
#include "tests/tui/model_lib.h"
#include "tui/aside.h"
#include "tui/rows.h"

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

static void marks(void)
{
    Model *model = fresh(false, false);
    (void)press(model, " jjv");
    CHECK_I64(mark_count(model, PANE_ENGINES), 4); /* the first row, and from it to the fourth */
    (void)press(model, "*");
    CHECK_I64(mark_count(model, PANE_ENGINES), 0);
    (void)press(model, "*");
    CHECK_I64(mark_count(model, PANE_ENGINES), 16);
    (void)press(model, "\x1b");
    CHECK_I64(mark_count(model, PANE_ENGINES), 0);
    model_free(model);
}

/* Samples are marked like engines; all marked ones are aborted by one box of level 2. */
static void marked_samples(void)
{
    Model *model = fresh(true, false);
    int64_t first = s.tail.rows[0].sample;
    (void)press(model, "2 jv");
    CHECK_I64(mark_count(model, PANE_TAIL), 3);
    CHECK(mark_has(model, PANE_TAIL, first));
    CHECK_I64(mark_count(model, PANE_ENGINES), 0);
    CHECK(on_screen(model, 80, 24, "marked samples: 3"));
    (void)press(model, "X");
    CHECK_I64(model->mode, MODE_CONFIRM);
    CHECK_I64(model->confirm.level, 2);
    CHECK_STR(model->confirm.want, "3");
    CHECK(on_screen(model, 80, 24, "abort the marked samples"));
    (void)press(model, "3");
    CHECK_I64(sent(model), 3);
    cJSON *json = NULL;
    CHECK(json_parse(str_from(act_json(model)), 4096, "outbox", &json, NULL) == ERR_OK);
    CHECK_STR(json_string(json, "cmd", ""), "abort");
    CHECK_I64(json_i64(json_get(json, "target"), "sample", 0), first);
    cJSON_Delete(json);
    memmove(s.tail.rows, s.tail.rows + 1, (s.tail.count - 1) * sizeof s.tail.rows[0]);
    s.tail.count--; /* it is no longer in flight: its mark goes */
    (void)model_observe(model, &s, now);
    CHECK_I64(mark_count(model, PANE_TAIL), 2);
    (void)press(model, "\x1b");
    CHECK_I64(mark_count(model, PANE_TAIL), 0);
    (void)press(model, "*");
    CHECK_I64(mark_count(model, PANE_TAIL), model->shown_count[PANE_TAIL]);
    (void)press(model, "*");
    CHECK_I64(mark_count(model, PANE_TAIL), 0);
    model_free(model);
}

/* Every pane marks rows; timeline and learning show the same ones. */
static void marks_everywhere(void)
{
    Model *model = fresh(false, false);
    static const struct {
        const char *keys;
        Pane pane;
    } cases[] = {{"3 ", PANE_STEPS}, {"4 ", PANE_EVENTS}, {"5 ", PANE_POLICIES},
                 {"7 ", PANE_COMMANDS}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        (void)press(model, cases[i].keys);
        CHECK_I64(mark_count(model, cases[i].pane), 1);
    }
    CHECK_I64(mark_count(model, PANE_LEARNING), 1);
    (void)press(model, "6j ");
    CHECK_I64(mark_count(model, PANE_STEPS), 2);
    CHECK(on_screen(model, 200, 60, "marked steps: 2"));
    CHECK(on_screen(model, 200, 60, "marked policies: 1"));
    (void)press(model, "4*");
    CHECK_I64(mark_count(model, PANE_EVENTS), 0); /* one was marked: none is now */
    (void)press(model, "*");
    CHECK_I64(mark_count(model, PANE_EVENTS), model->shown_count[PANE_EVENTS]);
    (void)press(model, "\x1b");
    CHECK_I64(mark_count(model, PANE_EVENTS) + mark_count(model, PANE_STEPS), 0);
    model_free(model);
}

/* What is copied: whole rows, the marked ones, nothing that a terminal or a shell would obey. */
static void rows_as_text(void)
{
    Model *model = fresh(false, false);
    Text text;
    text_init(&text, 1 << 20);
    (void)press(model, "5  ");
    CHECK_I64(rows_chosen(model, &s, false, &text), 2);
    CHECK(strncmp(text_c(&text), "v212\tpublished\t4126\t2026-03-14 10:4", 35) == 0);
    CHECK(strstr(text_c(&text), "\nv211\tcommitted\t") != NULL);
    text_clear(&text);
    (void)press(model, "\x1b" "4k");
    CHECK_I64(rows_chosen(model, &s, false, &text), 1);
    CHECK_STR(text_c(&text), "2026-03-14 10:42:04Z\twarning\trollout\t7 samples past p99, oldest "
                             "184 s on eng-04\n");
    text_clear(&text);
    CHECK_I64(rows_chosen(model, &s, true, &text), model->shown_count[PANE_EVENTS]);
    fixture_engines[3].reason = "a\tb\n\x1b]52;c;\x07" "c";
    for (int pane = 0; pane < PANE_COUNT; pane++) {
        text_clear(&text);
        rows_header((Pane)pane, &text);
        size_t fields = 1;
        for (size_t i = 0; i < text.n; i++) {
            fields += text.p[i] == '\t' ? 1 : 0;
        }
        for (int i = 0; i < model_row_count(&s, (Pane)pane); i++) {
            text_clear(&text);
            rows_line(&s, (Pane)pane, i, &text);
            size_t tabs = 1;
            for (size_t k = 0; k < text.n; k++) {
                tabs += text.p[k] == '\t' ? 1 : 0;
                CHECK((unsigned char)text.p[k] >= 0x20 || text.p[k] == '\t' ||
                      (text.p[k] == '\n' && k + 1 == text.n));
            }
            CHECK_I64(tabs, fields);
        }
    }
    text_free(&text);
    model_free(model);
}

static void compares(void)
{
    Model *model = fresh(false, false);
    (void)press(model, "=");
    CHECK_I64(model->depth, 0); /* one engine alone */
    CHECK(on_screen(model, 80, 24, "mark one engine"));
    (void)press(model, " =");
    CHECK(on_screen(model, 80, 24, "COMPARE ENGINES"));
    (void)press(model, "\x1b\x1b" "5=");
    CHECK_I64(model->depth, 1);
    CHECK_I64(model->detail[0].id, 211); /* the cursor and the one before it, the older first */
    CHECK_I64(model->detail[0].other, 212);
    CHECK(on_screen(model, 80, 24, "rolltop policy diff 211 212 --log"));
    (void)press(model, "\x1b" "j=");
    CHECK(on_screen(model, 80, 24, "the weights of v210 are no longer kept"));
    CHECK(!on_screen(model, 80, 24, "rolltop policy diff"));
    (void)press(model, "\x1b" "*=");
    CHECK_I64(model->depth, 0);
    CHECK(on_screen(model, 80, 24, "two rows are compared"));
    (void)press(model, "\x1b" "3=");
    CHECK_I64(model->detail[0].kind, DETAIL_COMPARE);
    CHECK(on_screen(model, 80, 24, "COMPARE STEPS"));
    (void)press(model, "\x1b" "4=");
    CHECK_I64(model->depth, 0);
    model_free(model);
}

static void exports(void)
{
    Model *model = fresh(false, false);
    CHECK((press(model, "4:export\n") & MODEL_EXPORT) == 0);
    CHECK(on_screen(model, 80, 24, "write ':export FILE'"));
    CHECK((press(model, ":export /tmp/rows.tsv\n") & MODEL_EXPORT) != 0);
    CHECK_STR(model->export_path, "/tmp/rows.tsv");
    model_free(model);
}

/* A file that cannot be written whole is not left behind: the same name serves again. */
static void exports_whole(void)
{
    Model *model = fresh(false, false);
    char folder[] = "/tmp/rolltop-export-XXXXXX";
    struct rlimit usual;
    Fault fault = {0};
    int rows = 0;
    CHECK(mkdtemp(folder) != NULL && getrlimit(RLIMIT_FSIZE, &usual) == 0);
    (void)str_format(model->export_path, sizeof model->export_path, "%s/rows.tsv", folder);
    struct rlimit small = {.rlim_cur = 10, .rlim_max = usual.rlim_max};
    (void)signal(SIGXFSZ, SIG_IGN);
    CHECK(setrlimit(RLIMIT_FSIZE, &small) == 0);
    Err err = export_rows(model, &s, &rows, &fault);
    CHECK(setrlimit(RLIMIT_FSIZE, &usual) == 0);
    CHECK_I64(err, ERR_IO);
    CHECK(strstr(fault.sentence, "rows.tsv: File too large") != NULL);
    CHECK(!fs_exists(model->export_path));
    CHECK_I64(export_rows(model, &s, &rows, NULL), ERR_OK);
    CHECK_I64(rows, 16);
    CHECK_I64(export_rows(model, &s, &rows, NULL), ERR_EXISTS);
    CHECK(fs_remove_tree(folder, NULL) == ERR_OK);
    model_free(model);
}

int main(void)
{
    RUN(marks);
    RUN(marked_samples);
    RUN(marks_everywhere);
    RUN(rows_as_text);
    RUN(compares);
    RUN(exports);
    RUN(exports_whole);
    return test_end();
}
