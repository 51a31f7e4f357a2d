/* outrider serve: makes the command lines of the programs, lets them check these, and runs them. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/system/program.h"
#include "base/system/topology.h"
#include "client/client.h"
#include "client/serve/door.h"
#include "client/serve/helper.h"
#include "client/serve/options.h"
#include "client/serve/supervisor.h"
#include "launch/scratch.h"

enum { CHECK_BYTES = 4096, USAGE = 2 };

struct serve {
    struct serve_options options;
    struct serve_words group, coordinator; /* whole command lines */
    char folder[SCRATCH_PATH_BYTES];       /* of the workers' sockets */
    char fits[CHECK_BYTES];                /* "ranks 1 2 4", as the worker says */
};

static int add_all(struct serve_words *words, const struct serve_words *more, struct error *err)
{
    int rc = 0;
    for (int i = 0; i < more->n; i++)
        TRY(serve_words_add(words, err, "%s", more->words[i]));
out:
    return rc;
}

static int add_targets(struct serve *s, struct error *err)
{
    int rc = 0, n = s->options.n_ranks;
    if (n == 1) return serve_words_add(&s->coordinator, err, "--target=unix:%s/worker", s->folder);
    for (int r = 0; r < n; r++)
        TRY(serve_words_add(&s->coordinator, err, "--target=unix:%s/worker.%d", s->folder, r));
out:
    return rc;
}

/* An IPv6 address is in brackets. */
static int add_http(struct serve *s, struct error *err)
{
    const char *host = s->options.host;
    bool wants_brackets = strchr(host, ':') && host[0] != '[';
    return serve_words_add(&s->coordinator, err, "--http=%s%s%s:%d", wants_brackets ? "[" : "",
                           host, wants_brackets ? "]" : "", s->options.port);
}

/* The level is of this program's --log; from a higher one the programs would not say how far they
 * are. */
static const char *level_of(const struct serve *s)
{
    return s->options.log_level == LOG_LEVEL_DEBUG ? "debug" : "info";
}

static int make_commands(struct serve *s, struct error *err)
{
    const struct serve_options *o = &s->options;
    int rc = 0;
    TRY(serve_words_add(&s->group, err, "%s", o->group));
    TRY(serve_words_add(&s->group, err, "--ranks=%d", o->n_ranks));
    TRY(serve_words_add(&s->group, err, "--model=%s", o->model));
    TRY(serve_words_add(&s->group, err, "--listen=unix:%s/worker", s->folder));
    TRY(serve_words_add(&s->group, err, "--log-level=%s", level_of(s)));
    TRY(add_all(&s->group, &o->for_worker, err));
    TRY(serve_words_add(&s->coordinator, err, "%s", o->coordinator));
    TRY(add_targets(s, err));
    TRY(add_http(s, err));
    TRY(serve_words_add(&s->coordinator, err, "--log-level=%s", level_of(s)));
    const char *draft = serve_value_of_coordinator(o, "draft");
    if (!draft) TRY(serve_words_add(&s->coordinator, err, "--draft=none"));
    bool has_tokenizer = serve_value_of_coordinator(o, "tokenizer") != NULL;
    if (!has_tokenizer && (!draft || strcmp(draft, "none") == 0)) {
        TRY(serve_words_add(&s->coordinator, err, "--tokenizer=%s", o->model));
    }
    TRY(add_all(&s->coordinator, &o->for_coordinator, err));
out:
    return rc;
}

/* ---- before a start ---- */

/* The sentence of a program, without its name and without --http, which its caller did not give. */
static const char *sentence_of(char *text)
{
    size_t len = strlen(text);
    while (len > 0 && isspace((unsigned char)text[len - 1]))
        text[--len] = '\0';
    char *line = strrchr(text, '\n'), *colon;
    line = line ? line + 1 : text;
    colon = strncmp(line, "outrider-", 9) == 0 ? strstr(line, ": ") : NULL;
    if (colon) line = colon + 2;
    return strncmp(line, "--http ", 7) == 0 ? line + 7 : line;
}

/* Lets a program check its command line. Sets *status if it refuses it. */
static int check_one(const struct serve_words *words, char *text, int *status, struct error *err)
{
    static char check[] = "--check";
    struct serve_words with = *words;
    int rc = 0;
    if (with.n == SERVE_WORDS_MAX) return error_set(err, ERR_ARGUMENT, "too many options");
    with.words[with.n++] = check;
    TRY(helper_run(with.words, text, CHECK_BYTES, status, err));
    if (*status) rc = error_set(err, ERR_ARGUMENT, "%.400s", sentence_of(text));
out:
    return rc;
}

