/* outrider, the command-line client: finds the command and runs it. Each command is a file. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/text/option_names.h"
#include "base/text/option_pages.h"
#include "client/client.h"

const char *argp_program_version = "outrider " OUTRIDER_VERSION;

enum { NAME_BYTES = 64, HELP_WORDS_MAX = 2 };

static int run_words(int argc, char **argv);
static int help_main(int argc, char **argv);
static int version_main(int argc, char **argv);

static const struct client_command commands[] = {
    {"serve", serve_main}, /* client/serve/ */
    {"list", model_list_main},
    {"generate", generate_main},
    {"chat", chat_main}, /* client/chat/ */
    {"run", run_main},
    {"demo", demo_main},
    {"score", score_main},
    {"tokenize", tokenize_main},
    {"detokenize", detokenize_main},
    {"export", export_main},
    {"health", health_main},
    {"describe", describe_main},
    {"plan", plan_main},
    {"count", count_main},
    {"bench", bench_main},
    {"jobs", jobs_main},
    {"key", key_main},
    {"link", link_main},
    {"record", record_main}, /* client/record/ */
    {"replay", replay_main},
    {"datastore", datastore_main},
    {"skip", skip_main},
    {"heads", heads_main},
    {"help", help_main},
    {"version", version_main},
    {NULL, NULL},
};

static const char doc[] =
    "Client of an Outrider cluster.\v"
    "Commands:\n"
    "  serve       serve a model: workers and coordinator in one command\n"
    "  list        models of the Hugging Face cache and of folders; local\n"
    "  generate    continue a prompt, token by token as it comes\n"
    "  chat        talk with a model in the terminal\n"
    "  run         serve a model for one answer\n"
    "  demo        the same text with and without guesses, side by side\n"
    "  describe    what is served, and by whom\n"
    "  health      is a coordinator or worker serving?\n"
    "  help        the help of a command\n\n"
    "Example: outrider serve Qwen/Qwen3-0.6B\n\n"
    "More commands:\n"
    "  score       log-probabilities and perplexity of a text\n"
    "  tokenize    token ids of a text; local, needs no server\n"
    "  detokenize  text of token ids; local, needs no server\n"
    "  count       how often each token occurs in texts; local\n"
    "  export      a model, also a synthetic one, as a Hugging Face folder\n"
    "  plan        what speculation is worth at given costs; local\n"
    "  skip        which layers of a model are its best draft; local\n"
    "  heads       which head or draft is worth most for a target; local\n"
    "  record      texts with the target's features, for training draft models\n"
    "  replay      what guesses found in texts are worth, on recorded texts; local\n"
    "  datastore   make and check files of texts for drafters; local\n"
    "  bench       measure a running cluster\n"
    "  link        can hosts reach each other, and how fast is it?\n"
    "  jobs        submit, watch, list and cancel jobs\n"
    "  key         make, list and remove API keys; local\n"
    "  version     which version this is\n\n"
    "'outrider COMMAND --help' or 'outrider help COMMAND' tells more.\n\n" CLIENT_STATUS_DOC;

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
    for (int i = 0; commands[i].name; i++) {
        if (strcmp(argv[0], commands[i].name) == 0) {
            snprintf(name, sizeof name, "outrider %s", commands[i].name);
            argv[0] = name;
            return commands[i].run(argc, argv);
        }
    }
    struct error err;
    char hint[CLIENT_HINT_BYTES];
    error_set(&err, ERR_ARGUMENT, "'%.60s' is not a command%s; 'outrider --help' lists them",
              argv[0], client_hint(hint, argv[0], commands));
    return client_fail_local(&err);
}

/* outrider help [COMMAND...]: its --help. */
static int help_main(int argc, char **argv)
{
    static char outrider[] = "outrider", option[] = "--help";
    char *words[HELP_WORDS_MAX + 2] = {outrider};
    int n = 1;
    for (int i = 1; i < argc && n <= HELP_WORDS_MAX; i++)
        words[n++] = argv[i];
    words[n++] = option;
    return run_words(n, words);
}

static int version_main(int argc, char **argv)
{
    struct error err;
    (void)argc;
    (void)argv;
    puts(argp_program_version);
    return client_flush(&err) ? client_fail(&err) : CLIENT_OK;
}

static int run_words(int argc, char **argv)
{
    struct main_input input = {0};
    struct error err;
    const struct argp argp = {.parser = parse_option, .args_doc = CLIENT_COMMANDS_ARGS, .doc = doc};
    argp_err_exit_status = CLIENT_USAGE;
    if (argc > 1 && option_pages_asked(argv[1])) return client_print_pages(argv[0], doc, argv[1]);
    if (option_names_check(&argp, argc, argv, true, &err)) return client_fail_local(&err);
    if (argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &input)) return CLIENT_USAGE;
    return run_command(argc - input.command_index, argv + input.command_index);
}

int main(int argc, char **argv)
{
    return run_words(argc, argv);
}
