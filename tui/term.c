#include "tui/term.h"

#include "core/base/mem.h"
#include "tui/keymap.h"
#include "tui/term_out.h"

#include <curses.h>
#include <errno.h>
#include <fcntl.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <term.h>
#include <termios.h>
#include <unistd.h>
#include <wchar.h>

enum { RESTORE_MAX = 256, COPY_MAX = 75000, ESC_DELAY_MS = 25 };

struct Term {
    SCREEN *screen;
    TermOut *out;
    Surface *last; /* what the terminal shows; NULL: unknown */
    Cell *cells;
    int w, h;
    int colours;
    bool utf8, hung_up, test;
    TermMouse mouse;
    attr_t looks[ROLE_COUNT];
    int pairs[ROLE_COUNT];
    Style selected;
};

/* The one exception to "no globals": a handler can reach nothing else. */
static int signal_pipe[2] = {-1, -1};
static struct {
    char bytes[RESTORE_MAX];
    size_t n;
    struct termios modes;
    volatile sig_atomic_t armed;
} restore_record;

static const int fatal_signals[] = {SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGABRT, SIGSEGV, SIGBUS,
                                    SIGFPE, SIGILL};
static const int soft_signals[] = {SIGWINCH, SIGTSTP, SIGCONT};

/* Safe in a handler: write and tcsetattr only. The default action follows, so that the exit
 * status and a core file stay true. */
static void on_fatal(int number)
{
    if (restore_record.armed) {
        restore_record.armed = 0;
        ssize_t ignored = write(STDOUT_FILENO, restore_record.bytes, restore_record.n);
        (void)ignored;
        (void)tcsetattr(STDIN_FILENO, TCSANOW, &restore_record.modes);
    }
    (void)signal(number, SIG_DFL);
    (void)raise(number);
}

static void on_soft(int number)
{
    int saved = errno;
    char byte = number == SIGWINCH ? 'w' : number == SIGTSTP ? 'z' : 'c';
    ssize_t ignored = write(signal_pipe[1], &byte, 1); /* a full pipe holds enough of them */
    (void)ignored;
    errno = saved;
}

static void set_handler(int number, void (*handler)(int))
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    sigemptyset(&action.sa_mask);
    action.sa_flags = handler == on_soft ? SA_RESTART : (int)SA_NODEFER;
    (void)sigaction(number, &action, NULL);
}

static void add_restore(const char *capability)
{
    const char *text = tigetstr(capability);
    if (!text || text == (const char *)-1) {
        return;
    }
    for (size_t i = 0; text[i] && restore_record.n < RESTORE_MAX; i++) {
        if (text[i] == '$' && text[i + 1] == '<') { /* padding is for ttys of another age */
            while (text[i] && text[i] != '>') {
                i++;
            }
            if (!text[i]) {
                return;
            }
            continue;
        }
        restore_record.bytes[restore_record.n++] = text[i];
    }
}

static void add_bytes(const char *text)
{
    for (size_t i = 0; text[i] && restore_record.n < RESTORE_MAX; i++) {
        restore_record.bytes[restore_record.n++] = text[i];
    }
}

static void prepare_signals(const struct termios *before, bool mouse)
{
    restore_record.n = 0;
    restore_record.modes = *before;
    if (mouse) {
        add_bytes("\033[?1006l\033[?1000l");
    }
    add_restore("sgr0");
    add_restore("rmkx");
    add_restore("cnorm");
    add_restore("rmcup");
    restore_record.armed = 1;
    for (size_t i = 0; i < sizeof fatal_signals / sizeof fatal_signals[0]; i++) {
        set_handler(fatal_signals[i], on_fatal);
    }
    for (size_t i = 0; i < sizeof soft_signals / sizeof soft_signals[0]; i++) {
        set_handler(soft_signals[i], on_soft);
    }
    (void)signal(SIGPIPE, SIG_IGN);
}

bool term_utf8(void)
{
    (void)setlocale(LC_CTYPE, "");
    return strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
}

