/* outrider demo: the same texts without and with guesses, in turns on a warm server. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "client/chat/answer.h"
#include "client/chat/demo_view.h"
#include "client/chat/started.h"
#include "client/client.h"
#include "client/connection.h"

enum {
    GRACE_MS = 15000, /* in which the server ends */
    PATH_BYTES = 4096,
    TOKENS_MAX = 1000,
    N_PROMPTS = 3,
    WARM_UPS = 2, /* times that each prompt is answered before it counts */
    WARM_UP_K = 4,
    NAME_BYTES = 256
};

enum demo_texts { TEXTS_TALES, TEXTS_COPIES, N_TEXTS };
static const char *const texts_names[N_TEXTS] = {"tales", "copies"};

/* Any model can go on with the tales. The copies are for one that keeps to its prompt, in which
 * much of what it writes is found. Several, so that one odd text does not decide. */
static const char *const prompts_of[N_TEXTS][N_PROMPTS] = {
    {"Once upon a time there was a king who had",
     "The old woman opened the door and said to the boy:", "When the princess came to the well,"},
    {"Notice:\n"
     "The harbour office opens at eight. Every boat that enters the harbour has to show its papers "
     "at the harbour office. A boat without papers waits at the outer pier until the office has "
     "called its owner.\n\n"
     "The same notice once more:\n"
     "The harbour office opens at",
     "A file:\n"
     "def area(width, height):\n"
     "    if width < 0 or height < 0:\n"
     "        raise ValueError(\"a side is negative\")\n"
     "    return width * height\n\n"
     "def volume(width, height, depth):\n"
     "    return area(width, height) * depth\n\n"
     "The same file once more:\n"
     "def area(width, height):",
     "A table:\n"
     "{\"name\": \"Ada\", \"town\": \"Lund\", \"boat\": \"Sea Wind\", \"length\": 12}\n"
     "{\"name\": \"Bo\", \"town\": \"Oslo\", \"boat\": \"North Star\", \"length\": 9}\n"
     "{\"name\": \"Cleo\", \"town\": \"Bergen\", \"boat\": \"Old Maid\", \"length\": 15}\n\n"
     "The same table once more:\n"
     "{\"name\": \"Ada\","},
};

struct demo {
    struct connection connection;
    const char *model;
    int n_tokens, n_draft;
    float temperature;
    uint64_t seed;
    const char *rule;
    enum demo_texts texts;
    const char *const *prompts; /* [N_PROMPTS] */
    bool is_toy;
    struct started_words words;
    struct started started;
    struct server server;
    struct demo_view view;
    struct demo_side sides[2]; /* without and with guesses; of one prompt */
    struct demo_side *running; /* NULL in the warm-up */
    int64_t begin_us;
    int64_t total_us[2];
    int total_rounds[2], total_tokens;
    char target[PATH_BYTES], draft[PATH_BYTES];
};

#define FIELD(member) OPTION_FIELD(struct demo, member)

static const struct option_row rows[] = {
    OPTION_GROUP("Server", "--model=ORG/NAME -- --draft=ORG/SMALLER"),
    {"model", 0, "MODEL", FIELD(model),
     .help = "Start `outrider serve MODEL`, with the options after --; default: a toy model that "
             "comes with Outrider"},
    {"address", 'a', "ADDRESS", FIELD(connection.address),
     .help = "Start nothing, and ask the server at " CLIENT_ADDRESS_HELP},
    OPTION_GROUP("Text", "--texts=copies --tokens=40"),
    {"texts", 0, "NAME", FIELD(texts), .words = texts_names, .n_words = N_TEXTS,
     .standard = "tales", .expected = "tales or copies",
     .help = "tales: how three fairy tales begin; copies: a notice, a file and a table to be "
             "copied, of which guesses find much in the prompt. The toy cannot copy"},
    {"tokens", 'n', "N", FIELD(n_tokens), .least = 1, .most = TOKENS_MAX, .standard = "40",
     .help = "Tokens of each of the three texts"},
    {"temperature", 0, "T", FIELD(temperature), .most = 10, .standard = "0.4",
     .help = "0 = always the best token"},
    {"seed", 0, "N", FIELD(seed), .standard = "7", .help = "Of both texts of a pair"},
    {"rule", 0, "RULE", FIELD(rule), .standard = "",
     .help =
         "Acceptance, as of `outrider generate`; default: greedy or coupled, whose texts are the "
         "same. Those of other rules depend on the guesses"},
    {"draft-tokens", 'K', "K", FIELD(n_draft), .least = 1, .most = DRAFT_MAX,
     .help = "Always K guesses a round; default: as many as the planner finds to be fastest"},
    {0},
};

