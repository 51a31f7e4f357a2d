/* outrider-group: the ranks of a group as one process of a container, without a shell. It starts
 * mpirun and hands SIGTERM to the ranks themselves, because mpirun, told to end, would kill them a
 * second later, before they have drained. As process 1 it also takes the processes that others
 * left. The container's supervisor starts a group again that has ended; deploy/mpirun/group does so
 * by itself. */
#include <argp.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/system/program.h"
#include "base/system/topology.h"
#include "base/text/option_pages.h"
#include "launch/apart.h"
#include "launch/children.h"
#include "launch/scratch.h"

const char *argp_program_version = "outrider-group " OUTRIDER_VERSION;

enum {
    USAGE = 2,
    STATUS_OF_SIGNAL = 128,
    NOT_STARTED = 127,
    LOOK_MS = 100,
    SESSIONS_LOOK_MS = 1000,
    LEAVE_MS =
        5000 /* mpirun kills ranks 1 s after it has told them to end, unless told otherwise */
};

struct launch {
    int n_ranks;
    const char *hosts;
    char *worker;     /* the program beside this one */
    char **arguments; /* for mpirun or the worker, NULL at the end */
    size_t n_arguments;
    pid_t mpirun;
    struct children told;   /* ranks that have got SIGTERM */
    struct scratch scratch; /* without hosts */
    int n_sessions;         /* the most that mpirun has had with hosts */
    int64_t leave_ms;       /* when mpirun must have ended, because a session has; 0: none has */
    bool has_killed;        /* mpirun, for that reason */
};

static _Noreturn void fail_usage(const char *text, const char *value)
{
    fprintf(stderr, "outrider-group: %s%s; see --help\n", text, value);
    exit(USAGE);
}

static _Noreturn void fail_not_started(const struct error *err)
{
    fprintf(stderr, "outrider-group: %s\n", err->text);
    exit(NOT_STARTED);
}

static _Noreturn void fail_start(const char *what)
{
    fprintf(stderr, "outrider-group: cannot start %s: %s\n", what, strerror(errno));
    exit(NOT_STARTED);
}

/* ---- the command ---- */

static void add(struct launch *launch, const char *argument)
{
    launch->arguments[launch->n_arguments++] = (char *)(size_t)argument;
    launch->arguments[launch->n_arguments] = NULL;
}

static void add_all(struct launch *launch, const char *const *arguments)
{
    for (; *arguments; arguments++)
        add(launch, *arguments);
}

#define FIELD(member) OPTION_FIELD(struct launch, member)

static const struct option_row rows[] = {
    {"ranks", 'T', "N", FIELD(n_ranks), .least = 1, .most = RANKS_MAX, .standard_int = 1,
     .help = "ranks; one needs no mpirun"},
    {"hosts", 0, "FILE", FIELD(hosts), .variable = "OMPI_MCA_orte_default_hostfile",
     .help = "mpirun's host file"},
    {0},
};

static const char doc[] =
    "Runs the ranks of a group under mpirun, as one process of a container.\v"
    "MPIRUN_FLAGS in the environment holds further arguments for mpirun. SIGTERM drains the ranks; "
    "a second one ends them at once. Exit status: that of mpirun, 0 when all ranks ended with 0; "
    "143 after SIGTERM where ranks run on other hosts, so that a supervisor starts the group "
    "again; 137 where mpirun was killed, because a host did not answer; 78 where no start can "
    "succeed, because the model is missing, is not supported or does "
    "not fit so many ranks.\n";

static bool is_about_program(const char *word)
{
    static const char *const words[] = {"--help", "-?", "-h", "--version", "-V"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcmp(word, words[i]) == 0) return true;
    }
    return option_pages_asked(word);
}

/* Reads our options; all others are the worker's, in their order. A letter may have its value after
 * a =, which argp does not know. own: [2 * argc + 1]; rest: [argc + 1] */
