/* The main function that all servers share: options, start, run, exit status. */
#include "base/system/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/system/process.h"
#include "base/text/option_names.h"
#include "base/text/options.h"

enum { USAGE_STATUS = 2, OPT_LOG_LEVEL = 2048, OPT_LOG_FORMAT, OPT_CHECK };

static const struct argp_option entries[] = {
    {"log-level", OPT_LOG_LEVEL, "LEVEL", 0, "debug, info, warn, error", 0},
    {"log-format", OPT_LOG_FORMAT, "FORMAT", 0,
     "of the log's lines: text (default), or json: one object in each line", 0},
    {"check", OPT_CHECK, NULL, 0,
     "start nothing: check the options, and of a worker the model's config, and print how many "
     "ranks can share it",
     0},
    {0},
};

static void parse_format(struct argp_state *state, const char *arg, enum log_format *format)
{
    static const char *const words[] = {"text", "json"}; /* in the enum's order */
    struct error err;
    int word = 0;
    if (options_word(&word, "--log-format", arg, words, 2, &err)) {
        argp_failure(state, USAGE_STATUS, 0, "%s", err.text);
    }
    *format = (enum log_format)word;
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct program_log *log = state->input;
    switch (key) {
    case OPT_LOG_LEVEL:
        if (log_parse_level(arg, &log->level)) {
            argp_failure(state, USAGE_STATUS, 0,
                         "--log-level %s: expected debug, info, warn or error", arg);
        }
        return 0;
    case OPT_LOG_FORMAT:
        parse_format(state, arg, &log->format);
        return 0;
    case OPT_CHECK:
        log->is_check = true;
        return 0;
    case ARGP_KEY_ARG:
        argp_failure(state, USAGE_STATUS, 0, "'%s' is not an option; see --help", arg);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const struct argp program_argp = {.options = entries, .parser = parse_option};

error_t program_parse_int(struct argp_state *state, int *out, const char *option, const char *text,
                          int least, int most)
{
    struct error err;
    if (options_int(out, option, text, least, most, &err)) {
        argp_failure(state, USAGE_STATUS, 0, "%s", err.text);
    }
    return 0;
}

error_t program_parse_pin(struct argp_state *state, struct placement_wish *wish, const char *text)
{
    struct error err;
    if (placement_parse_pin(wish, text, &err)) {
        argp_failure(state, USAGE_STATUS, 0, "%s", err.text);
    }
    return 0;
}

void program_parse(const struct argp *argp, int argc, char **argv, void *arguments)
{
    struct error err;
    argp_err_exit_status = USAGE_STATUS;
    if (option_names_check(argp, argc, argv, false, &err)) {
        const char *slash = strrchr(argv[0], '/');
        fprintf(stderr, "%s: %s\n", slash ? slash + 1 : argv[0], err.text);
        _Exit(USAGE_STATUS);
    }
    argp_parse(argp, argc, argv, 0, NULL, arguments);
}

static int run_check(const struct program *program, void *arg)
{
    struct error err;
    int rc = program->read ? program->read(arg, &err) : 0;
    if (!rc && program->check) rc = program->check(arg, &err);
    if (rc) fprintf(stderr, "%s: %s\n", program->name, err.text);
    return rc ? PROGRAM_NO_RESTART : EXIT_SUCCESS;
}

/* Says that a start which failed like this fails again with the same options and files. Where open
 * has met peers, that is not certain of ERR_ARGUMENT and ERR_FORMAT: they may be started anew,
 * too. */
static bool is_final(int rc, bool has_met_peers)
{
    bool is_ours = rc == ERR_UNSUPPORTED || rc == ERR_NOT_FOUND;
    return is_ours || (!has_met_peers && (rc == ERR_ARGUMENT || rc == ERR_FORMAT));
}

int program_run(const struct program *program, void *arg)
{
    struct error err;
    int failure = EXIT_FAILURE;
    if (program->log.is_check) return run_check(program, arg);
    log_open(program->name, program->log.level);
    log_set_format(program->log.format);
    const struct process_calls calls = {
        .on_stop = program->stop, .on_reload = program->reload, .arg = arg, .is_starting = true};
    int rc = process_open(&calls, program->stop_grace_ms, &err);
    if (!rc && program->read) {
        rc = program->read(arg, &err);
        if (is_final(rc, false)) failure = PROGRAM_NO_RESTART;
    }
    if (!rc) {
        rc = program->open(arg, &err);
        if (is_final(rc, program->meets_peers)) failure = PROGRAM_NO_RESTART;
    }
    if (!rc) process_started();
    if (!rc) rc = program->run(arg, &err);
    if (rc) {
        log_line(LOG_LEVEL_ERROR, "failed", "reason=%s text=\"%s\"", error_name(rc), err.text);
        _Exit(failure);
    }
    program->close(arg);
    process_close();
    bool has_failed = process_has_failed();
    log_line(LOG_LEVEL_INFO, "stopped", "reason=%s", has_failed ? "failure" : "signal");
    return has_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