static const char doc[] =
    "Shows what guesses are worth: three texts, each without and then with guesses, side by side "
    "with two clocks. The texts have to be the same, byte for byte.\v"
    "Exit status: 0 the texts are the same, 1 they are not or something failed (one sentence on "
    "the standard error), 2 wrong command line, 130 interrupted.";

/* ---- the beginning ---- */

/* The toy pair lies beside the installed programs, or in the checkout that they were built in. */
static int find_toy(struct demo *demo, struct error *err)
{
    static const char *const places[] = {"../share/outrider/models/tales",
                                         "../share/outrider/tales", "../../../deploy/models/tales"};
    char program[PATH_BYTES / 2];
    ssize_t len = readlink("/proc/self/exe", program, sizeof program - 1);
    program[len > 0 ? len : 0] = '\0';
    char *slash = strrchr(program, '/');
    if (slash) *slash = '\0';
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        snprintf(demo->target, PATH_BYTES, "%s/%s/target", program, places[i]);
        snprintf(demo->draft, PATH_BYTES, "%s/%s/draft", program, places[i]);
        if (access(demo->target, R_OK) == 0 && access(demo->draft, R_OK) == 0) return 0;
    }
    return error_set(err, ERR_NOT_FOUND,
                     "the toy model is not beside the programs (%s): name a model by --model, or a "
                     "running server by --address",
                     places[0]);
}

static int add_draft(struct demo *demo, struct error *err)
{
    static char option[] = "--draft";
    struct started_words *words = &demo->words;
    if (words->n + 2 >= STARTED_WORDS_MAX) return error_set(err, ERR_ARGUMENT, "too many words");
    words->words[words->n++] = option;
    words->words[words->n++] = demo->draft;
    return 0;
}

static int prepare(struct demo *demo, int argc, char **argv, struct error *err)
{
    const struct option_program program = {
        .variables = "OUTRIDER_DEMO_",
        .example = "outrider demo --model Qwen/Qwen3-8B -- --draft Qwen/Qwen3-0.6B",
        .args_doc = "[-- OPTION OF SERVE...]",
        .doc = doc,
        .parts = {{rows, demo, NULL}, {connection_rows, &demo->connection, NULL}}};
    int rc = 0;
    TRY(started_words_take(&demo->words, &argc, argv, err));
    TRY(option_program_parse(&program, argc, argv, err));
    demo->prompts = prompts_of[demo->texts];
    if (demo->connection.address && (demo->model || demo->words.n)) {
        return error_set(err, ERR_ARGUMENT,
                         "--address names a running server, so nothing is started: leave --model "
                         "and what is after -- out");
    }
    if (!demo->connection.address) {
        demo->is_toy = !demo->model;
        if (demo->is_toy) TRY(find_toy(demo, err));
        if (demo->is_toy) TRY(add_draft(demo, err));
        if (demo->is_toy) demo->model = demo->target;
        TRY(started_prepare(&demo->started, err));
        demo->connection.address = demo->started.address;
    }
    TRY(connection_open(&demo->connection, err));
out:
    return rc;
}

/* ---- texts ---- */

/* The end of a prompt, with which the answer makes a whole. */
static const char *last_line(const char *prompt)
{
    const char *newline = strrchr(prompt, '\n');
    return newline ? newline + 1 : prompt;
}

