/* Acting: who may, the three levels of confirmation, targets that change, notes, other consoles. */
#include "tests/tui/model_lib.h"

static void look_only(void)
{
    Model *model = fresh(false, false);
    (void)press(model, "R");
    CHECK_I64(model->mode, MODE_NORMAL);
    CHECK(strstr(model->message, "--control") != NULL);
    model_free(model);
    model = fresh(true, true);
    (void)press(model, "R");
    CHECK(strstr(model->message, "the past") != NULL);
    model_free(model);
    model = fresh(true, false);
    model->linked = false;
    (void)press(model, "R");
    CHECK(strstr(model->message, "does not answer") != NULL);
    model_free(model);
}

static void level_one(void)
{
    Model *model = fresh(true, false);
    (void)press(model, "/eng-06\n");
    (void)press(model, "P\n"); /* Enter means no */
    CHECK_I64(sent(model), 0);
    CHECK_I64(model->mode, MODE_NORMAL);
    (void)model_key(model, &s, 'P', now);
    (void)model_key(model, &s, 'y', now + 100000); /* inside the guard: thrown away */
    CHECK_I64(sent(model), 0);
    CHECK_I64(model->mode, MODE_CONFIRM);
    (void)press(model, "y");
    CHECK_I64(sent(model), 1);
    cJSON *json = NULL;
    Fault fault = {0};
    CHECK(json_parse(str_from(act_json(model)), 4096, "outbox", &json, &fault) == ERR_OK);
    CHECK_STR(json_string(json, "cmd", ""), "pause");
    CHECK_STR(json_string(json_get(json, "target"), "engine", ""), "eng-06");
    CHECK_STR(json_string(json, "user", ""), "ana");
    cJSON_Delete(json);
    model->outbox_count = 0;
    act_reply(model, 0, true, 77, "accepted", now);
    CHECK_I64(act_pending(model, 7)->state, PENDING_ACCEPTED);
    static CommandRow done[1] = {{77, 1, 2, "ana", "pause", "eng-06", "", "done", "paused"}};
    s.commands = (CommandList){done, 1, 1};
    fixture_engines[6].state = ENGINE_PAUSED;
    (void)model_observe(model, &s, now);
    CHECK_I64(act_pending(model, 7)->state, PENDING_OBSERVED);
    (void)press(model, "u"); /* undo asks, and takes the way back */
    CHECK_I64(model->mode, MODE_CONFIRM);
    CHECK_I64(model->confirm.verb, VERB_RESUME);
    (void)press(model, "y");
    CHECK_I64(sent(model), 1);
    CHECK(strstr(act_json(model), "\"resume\"") != NULL);
    model_free(model);
}

static void level_two(void)
{
    Model *model = fresh(true, false);
    (void)press(model, "R");
    CHECK_I64(model->confirm.level, 2);
    CHECK_STR(model->confirm.want, "03");
    (void)press(model, "04");
    CHECK_I64(model->mode, MODE_NORMAL);
    CHECK_I64(sent(model), 0);
    (void)press(model, "RRR"); /* key repeat means no */
    CHECK_I64(sent(model), 0);
    model->mode = MODE_NORMAL;
    (void)press(model, "R\tecc \"errors\"\t03");
    CHECK_I64(sent(model), 1);
    CHECK(strstr(act_json(model), "ecc \\\"errors\\\"") != NULL);
    model_free(model);
    model = fresh(true, false); /* the picture is old: the word says so */
    s.header.last_fact_us = FIXTURE_T - S(30);
    (void)press(model, "R");
    CHECK_STR(model->confirm.want, "blind03");
    model_free(model);
    model = fresh(true, false); /* several: their number */
    (void)press(model, "jj  jjjjR");
    CHECK_I64(model->confirm.level, 2);
    CHECK_STR(model->confirm.want, "2");
    (void)press(model, "2");
    CHECK_I64(sent(model), 2);
    model_free(model);
}

static void changed_target_starts_over(void)
{
    Model *model = fresh(true, false);
    (void)press(model, "R0");
    fixture_engines[3].state = ENGINE_UP;
    (void)model_observe(model, &s, now);
    CHECK_I64(model->mode, MODE_CONFIRM);
    CHECK_I64(model->confirm.typed.n, 0);
    CHECK(strstr(model->confirm.notice, "eng-03") != NULL);
    model_free(model);
}

