/* outrider, the command-line client: finds the command and runs it. Each command is a file. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "client/client.h"

const char *argp_program_version = "outrider " OUTRIDER_VERSION;

enum { NAME_BYTES = 64 };

static const struct client_command commands[] = {
    {"generate", generate_main},   {"score", score_main},
    {"tokenize", tokenize_main},   {"detokenize", detokenize_main},
    {"export", export_main},       {"health", health_main},
    {"describe", describe_main},   {"plan", plan_main},
    {"count", count_main},         {"bench", bench_main},
    {"jobs", jobs_main},           {"key", key_main},
    {"link", link_main},           {"replay", replay_main},
    {"datastore", datastore_main}, {"skip", skip_main},
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static const char doc[] =
    "Client of an Outrider cluster.\v"
    "Commands:\n"
    "  generate    continue a prompt, token by token as it comes\n"
    "  score       log-probabilities and perplexity of a text\n"
    "  tokenize    token ids of a text; local, needs no server\n"
    "  detokenize  text of token ids; local, needs no server\n"
    "  count       how often each token occurs in texts; local\n"
    "  export      a model, also a synthetic one, as a Hugging Face folder\n"
    "  plan        what speculation is worth at given costs; local\n"
    "  skip        which layers of a model are its best draft; local\n"
    "  replay      what guesses found in texts are worth, on recorded texts; local\n"
    "  datastore   make and check files of texts for drafters; local\n"
    "  bench       measure a running cluster\n"
    "  link        can hosts reach each other, and how fast is it?\n"
    "  jobs        submit, watch, list and cancel jobs\n"
    "  key         make, list and remove API keys; local\n"
    "  health      is a coordinator or worker serving?\n"
    "  describe    what is served, and by whom\n\n"
    "'outrider COMMAND --help' tells more.\n\n" CLIENT_STATUS_DOC;

struct main_input {
    int command_index; /* of argv; 0 = none */
};

/* Stops at the first word, because it and all that follows belong to the command. */
static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct main_input *input = state->input;
    (void)arg;
    switch (key) {
    case ARGP_KEY_ARG:
        input->command_index = state->next - 1;
        state->next = state->argc;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_failure(state, CLIENT_USAGE, 0, "no command; 'outrider --help' lists them");
        return EINVAL;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static int run_command(int argc, char **argv)
{
    static char name[NAME_BYTES];
    for (int i = 0; i < N_COMMANDS; i++) {
        if (strcmp(argv[0], commands[i].name) == 0) {
            snprintf(name, sizeof name, "outrider %s", commands[i].name);
            argv[0] = name;
            return commands[i].run(argc, argv);
        }
    }
    struct error err;
    error_set(&err, ERR_ARGUMENT, "'%.60s' is not a command; 'outrider --help' lists them",
              argv[0]);
    return client_fail_local(&err);
}

int main(int argc, char **argv)
{
    struct main_input input = {0};
    const struct argp argp = {
        .parser = parse_option, .args_doc = "COMMAND [OPTION...]", .doc = doc};
    argp_err_exit_status = CLIENT_USAGE;
    if (argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &input)) return CLIENT_USAGE;
    return run_command(argc - input.command_index, argv + input.command_index);
}
