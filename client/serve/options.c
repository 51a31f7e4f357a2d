/* Reads own options, and passes others on. A value is checked by the program that it is passed on
 * to (--check), so that it has one reader. */
#include "client/serve/options.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/text/option_pages.h"
#include "base/text/option_table.h"
#include "client/client.h"
#include "client/serve/helper.h"
#include "config/config_file.h"

enum {
    PASSED_MAX = 192,
    NAME_BYTES = 64,
    LIST_BYTES = 65536,
    WORKER = 1, /* as bits: to whom an option goes */
    COORDINATOR = 2
};

/* An option that is passed on. */
struct passed {
    char name[NAME_BYTES], own_name[NAME_BYTES]; /* there and here */
    char value[NAME_BYTES];                      /* what the help calls it */
    unsigned to;
    struct serve_options *options;
};

/* An option as its program lists it; letter and value may be "". */
struct option_line {
    const char *name, *letter, *value;
};

struct lists {
    struct serve_options *options;
    struct passed passed[PASSED_MAX];
    struct option_row rows[PASSED_MAX + 8];
    int n, n_rows;
};

/* ---- words ---- */

int serve_words_add(struct serve_words *words, struct error *err, const char *format, ...)
{
    va_list arguments, copy;
    va_start(arguments, format);
    va_copy(copy, arguments);
    int len = vsnprintf(NULL, 0, format, copy);
    va_end(copy);
    char *word = words->n < SERVE_WORDS_MAX ? malloc((size_t)len + 1) : NULL;
    if (word) vsnprintf(word, (size_t)len + 1, format, arguments);
    va_end(arguments);
    if (!word && words->n < SERVE_WORDS_MAX) return error_set(err, ERR_NO_MEMORY, "no memory");
    if (!word) return error_set(err, ERR_ARGUMENT, "more than %d options", SERVE_WORDS_MAX);
    words->words[words->n++] = word;
    return 0;
}

const char *serve_words_value(const struct serve_words *words, const char *name)
{
    size_t len = strlen(name);
    for (int i = words->n - 1; i >= 0; i--) {
        const char *word = words->words[i];
        if (strncmp(word, "--", 2) != 0 || strncmp(word + 2, name, len) != 0) continue;
        if (word[2 + len] == '=') return word + 3 + len;
    }
    return NULL;
}

/* ---- passing on ---- */

/* The value of OUTRIDER_PROGRAM_NAME; NULL: it is not set, or empty. */
static const char *environment_value(const char *program, const char *name)
{
    char variable[2 * NAME_BYTES];
    snprintf(variable, sizeof variable, "OUTRIDER_%s_%s", program, name);
    for (char *at = variable; *at; at++)
        *at = *at == '-' ? '_' : (char)toupper((unsigned char)*at);
    const char *value = getenv(variable);
    return value && *value ? value : NULL;
}

const char *serve_value_of_worker(const struct serve_options *options, const char *name)
{
    const char *value = serve_words_value(&options->for_worker, name);
    return value ? value : environment_value("WORKER", name);
}

const char *serve_value_of_coordinator(const struct serve_options *options, const char *name)
{
    const char *value = serve_words_value(&options->for_coordinator, name);
    return value ? value : environment_value("COORDINATOR", name);
}

static int pass_one(struct serve_words *words, const struct passed *passed, const char *text,
                    struct error *err)
{
    return text ? serve_words_add(words, err, "--%s=%s", passed->name, text)
                : serve_words_add(words, err, "--%s", passed->name);
}

/* A flag has the values on and off in the environment and in files. A value of a file is not passed
 * on where the environment has one for the program, which reads it by itself. option is then
 * "FILE, line 3: NAME", with a blank as no other option has. */
static int read_passed(void *field, const char *option, const char *text, struct error *err)
{
    const struct passed *passed = field;
    struct serve_options *options = passed->options;
    bool is_flag = !passed->value[0], is_of_file = strchr(option, ' ') != NULL;
    int rc = 0;
    if (is_flag && text) {
        if (strcmp(text, "off") == 0) return 0;
        if (strcmp(text, "on") != 0) {
            return error_set(err, ERR_ARGUMENT, "%s: '%.60s' is not on or off", option, text);
        }
        text = NULL;
    }
    if (passed->to & WORKER && !(is_of_file && environment_value("WORKER", passed->name))) {
        TRY(pass_one(&options->for_worker, passed, text, err));
    }
    if (passed->to & COORDINATOR &&
        !(is_of_file && environment_value("COORDINATOR", passed->name))) {
        TRY(pass_one(&options->for_coordinator, passed, text, err));
    }
out:
    return rc;
}

static bool is_among(const char *name, const char *const *names)
{
    for (; *names; names++) {
        if (strcmp(name, *names) == 0) return true;
    }
    return false;
}