/* A terminal that says it shows true colour gets its own description with direct colour, where
 * terminfo has one: xterm-direct for xterm-256color. */
static SCREEN *open_direct(const char *name, FILE *out)
{
    const char *depth = getenv("COLORTERM");
    const char *no_color = getenv("NO_COLOR");
    const char *end = strstr(name, "-256color");
    char direct[64];
    bool wants = depth && (strcmp(depth, "truecolor") == 0 || strcmp(depth, "24bit") == 0) &&
                 !(no_color && no_color[0]);
    if (!wants || !end || end - name > 32) {
        return NULL;
    }
    (void)str_format(direct, sizeof direct, "%.*s-direct", (int)(end - name), name);
    return newterm(direct, out, stdin);
}

static SCREEN *open_screen(FILE *out, char *notice, size_t notice_size)
{
    static const char *const fallbacks[] = {"xterm-256color", "xterm", "vt100"};
    const char *name = getenv("TERM");
    SCREEN *screen = name && name[0] ? open_direct(name, out) : NULL;
    screen = !screen && name && name[0] ? newterm(NULL, out, stdin) : screen;
    for (size_t i = 0; !screen && i < sizeof fallbacks / sizeof fallbacks[0]; i++) {
        screen = newterm(fallbacks[i], out, stdin);
        if (screen && notice) {
            (void)str_format(notice, notice_size, "TERM=%s is not known here, using %s",
                             name ? name : "(unset)", fallbacks[i]);
        }
    }
    return screen;
}

static Err open_pipe(Fault *fault)
{
    if (pipe2(signal_pipe, O_NONBLOCK | O_CLOEXEC) != 0) {
        return fault_set_sys(fault, ERR_IO, errno, NULL, "the console cannot make a pipe");
    }
    return ERR_OK;
}

/* Presses and the wheel only: moving and dragging would wake us for nothing. */
static bool open_mouse(bool wanted)
{
    const char *key = tigetstr("kmous");
    if (!wanted || !key || key == (const char *)-1) {
        return false;
    }
    (void)mouseinterval(0);
    return mousemask(BUTTON1_PRESSED | BUTTON4_PRESSED | BUTTON5_PRESSED, NULL) != 0;
}

Err term_open(Term **out, bool mouse, char *notice, size_t notice_size, Fault *fault)
{
    struct termios before;
    *out = NULL;
    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO) ||
        tcgetattr(STDIN_FILENO, &before) != 0) {
        return fault_set(fault, ERR_UNSUPPORTED, "run it in a terminal, or use 'rolltop query'",
                         "the console needs a terminal on stdin and stdout");
    }
    const char *name = getenv("TERM");
    if (name && strcmp(name, "dumb") == 0) {
        return fault_set(fault, ERR_UNSUPPORTED, "use another terminal, or 'rolltop query'",
                         "TERM=dumb cannot place a cursor");
    }
    Err err = open_pipe(fault);
    if (err != ERR_OK) {
        return err;
    }
    bool utf8 = term_utf8();
    TermOut *terminal = term_out_open();
    SCREEN *screen = open_screen(term_out_file(terminal), notice, notice_size);
    if (!screen) {
        term_out_close(terminal);
        return fault_set(fault, ERR_UNSUPPORTED, "set TERM to a terminal that terminfo knows",
                         "no terminal description fits TERM=%s", name ? name : "(unset)");
    }
    Term *term = xcalloc(1, sizeof *term);
    term->screen = screen;
    term->out = terminal;
    term->utf8 = utf8;
    const char *test = getenv("ROLLTOP_TEST");
    term->test = test && strcmp(test, "1") == 0;
    (void)raw();
    (void)noecho();
    (void)nonl();
    (void)keypad(stdscr, TRUE);
    (void)nodelay(stdscr, TRUE);
    (void)leaveok(stdscr, FALSE);
    (void)set_escdelay(ESC_DELAY_MS);
    const char *no_color = getenv("NO_COLOR");
    if (!(no_color && no_color[0]) && has_colors() && start_color() == OK) {
        (void)use_default_colors();
        term->colours = COLORS;
    }
    prepare_signals(&before, open_mouse(mouse));
    getmaxyx(stdscr, term->h, term->w);
    *out = term;
    return ERR_OK;
}