static int take(void *arg, const struct generate_tokens *tokens, struct error *err)
{
    struct demo *demo = arg;
    struct demo_side *side = demo->running;
    int rc = 0;
    if (!side) return 0;
    TRY(buffer_append(&side->text, tokens->text, tokens->text_len, err));
    side->n_rounds++;
    side->us = clock_now_us() - demo->begin_us;
    demo_view_draw(&demo->view, false);
out:
    return rc;
}

/* The clock goes on while nothing comes. */
static int look(void *arg, struct error *err)
{
    struct demo *demo = arg;
    (void)err;
    if (!demo->running) return 0;
    demo->running->us = clock_now_us() - demo->begin_us;
    demo_view_draw(&demo->view, false);
    return 0;
}

static int generate(struct demo *demo, const char *prompt, int n_draft,
                    struct generate_summary *summary, struct error *err)
{
    struct generate_request request;
    generate_request_init(&request);
    request.prompt = prompt;
    request.prompt_len = strlen(prompt);
    request.max_tokens = demo->n_tokens;
    request.sampling.temperature = demo->temperature;
    request.has_seed = true;
    request.seed = demo->seed;
    request.n_draft = n_draft;
    request.rule = demo->rule;
    return answer_get(&demo->server, &request, take, demo, summary, err);
}

/* The planner learns how often guesses stay, and everything has been read once. */
static int warm_up(struct demo *demo, struct error *err)
{
    const struct terminal to = terminal_of(stderr);
    struct generate_summary summary;
    int rc = 0, planned = demo->n_draft ? demo->n_draft : -1;
    for (int i = 0; i < WARM_UPS && !rc; i++) {
        for (int p = 0; p < N_PROMPTS && !rc; p++) {
            if (to.is_terminal) {
                fprintf(stderr, "\rwarming up, %d of %d ...", i * N_PROMPTS + p + 1,
                        WARM_UPS * N_PROMPTS);
            }
            rc = generate(demo, demo->prompts[p], 0, &summary, err);
            if (!rc) rc = generate(demo, demo->prompts[p], i ? planned : WARM_UP_K, &summary, err);
        }
    }
    if (to.is_terminal) fputs("\r\033[K", stderr);
    return rc;
}

static int write_side(struct demo *demo, int p, int i, struct error *err)
{
    struct generate_summary summary;
    struct demo_side *side = demo->running = &demo->sides[i];
    int n_draft = i == 0 ? 0 : demo->n_draft ? demo->n_draft : -1;
    int rc = 0;
    side->has_begun = true;
    demo->begin_us = clock_now_us();
    TRY(generate(demo, demo->prompts[p], n_draft, &summary, err));
    side->us = clock_now_us() - demo->begin_us;
    side->n_rounds = (int)summary.counters.rounds;
    side->is_over = true;
    demo->total_us[i] += side->us;
    demo->total_rounds[i] += side->n_rounds;
    if (i == 0) demo->total_tokens += summary.completion_tokens;
    demo_view_draw(&demo->view, true);
out:
    demo->running = NULL;
    return rc;
}

static void print_plainly(const struct demo *demo, int p)
{
    char time[DEMO_TIME_BYTES];
    printf("\n%s", last_line(demo->prompts[p]));
    fwrite(demo->sides[0].text.data, 1, demo->sides[0].text.len, stdout);
    fputc('\n', stdout);
    for (int i = 0; i < 2; i++) {
        printf("%s: %s, %d rounds\n", demo->sides[i].title, demo_time(time, demo->sides[i].us),
               demo->sides[i].n_rounds);
    }
}

static int check_equal(const struct demo *demo, int p, struct error *err)
{
    const struct buffer *a = &demo->sides[0].text, *b = &demo->sides[1].text;
    size_t at = 0;
    while (at < a->len && at < b->len && a->data[at] == b->data[at])
        at++;
    if (at == a->len && at == b->len) return 0;
    bool may_differ =
        demo->rule[0] && strcmp(demo->rule, "coupled") != 0 && strcmp(demo->rule, "greedy") != 0;
    return error_set(err, ERR_INTERNAL, "the two texts after \"%s\" differ from byte %zu on%s",
                     last_line(demo->prompts[p]), at,
                     may_differ ? ", as those of this rule may"
                                : ", which must not be: please report it with the model and this "
                                  "command");
}