/* Options that `outrider serve` gives itself. */
static bool is_reserved(const char *name, unsigned to)
{
    static const char *const of_both[] = {"check", "config", "log-level", NULL};
    static const char *const of_worker[] = {"model", "listen",    "ranks",   "rank",         "lead",
                                            "lws",   "same-port", "network", "join-timeout", NULL};
    static const char *const of_coordinator[] = {"target", "http", NULL};
    return is_among(name, of_both) || is_among(name, to == WORKER ? of_worker : of_coordinator);
}

/* Says to whom an option goes that both have. Those about where a model runs are for the target,
 * and those about who may call are for the coordinator, because the workers listen at a socket of
 * this user. */
static unsigned receivers(const char *name)
{
    static const char *const worker[] = {"device",  "weights", "no-graphs", "all-reduce",
                                         "threads", "pin",     NULL};
    static const char *const coordinator[] = {"listen",          "head",    "metrics",
                                              "tls-certificate", "tls-key", "tls-client-ca",
                                              "insecure",        NULL};
    if (is_among(name, worker)) return WORKER;
    return is_among(name, coordinator) ? COORDINATOR : WORKER | COORDINATOR;
}

static struct passed *find_passed(struct lists *lists, const char *own_name)
{
    for (int i = 0; i < lists->n; i++) {
        if (strcmp(lists->passed[i].own_name, own_name) == 0) return &lists->passed[i];
    }
    return NULL;
}

/* Adds a row unless there is one of its name. prefix: "" or "worker-". help: NULL: the help of the
 * program that has the option says it. */
static void add_row(struct lists *lists, const char *prefix, const struct option_line *line,
                    unsigned to, const char *help)
{
    char own_name[NAME_BYTES];
    snprintf(own_name, sizeof own_name, "%s%s", prefix, line->name);
    if (lists->n == PASSED_MAX || find_passed(lists, own_name)) return;
    struct passed *passed = &lists->passed[lists->n];
    *passed = (struct passed){.to = to, .options = lists->options};
    snprintf(passed->name, sizeof passed->name, "%s", line->name);
    snprintf(passed->own_name, sizeof passed->own_name, "%s", own_name);
    snprintf(passed->value, sizeof passed->value, "%s", line->value);
    lists->rows[lists->n_rows++] =
        (struct option_row){.name = passed->own_name,
                            .letter = *prefix ? 0 : line->letter[0],
                            .value = passed->value[0] ? passed->value : NULL,
                            .read = read_passed,
                            .field = (size_t)((char *)passed - (char *)lists->passed),
                            .is_unlisted = !help,
                            .help = help ? help : "passed on"};
    lists->n++;
}

/* Adds the few that most callers need, with a help of their own; they are the coordinator's. */
static void add_listed(struct lists *lists)
{
    static const struct {
        struct option_line line;
        const char *help;
    } listed[] = {
        {{"draft", "d", "MODEL"}, "draft model: a folder, a GGUF file or ORG/NAME; default none"},
        {{"head", "", "FOLDER"}, "a head of the target that drafts: a folder or ORG/NAME"},
        {{"served-name", "", "NAME"}, "what clients are told that the model is called"},
        {{"listen", "l", "ADDRESS"}, "HOST:PORT or unix:PATH of gRPC; default 127.0.0.1:7070"},
        {{"draft-tokens", "K", "K"},
         "guesses per round, at most; default what is measured to be fastest"},
    };
    for (size_t i = 0; i < sizeof listed / sizeof *listed; i++)
        add_row(lists, "", &listed[i].line, COORDINATOR, listed[i].help);
}

/* Cuts the next field off a line of fields with tabs between them. NULL: there is none. */
static char *next_field(char **line)
{
    char *field = *line, *tab = field ? strchr(field, '\t') : NULL;
    if (tab) *tab = '\0';
    *line = tab ? tab + 1 : NULL;
    return field;
}

/* Reads the table of a program's options (base/text/option_pages.h). */
static void add_list(struct lists *lists, char *text, unsigned to, const char *prefix)
{
    char *rest = NULL;
    for (char *row = strtok_r(text, "\n", &rest); row; row = strtok_r(NULL, "\n", &rest)) {
        const char *sort = next_field(&row), *name = next_field(&row), *letter = next_field(&row),
                   *value = next_field(&row);
        if (!value || strcmp(sort, "option") != 0) continue;
        name += strlen("--");
        const struct option_line line = {name, letter + 1, strcmp(value, "-") == 0 ? "" : value};
        if (is_reserved(name, to)) continue;
        struct passed *there = find_passed(lists, name);
        if (there && there->to != to) there->to = receivers(name);
        add_row(lists, "", &line, to, NULL);
        add_row(lists, prefix, &line, to, NULL);
    }
}

/* ---- own options ---- */

#define FIELD(member) OPTION_FIELD(struct serve_options, member)

static const char *const levels[] = {"debug", "info", "warn", "error"}; /* in the enum's order */