static void check_note(const Model *model, int64_t alert, const char *words)
{
    cJSON *json = NULL;
    CHECK_I64(model->outbox_count, 1);
    CHECK_I64(model->outbox[0].pending, MODEL_NOTE);
    CHECK(json_parse(str_from(model->outbox[0].json), 4096, "outbox", &json, NULL) == ERR_OK);
    CHECK_STR(json_string(json, "cmd", ""), "note");
    CHECK_I64(json_i64(json_get(json, "target"), "alert", 0), alert);
    CHECK_STR(json_string(json, "reason", ""), words);
    cJSON_Delete(json);
}

/* What an operator noted, acknowledged or thought better of goes to the log. */
static void notes(void)
{
    char line[240];
    Model *model = fresh(true, false);
    CHECK(press(model, ":note eng-03 is \"loud\"\n") & MODEL_SEND);
    check_note(model, 0, "eng-03 is \"loud\"");
    model->outbox_count = 0;
    act_reply(model, MODEL_NOTE, false, 0, "the run is ending", now);
    CHECK(strstr(model->message, "not noted in the log: the run is ending") != NULL);
    CHECK(!(press(model, ":note\n") & MODEL_SEND));
    CHECK(strstr(model->message, "write ':note WORDS'") != NULL);
    memset(line, 'x', sizeof line - 1);
    line[sizeof line - 1] = '\0';
    CHECK(!(note_command(model, str_from(line), now) & MODEL_SEND));
    CHECK(strstr(model->message, "more than 199 bytes") != NULL);
    (void)press(model, "\x1b");
    CHECK(press(model, "a") & MODEL_SEND);
    (void)str_format(line, sizeof line, "acknowledged: %s of %s", s.alerts.rows[0].class_name,
                     snapshot_engine_name(&s, s.alerts.rows[0].engine));
    check_note(model, s.alerts.rows[0].incident, line);
    CHECK(strstr(model->message, "for every console") != NULL);
    model->outbox_count = 0;
    (void)press(model, "/eng-06\n");
    CHECK(press(model, "R\tecc errors\n\x1b") & MODEL_SEND);
    check_note(model, 0, "cancelled in the box: restart eng-06 (Esc), reason: ecc errors");
    CHECK(strstr(model->message, "restart cancelled: Esc; nothing was done") != NULL);
    model_free(model);
}

/* A console that looks only acknowledges for itself and says so; it sees what others noted. */
static void notes_of_others(void)
{
    Model *model = fresh(false, false);
    int64_t first = s.alerts.rows[0].incident;
    int64_t second = s.alerts.rows[1].incident;
    CHECK(!(press(model, "a") & MODEL_SEND));
    CHECK(strstr(model->message, "on this console only [RO]") != NULL);
    CHECK(model_acked(model, &s, first) && !model_acked(model, &s, second));
    CHECK(!(press(model, ":note hello\n") & MODEL_SEND));
    CHECK(strstr(model->message, "--control") != NULL);
    char target[32];
    (void)str_format(target, sizeof target, "alert %lld", (long long)second);
    CommandRow theirs = {9, now - S(60), now - S(60), "ben (pid 9)", "note", target,
                         "acknowledged: X", "done", "noted"};
    s.commands = (CommandList){&theirs, 1, 1};
    CHECK(model_acked(model, &s, second));
    model->control = true; /* it is noted already */
    CHECK(!(note_acknowledge(model, &s, &s.alerts.rows[1], now) & MODEL_SEND));
    CHECK(strstr(model->message, "acknowledged by ben (pid 9)") != NULL);
    CHECK_I64(model->outbox_count, 0);
    model_free(model);
}

static void others_block(void)
{
    Model *model = fresh(true, false);
    static CommandRow theirs[1] = {{9, 1, 2, "ben (pid 9)", "update", "eng-03", "", "accepted",
                                    ""}};
    s.commands = (CommandList){theirs, 1, 1};
    (void)press(model, "R");
    CHECK_I64(model->mode, MODE_NORMAL);
    CHECK(strstr(model->message, "ben") != NULL);
    model_free(model);
}

static void level_three(void)
{
    Model *model = fresh(true, false);
    (void)press(model, ":stop\n");
    CHECK_I64(model->mode, MODE_NORMAL);
    CHECK(strstr(model->message, ":arm") != NULL);
    (void)press(model, ":arm 5m\n:stop\n");
    CHECK_I64(model->mode, MODE_CONFIRM);
    CHECK_I64(model->confirm.level, 3);
    (void)press(model, "gsm8k-7b");
    CHECK_I64(sent(model), 0);
    CHECK(model->confirm.countdown_us > 0);
    (void)model_tick(model, &s, now + S(5));
    CHECK_I64(sent(model), 0);
    (void)press(model, "\x1b");
    CHECK_I64(model->mode, MODE_NORMAL);
    (void)model_tick(model, &s, now + S(60));
    CHECK_I64(sent(model), 0);
    (void)press(model, ":stop\ngsm8k-7b");
    (void)model_tick(model, &s, now + S(11));
    CHECK_I64(sent(model), 1);
    CHECK(strstr(act_json(model), "\"all\":true") != NULL);
    model_free(model);
}

