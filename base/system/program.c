/* The main function that all servers share: options, start, run, exit status. */
#include "base/system/program.h"

#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/system/placement.h"
#include "base/system/process.h"

enum { USAGE_STATUS = 2 };

#define FIELD(member) OPTION_FIELD(struct program_log, member)

/* In the order of their enums. */
static const char *const levels[] = {"debug", "info", "warn", "error"};
static const char *const formats[] = {"text", "json"};

const struct option_row program_rows[] = {
    OPTION_GROUP("Log and metrics", "--log-level=debug --log-format=json"),
    {"log-level", 0, "LEVEL", FIELD(level), .words = levels, .n_words = 4, .standard = "info",
     .expected = "debug, info, warn or error", .help = "debug, info, warn, error"},
    {"log-format", 0, "FORMAT", FIELD(format), .words = formats, .n_words = 2, .standard = "text",
     .help = "of the log's lines: text, or json: one object in each line"},
    OPTION_GROUP("Before a start", "--check"),
    {"check", 0, NULL, FIELD(is_check),
     .help = "start nothing: check the options and the files that they name: of a coordinator "
             "those of tokenizer and draft or head, of a worker those of the model and a head; a "
             "worker prints how many ranks can share its model"},
    {0},
};

int program_read_pin(void *wish, const char *option, const char *text, struct error *err)
{
    (void)option;
    return placement_parse_pin(wish, text, err);
}

void program_options(const struct option_program *program, int argc, char **argv)
{
    struct error err;
    argp_err_exit_status = USAGE_STATUS;
    if (option_program_parse(program, argc, argv, &err)) {
        const char *slash = strrchr(argv[0], '/');
        fprintf(stderr, "%s: %s\n", slash ? slash + 1 : argv[0], err.text);
        _Exit(USAGE_STATUS);
    }
}

static int run_check(const struct program *program, void *arg)
{
    struct error err;
    log_open(program->name, LOG_LEVEL_ERROR); /* nothing but the line below is said */
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