/* The worker's own program checks, because outrider-group would start mpirun. */
static int check_worker(struct serve *s, int *status, struct error *err)
{
    struct serve_words words = s->group;
    int rc = 0;
    words.words[0] = s->options.worker;
    memmove(words.words + 1, words.words + 2, (size_t)(words.n - 1) * sizeof *words.words);
    words.n--;
    TRY(check_one(&words, s->fits, status, err));
    (void)sentence_of(s->fits);
    char fits[CHECK_BYTES + 2], wanted[16];
    snprintf(fits, sizeof fits, "%s ", s->fits);
    snprintf(wanted, sizeof wanted, " %d ", s->options.n_ranks);
    if (strncmp(fits, "ranks ", 6) != 0 || strstr(fits, wanted)) goto out;
    *status = PROGRAM_NO_RESTART;
    rc =
        error_set(err, ERR_ARGUMENT, "-T %d: %d ranks cannot share this model; -T must be one of%s",
                  s->options.n_ranks, s->options.n_ranks, s->fits + 5);
out:
    return rc;
}

static bool is_in_path(const char *name)
{
    char path[SERVE_PATH_BYTES];
    const char *folders = getenv("PATH");
    while (folders && *folders) {
        int len = (int)strcspn(folders, ":");
        snprintf(path, sizeof path, "%.*s/%s", len, folders, name);
        if (access(path, X_OK) == 0) return true;
        folders += len + (folders[len] == ':');
    }
    return false;
}

static int check_doors(const struct serve *s, struct error *err)
{
    const char *listen = serve_value_of_coordinator(&s->options, "listen");
    int rc = 0;
    TRY(door_check_free(serve_words_value(&s->coordinator, "http"), "--host or --port", err));
    TRY(door_check_free(listen ? listen : CLIENT_ADDRESS_DEFAULT, "--listen (the address of gRPC)",
                        err));
out:
    return rc;
}

/* status: of the end, where it fails. */
static int prepare(struct serve *s, int *status, struct error *err)
{
    char text[CHECK_BYTES];
    int rc = 0;
    *status = CLIENT_FAILED;
    if (scratch_open_folder(s->folder)) {
        return error_set(err, ERR_IO, "no folder for the workers' sockets can be made in TMPDIR");
    }
    TRY(make_commands(s, err));
    TRY(check_worker(s, status, err));
    TRY(check_one(&s->coordinator, text, status, err));
    *status = CLIENT_FAILED;
    if (s->options.n_ranks > 1 && !is_in_path("mpirun")) {
        rc =
            error_set(err, ERR_NOT_FOUND,
                      "-T %d needs mpirun, which PATH does not have: install openmpi-bin, or serve "
                      "with one rank",
                      s->options.n_ranks);
        goto out;
    }
    if (!s->options.is_check) TRY(check_doors(s, err));
out:
    return rc;
}

/* Ranks that wait for each other spin, so they yield where the coordinator needs their cores. */
static void share_cores(const struct serve *s)
{
    static struct topology topology;
    topology_read(&topology);
    int n_cpus = topology.n_cpus;
    if (topology.quota_cpus && topology.quota_cpus < n_cpus) n_cpus = topology.quota_cpus;
    if (s->options.n_ranks > 1 && s->options.n_ranks + 1 > n_cpus) {
        setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
    }
}

/* Variables that would send the ranks to other hosts, or elsewhere than the commands say. */
static void forget_variables(void)
{
    static const char *const names[] = {"OUTRIDER_GROUP_HOSTS", "OMPI_MCA_orte_default_hostfile"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
}

int serve_main(int argc, char **argv)
{
    static struct serve s;
    struct error err;
    int status = CLIENT_FAILED;
    forget_variables();
    int rc = serve_options_read(&s.options, argc, argv, &err);
    if (rc) return client_fail_local(&err);
    rc = prepare(&s, &status, &err);
    if (rc) {
        (void)client_fail(&err);
    } else if (s.options.is_check) {
        status = puts(s.fits) < 0 || client_flush(&err) ? CLIENT_FAILED : CLIENT_OK;
    } else {
        share_cores(&s);
        status = supervisor_run(&s.options, &s.group, &s.coordinator);
    }
    if (s.folder[0]) scratch_remove_folder(s.folder);
    return status;
}