void term_close(Term *term)
{
    if (!term) {
        return;
    }
    restore_record.armed = 0;
    (void)endwin();
    for (size_t i = 0; i < sizeof fatal_signals / sizeof fatal_signals[0]; i++) {
        set_handler(fatal_signals[i], SIG_DFL);
    }
    for (size_t i = 0; i < sizeof soft_signals / sizeof soft_signals[0]; i++) {
        set_handler(soft_signals[i], SIG_DFL);
    }
    delscreen(term->screen);
    term_out_close(term->out);
    (void)close(signal_pipe[0]);
    (void)close(signal_pipe[1]);
    surface_free(term->last);
    free(term);
}

int term_colours(const Term *term)
{
    return term->colours;
}

static attr_t attrs_of(unsigned style)
{
    attr_t attrs = 0;
    attrs |= style & STYLE_BOLD ? A_BOLD : 0;
    attrs |= style & STYLE_DIM ? A_DIM : 0;
    attrs |= style & STYLE_ITALIC ? A_ITALIC : 0;
    attrs |= style & STYLE_UNDERLINE ? A_UNDERLINE : 0;
    attrs |= style & STYLE_REVERSE ? A_REVERSE : 0;
    return attrs;
}

void term_theme(Term *term, const Theme *theme)
{
    for (int role = 0; role < ROLE_COUNT; role++) {
        Style style = theme_style(theme, (Role)role, term->colours);
        term->looks[role] = attrs_of(style.attrs);
        term->pairs[role] = 0;
        /* Default colours get a pair of their own too: pair 0 costs a reset of all attributes. */
        if (term->colours >= 8 &&
            init_extended_pair(role + 1, style.fg, style.bg) == OK) {
            term->pairs[role] = role + 1;
        }
    }
    term->selected = theme_style(theme, ROLE_SELECTED, term->colours);
    term_repaint(term);
}

void term_size(Term *term, int *w, int *h)
{
    *w = term->w;
    *h = term->h;
}

void term_repaint(Term *term)
{
    surface_free(term->last);
    term->last = NULL;
    (void)clearok(curscr, TRUE);
}

/* A character whose width the C library sees differently would shift the rest of the line. */
static void put_cell(const Term *term, int x, int y, const Cell *cell, int width)
{
    wchar_t text[2 + CELL_COMBINING];
    cchar_t cc;
    int n = 0;
    wchar_t code = (wchar_t)cell->code;
    attr_t attrs = term->looks[cell->role];
    bool odd = cell->code >= 0x7f && (!term->utf8 || wcwidth(code) != width);
    text[n++] = odd ? L'?' : code;
    for (int i = 0; i < CELL_COMBINING && cell->combining[i] && !odd; i++) {
        if (wcwidth((wchar_t)cell->combining[i]) == 0) {
            text[n++] = (wchar_t)cell->combining[i];
        }
    }
    text[n] = L'\0';
    if (cell->flags & CELL_SELECTED) {
        attrs = (attrs & ~(attr_t)(A_REVERSE | A_DIM)) | attrs_of(term->selected.attrs);
    }
    int pair = term->pairs[cell->role];
    if (setcchar(&cc, text, attrs, (short)pair, &pair) == OK) {
        (void)mvadd_wch(y, x, &cc);
        if (odd && width == 2) {
            (void)mvadd_wch(y, x + 1, &cc);
        }
    }
}

static bool same_row(const Surface *a, const Surface *b, int y)
{
    const Cell *left = surface_cell(a, 0, y);
    const Cell *right = surface_cell(b, 0, y);
    return memcmp(left, right, (size_t)surface_w(a) * sizeof *left) == 0;
}

