/* libedit reads characters through read_character, so that a signal ends the waiting. On a terminal
 * Ctrl-C is a key and no signal, both while a line is edited and while an answer comes: an answer
 * can be stopped without the program. */
#include "client/chat/lines.h"

#include <errno.h>
#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>
#include <wchar.h>

#include "base/memory.h"

enum {
    LOOK_MS = 100,
    HISTORY_MAX = 1000,
    PATH_BYTES = 4096,
    READ_BYTES = 4096,
    KEY_STOP = 3,  /* Ctrl-C */
    KEY_TOGGLE = 7 /* Ctrl-G */
};

struct lines {
    struct lines_options options;
    EditLine *edit; /* NULL = the input is no terminal */
    History *history;
    const char *prompt;
    struct termios before; /* the terminal as it was */
    bool has_keys, is_cancelled, is_interrupted;
    struct buffer typed; /* ahead, while an answer came */
    unsigned char read[READ_BYTES];
    size_t n_read, at;
};

bool lines_are_edited(void)
{
    return isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1;
}

/* The next byte of the input: 1, or 0 at its end, or -1: a signal came. */
static int next_byte(struct lines *l, unsigned char *byte)
{
    struct error interrupted;
    while (l->at == l->n_read) {
        struct pollfd file = {.fd = STDIN_FILENO, .events = POLLIN};
        if (server_check_interrupt(l->options.server, &interrupted)) {
            l->is_interrupted = true;
            return -1;
        }
        if (poll(&file, 1, LOOK_MS) <= 0) continue;
        ssize_t n = read(STDIN_FILENO, l->read, sizeof l->read);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return 0;
        l->n_read = (size_t)n;
        l->at = 0;
    }
    *byte = l->read[l->at++];
    return 1;
}

/* ---- on a terminal ---- */

static struct lines *lines_of(EditLine *edit)
{
    void *data = NULL;
    el_get(edit, EL_CLIENTDATA, &data);
    return data;
}

/* For libedit: one character. Bytes that are no character are left out. */
static int read_character(EditLine *edit, wchar_t *character)
{
    struct lines *l = lines_of(edit);
    mbstate_t state = {0};
    unsigned char byte;
    int rc;
    while ((rc = next_byte(l, &byte)) > 0) {
        const char one = (char)byte;
        size_t n = mbrtowc(character, &one, 1, &state);
        if (n == (size_t)-1) state = (mbstate_t){0};
        if (n == 0) *character = 0;
        if (n <= 1) return 1;
    }
    return rc;
}

static char *prompt_of(EditLine *edit)
{
    static char prompt[16];
    snprintf(prompt, sizeof prompt, "%s", lines_of(edit)->prompt);
    return prompt;
}

static unsigned char cancel_line(EditLine *edit, int key)
{
    (void)key;
    lines_of(edit)->is_cancelled = true;
    return CC_NEWLINE;
}

static unsigned char tell_key(EditLine *edit, int key)
{
    struct lines *l = lines_of(edit);
    (void)key;
    fputs("\r\033[K", stdout);
    l->options.on_key(l->options.arg);
    fflush(stdout);
    return CC_REDISPLAY;
}

static int open_edit(struct lines *l, struct error *err)
{
    if (tcgetattr(STDIN_FILENO, &l->before)) {
        return error_set(err, ERR_IO, "cannot read how the terminal is set: %s", strerror(errno));
    }
    setlocale(LC_CTYPE, "");
    if (strcmp(nl_langinfo(CODESET), "UTF-8") != 0) setlocale(LC_CTYPE, "C.UTF-8");
    l->edit = el_init("outrider", stdin, stdout, stderr);
    l->history = history_init();
    if (!l->edit || !l->history) return error_set(err, ERR_NO_MEMORY, "no memory for lines");
    HistEvent event;
    history(l->history, &event, H_SETSIZE, HISTORY_MAX);
    history(l->history, &event, H_SETUNIQUE, 1);
    el_set(l->edit, EL_CLIENTDATA, l);
    el_set(l->edit, EL_PROMPT, prompt_of);
    el_set(l->edit, EL_EDITOR, "emacs");
    el_set(l->edit, EL_HIST, history, l->history);
    el_set(l->edit, EL_GETCFN, read_character);
    el_set(l->edit, EL_ADDFN, "cancel-line", "Forget the line", cancel_line);
    el_set(l->edit, EL_ADDFN, "tell-key", "Show or hide the colours of guesses", tell_key);
    el_set(l->edit, EL_BIND, "^R", "em-inc-search-prev", NULL);
    el_source(l->edit, NULL); /* ~/.editrc */
    el_set(l->edit, EL_SETTY, "-d", "-isig", NULL);
    el_set(l->edit, EL_BIND, "^C", "cancel-line", NULL);
    el_set(l->edit, EL_BIND, "^G", "tell-key", NULL);
    if (l->options.history) history(l->history, &event, H_LOAD, l->options.history);
    return 0;
}