static void parse(struct launch *launch, char **argv, char **own, char **rest)
{
    const struct option_program program = {.variables = "OUTRIDER_GROUP_",
                                           .example = "outrider-group -T 2 --model models/target",
                                           .args_doc = "[OPTION of outrider-worker...]",
                                           .doc = doc,
                                           .parts = {{rows, launch, NULL}}};
    static char letter[] = "-T";
    int n_own = 0;
    own[n_own++] = argv[0];
    for (char **word = argv + 1; *word; word++) {
        int n_words = is_about_program(*word) ? 1 : option_rows_words(rows, *word);
        if (n_words == 2 && !word[1]) fail_usage(*word, " needs a value");
        bool has_letter = n_words == 1 && (*word)[1] != '-' && (*word)[2] == '=';
        if (n_words == 0) *rest++ = *word;
        if (n_words > 0) own[n_own++] = has_letter ? letter : *word;
        if (has_letter) own[n_own++] = *word + 3;
        if (n_words == 2) own[n_own++] = *++word;
    }
    program_options(&program, n_own, own);
}

/* Ranks that wait in a collective spin, so they must yield where there are not enough CPUs for all
 * of them. */
static bool must_yield(int n_ranks)
{
    static struct topology topology;
    topology_read(&topology);
    int n_cpus = topology.n_cpus;
    if (topology.quota_cpus && topology.quota_cpus < n_cpus) n_cpus = topology.quota_cpus;
    return n_ranks > n_cpus;
}

static void add_scratch(struct launch *launch)
{
    if (scratch_open(&launch->scratch)) fail_start("mpirun in a folder of its own");
    const char *const own[] = {"--mca",
                               "btl_vader_backing_directory",
                               launch->scratch.memory,
                               "--mca",
                               "orte_tmpdir_base",
                               launch->scratch.session,
                               NULL};
    add_all(launch, own);
}

/* deploy/mpirun/common says why. */
static void add_mpirun(struct launch *launch)
{
    static char n_ranks[12];
    static const char *const always[] = {"mpirun", "--bind-to",
                                         "none",   "--oversubscribe",
                                         "--mca",  "btl_vader_single_copy_mechanism",
                                         "none",   "-np",
                                         NULL};
    static const char *const alone[] = {"--mca", "btl",      "vader,self", "--mca",
                                        "plm",   "isolated", NULL};
    static const char *const many[] = {
        "--leave-session-attached", /* look_at_sessions() needs them */
        "--map-by",
        "slot",
        "--mca",
        "btl",
        "vader,self,tcp",
        "--mca",
        "oob_tcp_keepalive_time",
        "5",
        "--mca",
        "oob_tcp_keepalive_intvl",
        "1",
        "--mca",
        "oob_tcp_keepalive_probes",
        "3",
        NULL};
    static const char *const yield[] = {"--mca", "mpi_yield_when_idle", "1", NULL};
    snprintf(n_ranks, sizeof n_ranks, "%d", launch->n_ranks);
    add_all(launch, always);
    add(launch, n_ranks);
    add_all(launch, launch->hosts ? many : alone);
    if (launch->hosts) add(launch, "--hostfile");
    if (launch->hosts) add(launch, launch->hosts);
    if (!launch->hosts && must_yield(launch->n_ranks)) add_all(launch, yield);
    if (!launch->hosts) add_scratch(launch);
}