static const struct option_row rows[] = {
    OPTION_GROUP("Serving", "--host=0.0.0.0 --port=9000 --keys=FILE"),
    {"host", 0, "HOST", FIELD(host), .standard = "127.0.0.1",
     .help = "name or address where HTTP is served; other machines reach 0.0.0.0, which wants "
             "--keys or --insecure"},
    {"port", 0, "PORT", FIELD(port), .least = 0, .most = 65535, .standard_int = 8000,
     .variable = "OUTRIDER_SERVE_HTTP_PORT",
     .help = "of HTTP: OpenAI's API, the page and the metrics; 0 = one that is free"},
    OPTION_GROUP("Models", "--draft=FOLDER -T 2"),
    {"model", 'm', "MODEL", FIELD(model),
     .help = "the same as MODEL, for files of options and the environment"},
    {"ranks", 'T', "N", FIELD(n_ranks), .least = 1, .most = RANKS_MAX, .standard_int = 1,
     .help = "processes that share the model; more than one need mpirun"},
    OPTION_GROUP("Log", "--log=FILE"),
    {"log", 0, "FILE", FIELD(log),
     .help = "append the log of all programs to FILE; - = print it on the standard error; default "
             "none, but warnings are printed"},
    {"log-level", 0, "LEVEL", FIELD(log_level), .words = levels, .n_words = 4, .standard = "info",
     .expected = "debug, info, warn or error", .help = "of --log: debug, info, warn, error"},
    OPTION_GROUP("Before a start", "--check"),
    {"check", 0, NULL, FIELD(is_check),
     .help = "start nothing: see whether model and options can be, and print how many ranks can "
             "share the model"},
    {0},
};

static const char doc[] =
    "Serves a model until Ctrl-C: workers and coordinator, which are started again when they "
    "die.\v"
    "MODEL is a folder, a GGUF file, or ORG/NAME in the Hugging Face cache (`outrider list`). All "
    "other options of outrider-worker and outrider-coordinator are passed on by their own names, "
    "such as --kv-tokens=65536. Of those that both have, --device, --weights, --threads, --pin, "
    "--no-graphs and --all-reduce are the workers', --listen, --metrics, --insecure and --tls-... "
    "the coordinator's, and others go to both; --worker-NAME and --coordinator-NAME are for one "
    "of them.\n\n"
    "Exit status: 0 ended by a signal, 1 failure, 2 wrong command line, 78 no start can succeed, "
    "because a model or a file is missing or is not supported.";

static int take_model(void *fields, char *word, struct error *err)
{
    struct serve_options *options = fields;
    return client_take_argument(&options->model, word, "MODEL; --draft names a draft model", err);
}

static int read_list(struct lists *lists, char *program, unsigned to, const char *prefix,
                     struct error *err)
{
    static char table[] = "--" OPTION_PAGES_OPTION "=table";
    static char text[LIST_BYTES];
    char *const words[] = {program, table, NULL};
    int status, rc = 0;
    TRY(helper_run(words, text, sizeof text, &status, err));
    if (status) {
        rc = error_set(err, ERR_UNSUPPORTED, "%.200s is of another version than this program",
                       program);
        goto out;
    }
    add_list(lists, text, to, prefix);
out:
    return rc;
}

static int read_lists(struct lists *lists, struct error *err)
{
    struct serve_options *o = lists->options;
    int rc = 0;
    TRY(helper_find(o->worker, sizeof o->worker, "outrider-worker", err));
    TRY(helper_find(o->coordinator, sizeof o->coordinator, "outrider-coordinator", err));
    TRY(helper_find(o->group, sizeof o->group, "outrider-group", err));
    TRY(read_list(lists, o->worker, WORKER, "worker-", err));
    TRY(read_list(lists, o->coordinator, COORDINATOR, "coordinator-", err));
out:
    return rc;
}

/* The help can be read where the other programs are missing. */
int serve_options_read(struct serve_options *options, int argc, char **argv, struct error *err)
{
    static struct lists lists;
    struct error missing;
    lists = (struct lists){.options = options};
    lists.rows[lists.n_rows++] = (struct option_row)OPTION_GROUP("Models", "--draft=FOLDER -T 2");
    add_listed(&lists);
    int rc_lists = read_lists(&lists, &missing);
    const struct option_program program = {
        .variables = "OUTRIDER_SERVE_",
        .example = "outrider serve Qwen/Qwen3-8B --draft Qwen/Qwen3-0.6B --port 9000",
        .read_file = config_file_read,
        .name = "serve",
        .doc = doc,
        .args_doc = "MODEL",
        .parts = {{rows, options, NULL}, {lists.rows, lists.passed, NULL}},
        .take = take_model};
    int rc = option_program_parse(&program, argc, argv, err);
    if (rc_lists) *err = missing;
    if (rc || rc_lists) return rc_lists ? rc_lists : rc;
    if (options->model) return 0;
    return error_set(err, ERR_ARGUMENT,
                     "no model: name a folder, a GGUF file or ORG/NAME; 'outrider list' shows "
                     "those of the Hugging Face cache");
}
