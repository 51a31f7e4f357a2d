/* Functions that the subcommands of `outrider` share: their main functions, exit statuses, parsing
 * of options.
 *
 * A command is one file (generate has a few): it reads its options, does its work and returns an
 * exit status. Results go to the standard output, everything else to the standard error. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/error.h"
#include "base/text/option_table.h"

enum client_status {
    CLIENT_OK = 0,
    CLIENT_FAILED = 1,
    CLIENT_USAGE = 2, /* the command line is wrong */
    CLIENT_INTERRUPTED = 130
};

#define CLIENT_ADDRESS_DEFAULT "127.0.0.1:7070"
/* The end of every --help. */
#define CLIENT_STATUS_DOC                                                                         \
    "Exit status: 0 done, 1 failure (one sentence on the standard error), 2 wrong command line, " \
    "130 interrupted."
#define CLIENT_ADDRESS_HELP "HOST:PORT or unix:PATH of the coordinator"
/* A row of an option table, of a struct that has a `connection`. */
#define CLIENT_ADDRESS_ROW(type)                                                \
    {                                                                           \
        "address", 'a', "ADDRESS", OPTION_FIELD(type, connection.address),      \
            .standard = CLIENT_ADDRESS_DEFAULT, .variable = "OUTRIDER_ADDRESS", \
            .help = CLIENT_ADDRESS_HELP                                         \
    }

/* argv[0] is the name for messages, such as "outrider generate". */
int serve_main(int argc, char **argv);
int model_list_main(int argc, char **argv);
int generate_main(int argc, char **argv);
int chat_main(int argc, char **argv);
int run_main(int argc, char **argv);
int demo_main(int argc, char **argv);
int score_main(int argc, char **argv);
int tokenize_main(int argc, char **argv);
int detokenize_main(int argc, char **argv);
int count_main(int argc, char **argv);
int export_main(int argc, char **argv);
int plan_main(int argc, char **argv);
int bench_main(int argc, char **argv);
int health_main(int argc, char **argv);
int describe_main(int argc, char **argv);
int jobs_main(int argc, char **argv);
int key_main(int argc, char **argv);
int link_main(int argc, char **argv);
int skip_main(int argc, char **argv);
int heads_main(int argc, char **argv);
int record_main(int argc, char **argv);
int replay_main(int argc, char **argv);
int datastore_main(int argc, char **argv);

/* A group of commands: the next argument names one of them, as in `outrider jobs list`. */
struct client_commands {
    const char *name, *help; /* "jobs"; what its --help prints */
    const char *list;        /* for messages: "submit, watch, list or cancel" */
    struct client_command {
        const char *name;
        int (*run)(int argc, char **argv);
    } commands[8]; /* up to the first without a name */
};
/* " (do you mean NAME?)" where a command, up to the first without a name, is called much like the
 * word; otherwise "". Returns hint. */
enum { CLIENT_HINT_BYTES = 48 };
const char *client_hint(char hint[CLIENT_HINT_BYTES], const char *word,
                        const struct client_command *commands);
#define CLIENT_COMMANDS_ARGS "COMMAND [OPTION...]"
/* Prints, for man or a shell (base/text/option_pages.h), what the help of commands says. */
int client_print_pages(char *name, const char *help, char *word);
int client_run_one(const struct client_commands *commands, int argc, char **argv);

/* Keeps the one argument of a command in *slot; refuses a second one. */
int client_take_argument(const char **slot, const char *argument, const char *what,
                         struct error *err);

/* Prints err as one line and returns the exit status. client_fail_local is for failures before the
 * server was asked: ERR_ARGUMENT then means that the command line is wrong. */
int client_fail_local(const struct error *err);
int client_fail(const struct error *err);

/* Prints the object on one line, as the only output of the command, and releases it. A NULL object
 * means a failed allocation. Errors: ERR_NO_MEMORY, ERR_IO. */
int client_print_json(json_t *object, struct error *err);
/* A JSON string of text[len], which may be any bytes. */
json_t *client_json_text(const char *text, size_t len);
/* null when the number is not known (NaN). */
json_t *client_json_number(double number);
/* Errors: ERR_IO when what was printed did not reach the standard output. */
int client_flush(struct error *err);