/* The cells that changed; how many. */
static int put_cells(Term *term, const Surface *surface, bool fresh)
{
    int w = surface_w(surface);
    int h = surface_h(surface);
    int changed = 0;
    for (int y = 0; y < h && y < term->h; y++) {
        if (!fresh && same_row(surface, term->last, y)) {
            continue;
        }
        for (int x = 0; x < w && x < term->w; x++) {
            const Cell *cell = surface_cell(surface, x, y);
            const Cell *next = surface_cell(surface, x + 1, y);
            const Cell *last = fresh ? NULL : surface_cell(term->last, x, y);
            if (cell->code != 0 && !(last && memcmp(cell, last, sizeof *cell) == 0)) {
                put_cell(term, x, y, cell, next && next->code == 0 ? 2 : 1);
                changed++;
            }
        }
    }
    return changed;
}

void term_paint(Term *term, const Surface *surface)
{
    int w = surface_w(surface);
    int h = surface_h(surface);
    int cursor_x = 0;
    int cursor_y = 0;
    bool fresh = !term->last || surface_w(term->last) != w || surface_h(term->last) != h;
    if (fresh) {
        surface_free(term->last);
        term->last = surface_new(w, h, surface_ascii(surface));
        (void)erase();
    }
    int changed = put_cells(term, surface, fresh);
    surface_copy(term->last, surface);
    surface_cursor_get(surface, &cursor_x, &cursor_y);
    cursor_x = cursor_x < term->w ? cursor_x : 0;
    cursor_y = cursor_y < term->h ? cursor_y : 0;
    if (!fresh && changed == 0 && getcury(stdscr) == cursor_y && getcurx(stdscr) == cursor_x) {
        return;
    }
    (void)move(cursor_y, cursor_x);
    /* A large one may be cut short by a key, which counts on a slow link. */
    bool whole = !fresh && changed <= w * h / 8 && term_out_hold(term->out);
    (void)refresh();
    if (whole) {
        term_out_send(term->out);
    }
}

int term_input_fd(const Term *term)
{
    (void)term;
    return STDIN_FILENO;
}

int term_signal_fd(const Term *term)
{
    (void)term;
    return signal_pipe[0];
}

static void take_size(Term *term)
{
    struct winsize size;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 && size.ws_col > 0) {
        (void)resizeterm(size.ws_row, size.ws_col);
    }
    getmaxyx(stdscr, term->h, term->w);
    term_repaint(term);
}

TermEvent term_signal(Term *term)
{
    char byte = 0;
    if (read(signal_pipe[0], &byte, 1) != 1) {
        return TERM_NOTHING;
    }
    if (byte == 'z') {
        return TERM_SUSPEND;
    }
    take_size(term);
    return byte == 'w' ? TERM_RESIZED : TERM_CONTINUED;
}

static int translate(wint_t code)
{
    static const struct {
        int curses, key;
    } table[] = {
        {KEY_UP, TK_UP},         {KEY_DOWN, TK_DOWN},   {KEY_LEFT, TK_LEFT},
        {KEY_RIGHT, TK_RIGHT},   {KEY_PPAGE, TK_PGUP},  {KEY_NPAGE, TK_PGDN},
        {KEY_HOME, TK_HOME},     {KEY_END, TK_END},     {KEY_BTAB, TK_BACKTAB},
        {KEY_DC, TK_DELETE},
        {KEY_BACKSPACE, TK_BACKSPACE}, {KEY_ENTER, TK_ENTER},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if ((wint_t)table[i].curses == code) {
            return table[i].key;
        }
    }
    if (code >= (wint_t)KEY_F(1) && code <= (wint_t)KEY_F(12)) {
        return TK_F1 + (int)(code - (wint_t)KEY_F(1));
    }
    return TK_NONE;
}

static int take_mouse(Term *term)
{
    MEVENT event;
    if (getmouse(&event) != OK) {
        return TK_NONE;
    }
    term->mouse = (TermMouse){.x = event.x, .y = event.y,
                              .wheel = event.bstate & BUTTON4_PRESSED   ? -1
                                       : event.bstate & BUTTON5_PRESSED ? 1
                                                                        : 0};
    return TK_MOUSE;
}