static void add_flags(struct launch *launch, char *flags)
{
    char *rest = NULL;
    for (char *word = strtok_r(flags, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        add(launch, word);
    }
}

/* Fills launch->worker with the path of outrider-worker in this program's own folder. */
static void find_worker(struct launch *launch)
{
    static char path[4096];
    struct error err;
    if (apart_find(path, sizeof path, "outrider-worker", &err)) fail_not_started(&err);
    launch->worker = path;
}

static char *copy_text(const char *text)
{
    char *copy = strdup(text ? text : "");
    if (!copy) fail_start("mpirun");
    return copy;
}

static void make_command(struct launch *launch, int argc, char **argv)
{
    char *flags = copy_text(getenv("MPIRUN_FLAGS"));
    char **own = calloc(2 * (size_t)argc + 1, sizeof *own);
    char **rest = calloc((size_t)argc + 1, sizeof *rest);
    launch->arguments = calloc((size_t)argc + strlen(flags) + 64, sizeof *launch->arguments);
    if (!own || !rest || !launch->arguments) fail_start("mpirun");
    parse(launch, argv, own, rest);
    find_worker(launch);
    if (launch->n_ranks > 1 || launch->hosts) {
        add_mpirun(launch);
        add_flags(launch, flags);
    }
    add(launch, launch->worker);
    for (char **word = rest; *word; word++)
        add(launch, *word);
}

/* ---- the processes ---- */

/* mpirun is in a process group of its own, so that Ctrl-C reaches the ranks through this program
 * alone. */
static void start_mpirun(struct launch *launch)
{
    struct error err;
    if (geteuid() == 0) {
        setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
        setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    }
    if (apart_start(&launch->mpirun, launch->arguments, STDOUT_FILENO, STDERR_FILENO, &err)) {
        fail_not_started(&err);
    }
}

/* On several hosts only mpirun reaches the ranks. It passes SIGUSR1 on to them, which they take as
 * SIGTERM; the second wish ends mpirun, and with it everything. */
static void tell_mpirun(const struct launch *launch, bool is_first)
{
    kill(launch->mpirun, is_first ? SIGUSR1 : SIGTERM);
}

static void tell_ranks(struct launch *launch)
{
    struct children ranks;
    children_find(&ranks, launch->mpirun, "outrider-worker");
    for (int i = 0; i < ranks.n; i++) {
        if (!children_has(&launch->told, ranks.pids[i])) kill(ranks.pids[i], SIGTERM);
    }
    launch->told = ranks;
}

/* mpirun keeps an ssh session to each host until all ranks have ended, and then ends within
 * seconds. Where a host is cut off it would wait, for as long as TCP tries, until that one has
 * confirmed that the group ends. Sessions of other programs than ssh are not seen. */
static void look_at_sessions(struct launch *launch)
{
    struct children sessions;
    int64_t now_ms = clock_now_ms();
    children_find(&sessions, launch->mpirun, "ssh");
    if (sessions.n > launch->n_sessions) launch->n_sessions = sessions.n;
    if (sessions.n == launch->n_sessions || launch->has_killed) return;
    if (!launch->leave_ms) launch->leave_ms = now_ms + LEAVE_MS;
    if (now_ms < launch->leave_ms) return;
    fprintf(stderr, "outrider-group: mpirun waits for a host that does not answer, so it is "
                    "killed\n");
    launch->has_killed = true;
    kill(-launch->mpirun, SIGKILL);
    for (int i = 0; i < sessions.n; i++) { /* they are groups of their own */
        kill(sessions.pids[i], SIGKILL);
    }
}

/* Takes every process that has ended. True when mpirun was one of them, with its status. */
static bool has_ended(const struct launch *launch, int *status)
{
    bool ended = false;
    int how;
    for (pid_t pid; (pid = waitpid(-1, &how, WNOHANG)) > 0;) {
        if (pid != launch->mpirun) continue;
        ended = true;
        *status = apart_status(how);
    }
    return ended;
}

/* Waits until mpirun ends; returns the exit status. Ranks that begin after SIGTERM came are told at
 * the next look. A group on several hosts is a job for the program that started it, and a job that
 * ends with 0 is done for ever, so a signal that ended it is in its status. */
static int watch(struct launch *launch, const sigset_t *signals)
{
    const struct timespec look = {.tv_nsec = LOOK_MS * 1000000L};
    const struct timespec sessions_look = {.tv_sec = SESSIONS_LOOK_MS / 1000};
    bool is_stopping = false;
    int status = 0, told_by = 0;
    while (!has_ended(launch, &status)) {
        if (launch->hosts) look_at_sessions(launch);
        int number = launch->hosts ? sigtimedwait(signals, NULL, &sessions_look)
                     : is_stopping ? sigtimedwait(signals, NULL, &look)
                                   : sigwaitinfo(signals, NULL);
        bool is_wish = number > 0 && number != SIGCHLD;
        if (is_wish) launch->told.n = 0; /* everybody is told again */
        if (is_wish) told_by = number;
        if (is_wish && launch->hosts) tell_mpirun(launch, !is_stopping);
        is_stopping = is_stopping || is_wish;
        if (is_stopping && !launch->hosts) tell_ranks(launch);
    }
    if (!launch->hosts) scratch_remove(&launch->scratch); /* ranks that still end have it open */
    return is_stopping && launch->hosts ? STATUS_OF_SIGNAL + told_by : status;
}

int main(int argc, char **argv)
{
    static struct launch launch;
    make_command(&launch, argc, argv);
    if (launch.n_ranks == 1 && !launch.hosts) {
        execv(launch.worker, launch.arguments);
        fail_start(launch.worker);
    }
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP);
    sigaddset(&signals, SIGCHLD);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    start_mpirun(&launch);
    return watch(&launch, &signals);
}
