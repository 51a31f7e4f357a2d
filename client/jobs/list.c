/* outrider jobs list and outrider jobs cancel. */
#include "client/jobs/jobs.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "client/terminal.h"

enum { PAGE = 200, LIST_MAX = 1 << 20, TIME_BYTES = 32 };

struct list {
    struct connection connection;
    bool is_json;
    int limit;
    enum job_state state;
    struct server server;
    struct error *err;
    int n_shown;
};

#define FIELD(member) OPTION_FIELD(struct list, member)

static const struct option_row list_rows[] = {
    {"limit", 'n', "N", FIELD(limit), .least = 1, .most = LIST_MAX,
     .help = "Show N jobs at most; default: all"},
    {"state", 0, "STATE", FIELD(state), .words = job_state_names + JOB_STATE_WAITING,
     .n_words = JOB_STATES - JOB_STATE_WAITING, .least = JOB_STATE_WAITING,
     .help = "Only those that are waiting, running or ended"},
    {"json", 0, NULL, FIELD(is_json), .help = "Print one JSON object per line"},
    OPTION_GROUP("Connection", "--address=10.0.0.1:7070"),
    CLIENT_ADDRESS_ROW(struct list),
    {0},
};

static const char list_doc[] =
    "Lists the submitted jobs that the coordinator has, newest first.\v" CLIENT_STATUS_DOC;

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
    struct error err;
    struct list l = {.limit = LIST_MAX};
    const struct option_program program = {
        .variables = "OUTRIDER_JOBS_LIST_",
        .example = "outrider jobs list --address 10.0.0.1:7070",
        .name = "list",
        .doc = list_doc,
        .parts = {{list_rows, &l, NULL}, {connection_rows, &l.connection, NULL}}};
    int status = CLIENT_OK;
    if (option_program_parse(&program, argc, argv, &err) || connection_open(&l.connection, &err)) {
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
    const char **ids; /* [n_ids] of argv */
    int n_ids;
    struct server server;
};

static const struct option_row cancel_rows[] = {
    OPTION_GROUP("Connection", "--address=10.0.0.1:7070"), CLIENT_ADDRESS_ROW(struct cancel), {0}};

static const char cancel_doc[] =
    "Ends jobs that wait or run; what they have of their answers is kept.\v" CLIENT_STATUS_DOC;

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

static int take_id(void *fields, char *word, struct error *err)
{
    struct cancel *c = fields;
    (void)err;
    c->ids[c->n_ids++] = word;
    return 0;
}

int jobs_cancel_main(int argc, char **argv)
{
    struct error err;
    struct cancel c = {0};
    const struct option_program program = {
        .variables = "OUTRIDER_JOBS_CANCEL_",
        .example = "outrider jobs cancel job-1 job-2",
        .args_doc = "ID...",
        .doc = cancel_doc,
        .parts = {{cancel_rows, &c, NULL}, {connection_rows, &c.connection, NULL}},
        .take = take_id};
    int status = CLIENT_OK, n_failed = 0, rc = mem_array(&c.ids, (size_t)argc, sizeof *c.ids, &err);
    if (!rc) rc = option_program_parse(&program, argc, argv, &err);
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
    free(c.ids);
    return status;
}
