/* outrider key: makes, lists and removes API keys in the file of outrider-coordinator --keys. Of
 * two commands at once on one file, what the first one did is lost. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "access/key_file.h"
#include "base/system/file.h"
#include "base/system/file_write.h"
#include "base/text/buffer.h"
#include "client/client.h"

enum { KEPT_MODE = 0755 };

/* One run of a command. */
struct key_command {
    const char *path, *name;
    struct key_entry entry; /* of add: what its options say */
    char *text;             /* [len] of the file as it was */
    size_t len;
    struct key_list list; /* what it says */
};

/* ---- the file ---- */

/* may_lack: the file may be yet to come. */
static int read_file(struct key_command *k, bool may_lack, struct error *err)
{
    int rc = file_read_text(&k->text, &k->len, k->path, KEY_FILE_BYTES_MAX, err);
    if (rc == ERR_NOT_FOUND && may_lack) return 0;
    return rc ? rc : key_list_parse(&k->list, k->text, k->len, k->path, err);
}

/* The new file takes the place of the earlier one, and those who could read that, such as the user
 * of the coordinator, can read it, too. Where it cannot be given to them, it is the caller's. */
static int write_file(const struct key_command *k, const struct buffer *text, struct error *err)
{
    const struct file_piece piece = {.data = text->data, .bytes = text->len};
    struct stat before = {0};
    bool was_there = stat(k->path, &before) == 0;
    struct file_owner owner = {before.st_uid, before.st_gid, before.st_mode & KEPT_MODE, false};
    int rc = file_write_whole(k->path, &piece, 1, text->len, was_there ? &owner : NULL, err);
    if (!rc && was_there && !owner.was_given) {
        fprintf(stderr,
                "%s is readable by you alone now, because you may not give it to its owner\n",
                k->path);
    }
    return rc;
}

static const struct key_entry *find_name(const struct key_command *k)
{
    for (int i = 0; i < k->list.n; i++) {
        if (strcmp(k->list.entries[i].name, k->name) == 0) return &k->list.entries[i];
    }
    return NULL;
}

static void free_command(struct key_command *k)
{
    free(k->text);
    key_list_free(&k->list);
}

/* ---- the command line ---- */

static int take_file_word(void *fields, char *word, struct error *err)
{
    struct key_command *k = fields;
    if (k->path) return error_set(err, ERR_ARGUMENT, "'%.60s' is too much: give one file", word);
    k->path = word;
    return 0;
}

/* FILE and NAME. */
static int take_file_and_name(void *fields, char *word, struct error *err)
{
    struct key_command *k = fields;
    return k->path ? client_take_argument(&k->name, word, "name", err)
                   : take_file_word(fields, word, err);
}

static int check_arguments(const struct key_command *k, bool has_name, struct error *err)
{
    if (!k->path) return error_set(err, ERR_ARGUMENT, "no file: give that of --keys");
    if (!has_name) return 0;
    if (!k->name) return error_set(err, ERR_ARGUMENT, "no name: give that of the key's holder");
    return key_check_name(k->name, err);
}

/* Reads the command line, runs the command and returns its exit status. */
static int run_command(struct option_program *program, int argc, char **argv, bool has_name,
                       int (*run)(struct key_command *k, struct error *err))
{
    struct error err;
    struct key_command k = {0};
    int status = CLIENT_OK;
    program->parts[0].fields = &k;
    if (option_program_parse(program, argc, argv, &err) || check_arguments(&k, has_name, &err) ||
        run(&k, &err)) {
        status = client_fail_local(&err);
    }
    free_command(&k);
    return status;
}

/* ---- add ---- */

#define FIELD(member) OPTION_FIELD(struct key_command, member)

static const struct option_row no_rows[] = {{0}};
static const struct option_row add_rows[] = {
    {"weight", 0, "W", FIELD(entry.weight), .least = 1, .most = KEY_WEIGHT_MAX,
     .help = "Where requests wait, W times the share of others, 1 to 1000; default: as "
             "--client-weight of the coordinator says, or 1"},
    {"max-jobs", 0, "N", FIELD(entry.max_jobs), .least = 1, .most = KEY_JOBS_MAX,
     .help = "Requests that may wait or run at once; default: as many as there is room for"},
    {"max-priority", 0, "NAME", FIELD(entry.max_priority), .words = key_priority_names,
     .n_words = N_KEY_PRIORITIES, .standard = "high",
     .help = "high, normal or low: what requests get that ask for more"},
    {0},
};

/* Writes the file's text with a line for the key at its end. */
static int write_added(struct key_command *k, const char *key, struct error *err)
{
    char line[KEY_LINE_BYTES];
    struct buffer text = {0};
    bool is_cut = k->len && k->text[k->len - 1] != '\n';
    int rc = 0;
    memcpy(k->entry.name, k->name, strlen(k->name) + 1);
    key_hash(key, strlen(key), k->entry.hash);
    key_entry_text(&k->entry, line);
    if (k->len) TRY(buffer_append(&text, k->text, k->len, err));
    if (is_cut) TRY(buffer_append(&text, "\n", 1, err));
    TRY(buffer_append(&text, line, strlen(line), err));
    TRY(write_file(k, &text, err));
out:
    buffer_free(&text);
    return rc;
}