TermMouse term_mouse(const Term *term)
{
    return term->mouse;
}

int term_key(Term *term)
{
    wint_t code = 0;
    struct pollfd waiting = {STDIN_FILENO, POLLIN, 0};
    for (int tries = 0; tries < 16; tries++) {
        int got = get_wch(&code);
        if (got == KEY_CODE_YES) {
            int key = code == KEY_MOUSE ? take_mouse(term) : translate(code);
            if (key != TK_NONE) {
                return key;
            }
        } else if (got == OK) {
            return code == 8 ? TK_BACKSPACE : code == 10 ? TK_ENTER : (int)code;
        } else {
            /* Readable and yet nothing to read: the terminal is gone. */
            bool ready = poll(&waiting, 1, 0) == 1;
            term->hung_up = ready && (waiting.revents & (POLLHUP | POLLERR)) != 0;
            return TK_NONE;
        }
    }
    return TK_NONE;
}

bool term_hung_up(const Term *term)
{
    return term->hung_up;
}

void term_flush_input(Term *term)
{
    (void)term;
    (void)flushinp();
}

void term_leave(Term *term)
{
    (void)term;
    (void)endwin();
    restore_record.armed = 0;
}

void term_return(Term *term)
{
    restore_record.armed = 1;
    (void)refresh();
    take_size(term);
}

void term_suspend(Term *term)
{
    term_leave(term);
    set_handler(SIGTSTP, SIG_DFL);
    (void)raise(SIGTSTP);
    set_handler(SIGTSTP, on_soft);
    term_return(term);
}

bool term_input_waits(const Term *term)
{
    struct pollfd waiting = {STDIN_FILENO, POLLIN, 0};
    (void)term;
    return poll(&waiting, 1, 0) > 0;
}

void term_ready(Term *term)
{
    if (term->test && !term_input_waits(term)) {
        (void)fflush(stdout);
        ssize_t ignored = write(STDOUT_FILENO, "\033]777;ready\a", 13);
        (void)ignored;
    }
}

void term_bell(Term *term)
{
    (void)term;
    (void)beep();
}

/* Printable ASCII only: the text may come from anywhere. */
void term_notify(Term *term, const char *text)
{
    char out[128] = "\033]9;";
    size_t n = strlen(out);
    (void)term;
    for (size_t i = 0; text[i] && n < sizeof out - 2; i++) {
        out[n++] = text[i] >= ' ' && text[i] < 127 ? text[i] : '?';
    }
    out[n++] = '\a';
    (void)fflush(stdout);
    ssize_t ignored = write(STDOUT_FILENO, out, n);
    (void)ignored;
}

bool term_copy(Term *term, Str text)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    Text out;
    (void)term;
    if (text.n > COPY_MAX) {
        return false;
    }
    text_init(&out, 2 * COPY_MAX);
    (void)text_add_c(&out, "\033]52;c;");
    for (size_t i = 0; i < text.n; i += 3) {
        uint32_t bits = (uint32_t)(unsigned char)text.p[i] << 16;
        bits |= i + 1 < text.n ? (uint32_t)(unsigned char)text.p[i + 1] << 8 : 0;
        bits |= i + 2 < text.n ? (uint32_t)(unsigned char)text.p[i + 2] : 0;
        (void)text_add_char(&out, digits[bits >> 18]);
        (void)text_add_char(&out, digits[bits >> 12 & 63]);
        (void)text_add_char(&out, i + 1 < text.n ? digits[bits >> 6 & 63] : '=');
        (void)text_add_char(&out, i + 2 < text.n ? digits[bits & 63] : '=');
    }
    (void)text_add_c(&out, "\a");
    (void)fflush(stdout);
    ssize_t ignored = write(STDOUT_FILENO, out.p, out.n);
    (void)ignored;
    text_free(&out);
    return true;
}