static int write_pair(struct demo *demo, int p, struct error *err)
{
    static const char *const titles[2] = {"without guesses", "with guesses"};
    int rc = 0;
    for (int i = 0; i < 2; i++) {
        struct buffer text = demo->sides[i].text;
        text.len = 0;
        demo->sides[i] = (struct demo_side){.title = titles[i], .text = text};
    }
    demo_view_begin(&demo->view, last_line(demo->prompts[p]), &demo->sides[0], &demo->sides[1]);
    demo_view_draw(&demo->view, true);
    for (int i = 0; i < 2; i++) {
        TRY(write_side(demo, p, i, err));
    }
    if (!demo->view.terminal.is_terminal) print_plainly(demo, p);
    TRY(check_equal(demo, p, err));
    rc = client_flush(err);
out:
    return rc;
}

/* ---- what came of it ---- */

static void print_result(const struct demo *demo)
{
    double ratio = (double)demo->total_us[0] / (double)demo->total_us[1];
    printf("\nthe same %d tokens, byte for byte, in %d rounds instead of %d, ", demo->total_tokens,
           demo->total_rounds[1], demo->total_rounds[0]);
    if (demo->total_rounds[1] >= demo->total_rounds[0]) {
        printf("not faster: no guess was worth its time here\n");
    } else if (ratio >= 1.05) {
        printf("%.1f times as fast\n", ratio);
    } else {
        printf("but %s faster here (%.2f times as fast): guesses took the time that they saved\n",
               ratio < 1 ? "not" : "hardly", ratio);
    }
}

static int print_head(struct demo *demo, struct error *err)
{
    struct service_description desc;
    int rc = 0;
    TRY(server_describe(&demo->server, &desc, err));
    const char *name = strrchr(desc.target_model, '/');
    name = name && name[1] ? name + 1 : desc.target_model;
    if (demo->is_toy) {
        fputs("a toy model of 6 million weights that writes fairy tales", stdout);
    } else {
        terminal_quoted(&demo->view.terminal, name, strlen(name));
    }
    if (!desc.draft_model[0] && desc.default_n_draft == 0) {
        return error_set(err, ERR_ARGUMENT,
                         "this server makes no guesses: start it with --draft MODEL or --head "
                         "FOLDER");
    }
    printf(", temperature %g, seed %llu\n", (double)demo->temperature,
           (unsigned long long)demo->seed);
out:
    return rc;
}

static int run(struct demo *demo, struct error *err)
{
    int rc = 0;
    TRY(server_open_with_grace(&demo->server, &demo->connection, 0, GRACE_MS, err));
    if (demo->started.folder[0]) {
        TRY(started_run(&demo->started, demo->model, &demo->words, &demo->server, err));
    }
    TRY(print_head(demo, err));
    TRY(client_flush(err));
    server_watch(&demo->server, look, demo);
    TRY(warm_up(demo, err));
    for (int p = 0; p < N_PROMPTS; p++) {
        TRY(write_pair(demo, p, err));
    }
    print_result(demo);
    rc = client_flush(err);
out:
    return rc;
}

int demo_main(int argc, char **argv)
{
    struct demo demo = {.view.terminal = terminal_of(stdout)};
    struct error err;
    int status = CLIENT_OK;
    if (prepare(&demo, argc, argv, &err)) {
        status = client_fail_local(&err);
    } else if (run(&demo, &err)) {
        answer_explain(&demo.server, &err);
        status = client_fail(&err);
    }
    started_stop(&demo.started, &demo.server);
    server_close(&demo.server);
    connection_close(&demo.connection);
    for (int i = 0; i < 2; i++)
        buffer_free(&demo.sides[i].text);
    return status;
}