static int add(struct key_command *k, struct error *err)
{
    char key[KEY_TEXT_BYTES];
    int rc = 0;
    TRY(read_file(k, true, err));
    if (find_name(k)) {
        return error_set(err, ERR_ARGUMENT,
                         "%.200s has a key of '%s' in line %d already: remove that, or give "
                         "another name",
                         k->path, k->name, find_name(k)->line);
    }
    if (k->list.n == KEYS_MAX) {
        return error_set(err, ERR_EXHAUSTED, "%.200s has %d keys, and no more are read", k->path,
                         KEYS_MAX);
    }
    TRY(key_make(key, err));
    TRY(write_added(k, key, err));
    puts(key);
    TRY(client_flush(err));
    fprintf(stderr,
            "This is the only time that the key is shown. SIGHUP lets a running coordinator "
            "read the file.\n");
out:
    return rc;
}

static int add_main(int argc, char **argv)
{
    struct option_program program = {
        .variables = "OUTRIDER_KEY_ADD_",
        .example = "outrider key add keys alice --weight 2",
        .args_doc = "FILE NAME",
        .doc = "Makes an API key for NAME, prints it, and writes into FILE what it is known "
               "by.\v" CLIENT_STATUS_DOC,
        .parts = {{add_rows, NULL, NULL}},
        .take = take_file_and_name};
    return run_command(&program, argc, argv, true, add);
}

/* ---- list ---- */

static int list(struct key_command *k, struct error *err)
{
    int rc = read_file(k, false, err);
    if (rc) return rc;
    if (k->list.n) printf("%-24s %8s %8s  %s\n", "name", "weight", "max jobs", "max priority");
    for (int i = 0; i < k->list.n; i++) {
        const struct key_entry *entry = &k->list.entries[i];
        char weight[16] = "-", jobs[16] = "-";
        if (entry->weight) snprintf(weight, sizeof weight, "%d", entry->weight);
        if (entry->max_jobs) snprintf(jobs, sizeof jobs, "%d", entry->max_jobs);
        printf("%-24s %8s %8s  %s\n", entry->name, weight, jobs,
               key_priority_names[entry->max_priority]);
    }
    return client_flush(err);
}

static int list_main(int argc, char **argv)
{
    struct option_program program = {
        .args_doc = "FILE",
        .example = "outrider key list keys",
        .doc = "Lists whose API keys FILE has, and what they may do.\v" CLIENT_STATUS_DOC,
        .parts = {{no_rows, NULL, NULL}},
        .take = take_file_word};
    return run_command(&program, argc, argv, false, list);
}

/* ---- remove ---- */

/* Where line `number` begins, from 1; the end of the text if it has fewer. */
static size_t line_begin(const struct key_command *k, int number)
{
    size_t at = 0;
    for (int i = 1; i < number && at < k->len; at++) {
        if (k->text[at] == '\n') i++;
    }
    return at;
}

static int remove_key(struct key_command *k, struct error *err)
{
    struct buffer text = {0};
    int rc = 0;
    TRY(read_file(k, false, err));
    const struct key_entry *entry = find_name(k);
    if (!entry) {
        return error_set(err, ERR_ARGUMENT, "%.200s has no key of '%s'", k->path, k->name);
    }
    size_t begin = line_begin(k, entry->line), end = line_begin(k, entry->line + 1);
    TRY(buffer_append(&text, k->text, begin, err));
    TRY(buffer_append(&text, k->text + end, k->len - end, err));
    TRY(write_file(k, &text, err));
    fprintf(stderr, "SIGHUP lets a running coordinator read the file; until then the key is "
                    "good.\n");
out:
    buffer_free(&text);
    return rc;
}

static int remove_main(int argc, char **argv)
{
    struct option_program program = {
        .args_doc = "FILE NAME",
        .example = "outrider key remove keys alice",
        .doc = "Removes the API key of NAME from FILE.\v" CLIENT_STATUS_DOC,
        .parts = {{no_rows, NULL, NULL}},
        .take = take_file_and_name};
    return run_command(&program, argc, argv, true, remove_key);
}

int key_main(int argc, char **argv)
{
    static const struct client_commands commands = {
        .name = "key",
        .list = "add, list or remove",
        .help = "Usage: outrider key COMMAND [OPTION...]\n"
                "API keys in the file of outrider-coordinator --keys.\n\n"
                "Commands:\n"
                "  add     make a key and print it\n"
                "  list    whose keys there are\n"
                "  remove  take a key out of the file\n\n"
                "Example: outrider key add keys alice\n\n"
                "'outrider key COMMAND --help' tells more.\n",
        .commands = {{"add", add_main}, {"list", list_main}, {"remove", remove_main}}};
    return client_run_one(&commands, argc, argv);
}