/* Begins with what was typed while the answer came. */
static int read_edited(struct lines *l, struct buffer *line, enum line_end *end, struct error *err)
{
    int n = 0, rc = 0;
    if (l->typed.len) {
        TRY(buffer_append(&l->typed, "", 1, err));
        el_push(l->edit, (const char *)l->typed.data);
        l->typed.len = 0;
    }
    l->is_cancelled = false;
    el_resize(l->edit);
    const char *text = el_gets(l->edit, &n);
    if (l->is_interrupted) return error_set(err, ERR_CANCELLED, "interrupted");
    if (l->is_cancelled) {
        *end = LINE_CANCELLED;
        fputs("^C\n", stdout);
    } else if (text && n > 0) {
        *end = LINE_READ;
        TRY(buffer_append(line, text, (size_t)n - (text[n - 1] == '\n'), err));
    } else {
        *end = LINE_END;
        fputc('\n', stdout);
    }
    TRY(buffer_append(line, "", 1, err));
    line->len--;
out:
    return rc;
}

/* ---- of a pipe ---- */

static int read_plain(struct lines *l, struct buffer *line, enum line_end *end, struct error *err)
{
    unsigned char byte;
    int more, rc = 0;
    while ((more = next_byte(l, &byte)) > 0 && byte != '\n') {
        TRY(buffer_append(line, &byte, 1, err));
    }
    if (more < 0) return error_set(err, ERR_CANCELLED, "interrupted");
    *end = more || line->len ? LINE_READ : LINE_END;
    TRY(buffer_append(line, "", 1, err));
    line->len--;
out:
    return rc;
}

int lines_read(struct lines *l, const char *prompt, struct buffer *line, enum line_end *end,
               struct error *err)
{
    line->len = 0;
    l->prompt = prompt;
    return l->edit ? read_edited(l, line, end, err) : read_plain(l, line, end, err);
}

void lines_remember(struct lines *l, const char *text)
{
    HistEvent event;
    if (l->history && *text) history(l->history, &event, H_ENTER, text);
}

/* ---- keys ---- */

void lines_begin_keys(struct lines *l)
{
    if (!l->edit) return;
    struct termios keys = l->before;
    keys.c_lflag &= ~(tcflag_t)(ICANON | ECHO | ISIG);
    keys.c_cc[VMIN] = 1;
    keys.c_cc[VTIME] = 0;
    l->has_keys = tcsetattr(STDIN_FILENO, TCSADRAIN, &keys) == 0;
}

void lines_end_keys(struct lines *l)
{
    if (l->has_keys) tcsetattr(STDIN_FILENO, TCSADRAIN, &l->before);
    l->has_keys = false;
}

int lines_look(struct lines *l, int *n_toggles, struct error *err)
{
    struct pollfd file = {.fd = STDIN_FILENO, .events = POLLIN};
    unsigned char keys[READ_BYTES];
    int rc = 0;
    *n_toggles = 0;
    if (!l->has_keys || poll(&file, 1, 0) <= 0) return 0;
    ssize_t n = read(STDIN_FILENO, keys, sizeof keys);
    for (ssize_t i = 0; i < n; i++) {
        if (keys[i] == KEY_STOP) return error_set(err, ERR_CANCELLED, "stopped");
        *n_toggles += keys[i] == KEY_TOGGLE;
        if (keys[i] != KEY_TOGGLE) TRY(buffer_append(&l->typed, &keys[i], 1, err));
    }
out:
    return rc;
}

/* ---- from begin to end ---- */

bool lines_state_path(char *path, size_t size, const char *name)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    char folder[PATH_BYTES];
    bool is_own = state && state[0] == '/';
    if (!is_own && !(home && *home)) return false;
    int n = snprintf(folder, sizeof folder, "%s%s/outrider", is_own ? state : home,
                     is_own ? "" : "/.local/state");
    if (n < 0 || n >= PATH_BYTES) return false;
    for (char *at = strchr(folder + 1, '/'); at; at = strchr(at + 1, '/')) {
        *at = '\0';
        mkdir(folder, 0700);
        *at = '/';
    }
    if (mkdir(folder, 0700) && errno != EEXIST) return false;
    n = snprintf(path, size, "%s/%s", folder, name);
    return n > 0 && (size_t)n < size;
}

int lines_open(struct lines **lines, const struct lines_options *options, struct error *err)
{
    struct lines *l = NULL;
    int rc = 0;
    *lines = NULL;
    TRY(mem_array(&l, 1, sizeof *l, err));
    l->options = *options;
    if (lines_are_edited()) TRY(open_edit(l, err));
    *lines = l;
    l = NULL;
out:
    lines_close(l);
    return rc;
}

/* Another program may read the history meanwhile, so it is never there in part. */
static void save_history(struct lines *l)
{
    char path[PATH_BYTES];
    HistEvent event;
    mode_t mask = umask(077);
    snprintf(path, sizeof path, "%.4000s.%ld", l->options.history, (long)getpid());
    if (history(l->history, &event, H_SAVE, path) >= 0) rename(path, l->options.history);
    umask(mask);
}

void lines_close(struct lines *l)
{
    if (!l) return;
    lines_end_keys(l);
    if (l->history && l->options.history) save_history(l);
    if (l->edit) el_end(l->edit);
    if (l->history) history_end(l->history);
    buffer_free(&l->typed);
    free(l);
}