/* All engines go back to a version: from the list of policies, or by its number. */
static void back_to_a_version(void)
{
    Model *model = fresh(true, false);
    (void)press(model, ":update v209\n"); /* it changes the whole run */
    CHECK_I64(model->mode, MODE_NORMAL);
    CHECK(strstr(model->message, ":arm") != NULL);
    (void)press(model, ":arm 5m\n:update v209\n");
    CHECK_I64(model->mode, MODE_CONFIRM);
    CHECK_I64(model->confirm.level, 3);
    CHECK_I64(model->confirm.version, 209);
    CHECK_STR(model->confirm.want, "gsm8k-7b");
    (void)press(model, "gsm8k-7b");
    CHECK_I64(sent(model), 0);
    (void)model_tick(model, &s, now + S(11));
    CHECK_I64(sent(model), 1);
    cJSON *json = NULL;
    CHECK(json_parse(str_from(act_json(model)), 4096, "outbox", &json, NULL) == ERR_OK);
    CHECK_STR(json_string(json, "cmd", ""), "update");
    CHECK_I64(json_i64(json, "version", 0), 209);
    CHECK(json_bool(json_get(json, "target"), "all", false));
    cJSON_Delete(json);
    model_free(model);

    model = fresh(true, false); /* U on the row of a policy */
    (void)press(model, ":arm 5m\n5jjjU");
    CHECK_I64(model->mode, MODE_CONFIRM);
    CHECK_I64(model->confirm.version, 209);
    Text words;
    text_init(&words, 4096);
    Screen screen = {.m = model, .s = &s, .now_us = now};
    confirm_words(&screen, &words);
    CHECK(strstr(text_c(&words), "update the whole run to v209, level 3") != NULL);
    CHECK(strstr(text_c(&words), "of step 4123, published") != NULL);
    CHECK(strstr(text_c(&words), "v211 serves now") != NULL);
    text_free(&words);
    (void)press(model, "\x1b");
    CHECK_I64(model->mode, MODE_NORMAL);
    CHECK_I64(sent(model), 0);
    model_free(model);

    static const char *const refused[][2] = {
        {":update v211\n", "v211: it serves"},
        {":update 210\n", "not kept any more; kept are v209"},
        {":update to 212\n", "it is on its way"},
        {":update v7\n", "no such version is in the log"}};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        model = fresh(true, false);
        (void)press(model, ":arm 5m\n");
        (void)press(model, refused[i][0]);
        CHECK_I64(model->mode, MODE_NORMAL);
        CHECK(strstr(model->message, refused[i][1]) != NULL);
        model_free(model);
    }
    model = fresh(false, false); /* a console that looks */
    (void)press(model, "5jjjU");
    CHECK_I64(model->mode, MODE_NORMAL);
    CHECK(strstr(model->message, "--control") != NULL);
    model_free(model);
}

static void refusals_say_why(void)
{
    Model *model = fresh(true, false);
    (void)press(model, "P");
    CHECK(strstr(model->message, "the engine is dead") != NULL);
    (void)press(model, "X");
    CHECK(strstr(model->message, "cursor on a sample") != NULL);
    (void)press(model, "2X");
    CHECK_I64(model->mode, MODE_CONFIRM);
    CHECK_STR(model->confirm.want, "00");
    act_reply(model, -1, false, 0, "x", now);
    model_free(model);
}

static void quitting(void)
{
    Model *model = fresh(true, false);
    CHECK_I64(press(model, "q") & MODEL_QUIT, 0);
    CHECK_I64(model->mode, MODE_QUIT_ASK);
    CHECK(press(model, "\n") & MODEL_QUIT);
    CHECK(!model->stop_run);
    model_free(model);
    model = fresh(true, false);
    CHECK(press(model, "qstop\n") & MODEL_QUIT);
    CHECK(model->stop_run);
    model_free(model);
    model = fresh(false, false);
    CHECK(press(model, "q") & MODEL_QUIT);
    CHECK(!model->stop_run);
    model_free(model);
}

int main(void)
{
    RUN(look_only);
    RUN(level_one);
    RUN(level_two);
    RUN(changed_target_starts_over);
    RUN(notes);
    RUN(notes_of_others);
    RUN(others_block);
    RUN(level_three);
    RUN(back_to_a_version);
    RUN(refusals_say_why);
    RUN(quitting);
    return test_end();
}
