/* Help and the pickers, drawn over the body. Help is the key table, nothing else. */
#include "tui/screen.h"

#include <string.h>

static Draw centre(const Draw *d, int w, int h)
{
    w = w > d->r.w ? d->r.w : w;
    h = h > d->r.h ? d->r.h : h;
    return draw_sub(d, (d->r.w - w) / 2, (d->r.h - h) / 2, w, h);
}

static void keys_text(const int keys[KEYS_PER_ACTION], char *buffer, size_t size)
{
    char name[KEY_NAME_MAX];
    size_t used = 0;
    buffer[0] = '\0';
    for (int i = 0; i < KEYS_PER_ACTION && keys[i]; i++) {
        keymap_key_name(keys[i], name, sizeof name);
        (void)str_format(buffer + used, size - used, "%s%s", used ? " " : "", name);
        used = strlen(buffer);
    }
}

void help_draw(const Draw *d, const Screen *screen)
{
    Action list[ACT_COUNT];
    const Model *m = screen->m;
    int count = help_list(m, list);
    Draw box = centre(d, d->r.w, d->r.h);
    char title[MODEL_INPUT_MAX + 32];
    (void)str_format(title, sizeof title, "HELP%s%s%s",
                     m->mode == MODE_HELP_FILTER || m->help_filter.n ? "  filter: " : "",
                     m->help_filter.text, m->mode == MODE_HELP_FILTER ? "_" : "");
    draw_clear(&box);
    Draw body = plain_frame(&box, title, "/ filter  Enter does it  Esc closes", true);
    int top = scroll_top(m->help_cursor, count, body.r.h - 1);
    for (int i = 0; i < body.r.h - 1 && top + i < count; i++) {
        const ActionInfo *info = keymap_info(list[top + i]);
        char keys[48];
        keys_text(m->config.keymap.keys[list[top + i]], keys, sizeof keys);
        bool group = top + i == 0 || keymap_info(list[top + i - 1])->group != info->group;
        bool locked = info->group == G_ACT && (!m->control || model_in_replay(m));
        draw_field(&body, 2, i, 18, false, ROLE_KEY, keys);
        int x = 21 + draw_text(&body, 21, i, locked ? ROLE_DIM : ROLE_TEXT, info->help);
        if (locked) {
            draw_text(&body, x, i, ROLE_DIM, model_in_replay(m) ? "  (locked: replay)"
                                                                : "  (needs --control)");
        }
        if (group && body.r.w > 96) {
            draw_text(&body, body.r.w - 20, i, ROLE_DIM, keymap_group_name(info->group));
        }
        if (top + i == m->help_cursor) {
            draw_flag_row(&body, i, CELL_SELECTED);
            surface_cursor(body.surface, body.r.x, body.r.y + i);
        }
    }
    draw_f(&body, 2, body.r.h - 1, ROLE_DIM, count == 0 ? "no key matches"
           : "%d of %d; ':' also takes arm 5m, disarm, stop, restart trainer, VERB all",
           count, (int)ACT_COUNT);
}

void sort_draw(const Draw *d, const Screen *screen)
{
    static const char *const names[PANE_COUNT] = {"ENGINES", "SAMPLES", "STEPS", "EVENTS",
                                                  "POLICIES", "STEPS", "COMMANDS"};
    Pane pane = screen->m->focus;
    char title[32];
    int count = sort_count(pane);
    Draw box = centre(d, 30, count + 3);
    draw_clear(&box);
    (void)str_format(title, sizeof title, "SORT %s BY", names[pane]);
    Draw body = plain_frame(&box, title, "", true);
    for (int i = 0; i < count; i++) {
        bool current = screen->m->sort[pane] == i;
        draw_f(&body, 2, i, ROLE_TEXT, "%s%s", sort_name(pane, i),
               !current ? "" : screen->m->inverted[pane] ? "  (now, inverted)" : "  (now)");
        if (i == screen->m->sort_cursor) {
            draw_flag_row(&body, i, CELL_SELECTED);
            surface_cursor(body.surface, body.r.x, body.r.y + i);
        }
    }
    draw_text(&body, 2, count, ROLE_DIM, "Enter  I inverts  Esc");
    box_close(&box);
}

/* As many as there is room for, with the chosen one among them. */
void moments_draw(const Draw *d, const Screen *screen)
{
    const Model *m = screen->m;
    char date[FORMAT_MAX];
    char age[FORMAT_MAX];
    char hint[64] = "Enter goes there  Esc";
    int room = d->r.h - 4 > 1 ? d->r.h - 4 : 1;
    int rows = m->bookmark_count < room ? m->bookmark_count : room;
    int first = m->bookmark_cursor - rows + 1 > 0 ? m->bookmark_cursor - rows + 1 : 0;
    Draw box = centre(d, 64, rows + 3);
    draw_clear(&box);
    Draw body = plain_frame(&box, "NAMED MOMENTS", "", true);
    for (int i = 0; i < rows; i++) {
        const Bookmark *mark = &m->bookmarks[first + i];
        int x = draw_f(&body, 2, i, ROLE_DIM, "%s  %8s ago  ", format_date(mark->t_us, date),
                       format_age(screen->now_us - mark->t_us, age));
        draw_text(&body, 2 + x, i, ROLE_TEXT, mark->name);
        if (first + i == m->bookmark_cursor) {
            draw_flag_row(&body, i, CELL_SELECTED);
            surface_cursor(body.surface, body.r.x, body.r.y + i);
        }
    }
    if (rows < m->bookmark_count) {
        (void)str_format(hint, sizeof hint, "%d of %d  Enter goes there  Esc",
                         m->bookmark_cursor + 1, m->bookmark_count);
    }
    draw_text(&body, 2, rows, ROLE_DIM, hint);
    box_close(&box);
}

void quit_draw(const Draw *d, const Screen *screen)
{
    Draw box = centre(d, 64, 7);
    draw_clear(&box);
    Draw body = plain_frame(&box, "LEAVE", "", true);
    draw_f(&body, 2, 0, ROLE_TEXT, "The run %s goes on without this terminal.",
           or_dash(screen->s->run.name));
    draw_text(&body, 2, 1, ROLE_TEXT, "Enter  leave it running; 'rolltop' attaches again");
    draw_text(&body, 2, 2, ROLE_TEXT, "Esc    stay here");
    int x = 2 + draw_text(&body, 2, 4, ROLE_CONFIRM, "type stop and Enter to end the run: ");
    x += draw_str(&body, x, 4, ROLE_INPUT, (Str){screen->m->input.text, screen->m->input.n});
    surface_cursor(body.surface, body.r.x + x, body.r.y + 4);
    draw_text(&body, x, 4, ROLE_INPUT, "_");
    box_close(&box);
}
