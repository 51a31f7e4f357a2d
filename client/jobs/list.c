/* outrider jobs list and outrider jobs cancel. */
#include "client/jobs/jobs.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/text/options.h"
#include "client/terminal.h"

enum { OPT_JSON = 256, OPT_STATE, PAGE = 200, LIST_MAX = 1 << 20, TIME_BYTES = 32 };

struct list {
    struct connection connection;
    bool is_json;
    int limit;
    enum job_state state;
    struct server server;
    struct error *err;
    int n_shown;
};

static const struct argp_option list_options[] = {
    {"limit", 'n', "N", 0, "Show N jobs at most; default: all", 0},
    {"state", OPT_STATE, "STATE", 0, "Only those that are waiting, running or ended", 0},
    {"address", 'a', "ADDRESS", 0, CLIENT_ADDRESS_DOC, 0},
    {"json", OPT_JSON, NULL, 0, "Print one JSON object per line", 0},
    {0},
};

static const char list_doc[] =
    "Lists the submitted jobs that the coordinator has, newest first.\v" CLIENT_STATUS_DOC;

static error_t parse_list(int key, char *arg, struct argp_state *state)
{
    struct list *l = state->input;
    int word;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &l->connection;
        return 0;
    case 'n':
        return client_parser_result(options_int(&l->limit, "--limit", arg, 1, LIST_MAX, l->err));
    case OPT_STATE:
        if (options_word(&word, "--state", arg, job_state_names + JOB_STATE_WAITING,
                         JOB_STATES - JOB_STATE_WAITING, l->err)) {
            return EINVAL;
        }
        l->state = (enum job_state)(JOB_STATE_WAITING + word);
        return 0;
    case 'a':
        l->connection.address = arg;
        return 0;
    case OPT_JSON:
        l->is_json = true;
        return 0;
    case ARGP_KEY_ARG:
        error_set(l->err, ERR_ARGUMENT, "'%.60s' is too much: list takes options only", arg);
        return EINVAL;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static void show_job(const struct list *l, const struct job_status *job)
{
    const struct terminal terminal = terminal_of(stdout);
    char time_text[TIME_BYTES] = "";
    time_t at = (time_t)(job->submitted_ms / 1000);
    struct tm parts;
    if (l->n_shown == 0) {
        printf("%-42s %-11s %7s %7s  %-19s  %s\n", "id", "state", "prompt", "tokens", "submitted",
               "key");
    }
    if (localtime_r(&at, &parts)) {
        strftime(time_text, sizeof time_text, "%Y-%m-%d %H:%M:%S", &parts);
    }
    printf("%-42s %-11s %7d %7d  %-19s  ", job->id, jobs_state_word(job), job->prompt_tokens,
           job->completion_tokens, time_text);
    terminal_quoted(&terminal, job->key, strlen(job->key));
    fputc('\n', stdout);
}

static int show_page(struct list *l, const struct job_list *page, struct error *err)
{
    for (int i = 0; i < page->n && l->n_shown < l->limit; i++) {
        int rc = 0;
        if (l->is_json) {
            rc = client_print_json(jobs_status_json(&page->jobs[i]), err);
        } else {
            show_job(l, &page->jobs[i]);
        }
        if (rc) return rc;
        l->n_shown++;
    }
    return client_flush(err);
}

/* *token is that of the next page afterwards. */
static int list_page(struct list *l, char token[JOB_ID_BYTES], struct error *err)
{
    const struct list_request request = {.page_size = PAGE, .page_token = token, .state = l->state};
    struct buffer encoded = {0};
    struct job_list page;
    struct arena *arena;
    int rc = 0;
    TRY(list_request_encode(&encoded, &request, err));
    TRY(server_call(&l->server, JOBS_SERVICE "List", &encoded, err));
    TRY(server_arena(&l->server, l->server.reply.len, &arena, err));
    TRY(job_list_decode(l->server.reply.data, l->server.reply.len, arena, &page, err));
    TRY(show_page(l, &page, err));
    snprintf(token, JOB_ID_BYTES, "%s", page.next_page_token);
out:
    buffer_free(&encoded);
    return rc;
}

static int run_list(struct list *l, struct error *err)
{
    char token[JOB_ID_BYTES] = "";
    enum health_answer health;
    int rc = 0;
    TRY(server_open(&l->server, &l->connection, 0, err));
    TRY(server_health(&l->server, "", &health, err));
    do {
        TRY(list_page(l, token, err));
        TRY(server_check_interrupt(&l->server, err));
    } while (token[0] && l->n_shown < l->limit);
out:
    return rc;
}

int jobs_list_main(int argc, char **argv)
{
    const struct argp_child children[] = {{&connection_argp, 0, "Connection:", 0}, {0}};
    const struct argp argp = {
        .options = list_options, .parser = parse_list, .doc = list_doc, .children = children};
    struct error err;
    struct list l = {.limit = LIST_MAX, .err = &err};
    int status = CLIENT_OK;
    if (client_parse(&argp, argc, argv, &l, &err) || connection_open(&l.connection, &err)) {
        status = client_fail_local(&err);
    } else if (run_list(&l, &err)) {
        server_explain(&l.server, &err);
        status = client_fail(&err);
    }
    server_close(&l.server);
    connection_close(&l.connection);
    return status;
}

/* ---- cancel ---- */

struct cancel {
    struct connection connection;
    char **ids; /* the words of the command line from the first id on */
    int n_ids;
    struct server server;
};

static const struct argp_option cancel_options[] = {
    {"address", 'a', "ADDRESS", 0, CLIENT_ADDRESS_DOC, 0}, {0}};

static const char cancel_doc[] =
    "Ends jobs that wait or run; what they have of their answers is kept.\v" CLIENT_STATUS_DOC;

static error_t parse_cancel(int key, char *arg, struct argp_state *state)
{
    struct cancel *c = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &c->connection;
        return 0;
    case 'a':
        c->connection.address = arg;
        return 0;
    case ARGP_KEY_ARGS: /* argp has put the options in front */
        c->ids = state->argv + state->next;
        c->n_ids = state->argc - state->next;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static int cancel_job(struct cancel *c, const char *id, struct error *err)
{
    struct job_status job;
    int rc = jobs_call(&c->server, "Cancel", id, &job, err);
    if (rc) return rc;
    bool had_ended = job.state == JOB_STATE_ENDED;
    printf("%s %s%s\n", job.id, had_ended ? "had ended already: " : "is being cancelled",
           had_ended ? jobs_state_word(&job) : "");
    return client_flush(err);
}

/* Says which jobs cannot be cancelled, and goes on with the others. */
static int run_cancel(struct cancel *c, int *n_failed, struct error *err)
{
    enum health_answer health;
    int rc = 0;
    TRY(server_open(&c->server, &c->connection, 0, err));
    TRY(server_health(&c->server, "", &health, err));
    for (int i = 0; i < c->n_ids; i++) {
        TRY(server_check_interrupt(&c->server, err));
        if (cancel_job(c, c->ids[i], err)) {
            client_fail(err);
            ++*n_failed;
        }
    }
out:
    return rc;
}

int jobs_cancel_main(int argc, char **argv)
{
    const struct argp_child children[] = {{&connection_argp, 0, "Connection:", 0}, {0}};
    const struct argp argp = {.options = cancel_options,
                              .parser = parse_cancel,
                              .args_doc = "ID...",
                              .doc = cancel_doc,
                              .children = children};
    struct error err;
    struct cancel c = {0};
    int status = CLIENT_OK, n_failed = 0, rc = client_parse(&argp, argc, argv, &c, &err);
    if (!rc && !c.n_ids) rc = error_set(&err, ERR_ARGUMENT, "no job: give one id or more");
    if (rc || connection_open(&c.connection, &err)) {
        status = client_fail_local(&err);
    } else if (run_cancel(&c, &n_failed, &err)) {
        server_explain(&c.server, &err);
        status = client_fail(&err);
    } else if (n_failed) {
        status = CLIENT_FAILED;
    }
    server_close(&c.server);
    connection_close(&c.connection);
    return status;
}
