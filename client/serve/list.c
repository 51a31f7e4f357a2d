/* outrider list: the models that can be served from this machine's disk. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/system/hub_cache.h"
#include "base/text/ending.h"
#include "client/client.h"
#include "client/describe_model.h"
#include "client/terminal.h"

enum { ROWS_MAX = 1024, FOLDERS_MAX = 64, ARCHITECTURE_COLUMNS = 28 };

struct row {
    char *name; /* as `outrider serve` takes it */
    struct model_facts facts;
    bool is_unread;
    struct error why; /* if is_unread */
};

struct list {
    bool is_json;
    const char *folders[FOLDERS_MAX];
    int n_folders;
    struct row rows[ROWS_MAX];
    int n;
};

#define FIELD(member) OPTION_FIELD(struct list, member)

static const struct option_row rows[] = {
    {"json", 0, NULL, FIELD(is_json), .help = "Print one JSON object"},
    {0},
};

static const char doc[] =
    "Lists models by the names that `outrider serve` takes: those of the Hugging Face cache, or of "
    "the folders that are named, with kind, size and family.\v"
    "A folder is one model, or has models and GGUF files in it.\n\n" CLIENT_STATUS_DOC;

static int take_folder(void *fields, char *word, struct error *err)
{
    struct list *list = fields;
    if (list->n_folders == FOLDERS_MAX) {
        return error_set(err, ERR_ARGUMENT, "more than %d folders", FOLDERS_MAX);
    }
    list->folders[list->n_folders++] = word;
    return 0;
}

/* ---- finding ---- */

static void add(struct list *list, const char *name)
{
    struct row *row = &list->rows[list->n];
    if (list->n == ROWS_MAX) return;
    *row = (struct row){.name = strdup(name)};
    if (!row->name) return;
    list->n++;
    row->is_unread = describe_model_facts(&row->facts, name, &row->why) != 0;
}

static bool is_there(const char *folder, const char *name)
{
    char path[HUB_PATH_BYTES];
    struct stat st;
    int len = snprintf(path, sizeof path, "%s/%s", folder, name);
    return len < (int)sizeof path && stat(path, &st) == 0;
}

/* True for a GGUF file, and of a split model for its first file. */
static bool is_gguf(const char *name)
{
    const char *of = strstr(name, "-of-");
    bool is_first = !of || of - name < 6 || strncmp(of - 6, "-00001", 6) == 0;
    return ending_is(name, ".gguf") && is_first;
}

/* Adds the GGUF files of a folder, and its folders that have a config.json if is_deep.
 * Returns how many there were. */
static int add_inside(struct list *list, const char *folder, bool is_deep)
{
    char path[HUB_PATH_BYTES];
    struct dirent *entry;
    int before = list->n;
    DIR *open = opendir(folder);
    while (open && (entry = readdir(open))) {
        if (entry->d_name[0] == '.') continue;
        int len = (int)strlen(folder);
        while (len > 1 && folder[len - 1] == '/')
            len--;
        snprintf(path, sizeof path, "%.*s/%s", len, folder, entry->d_name);
        if (is_gguf(entry->d_name) || (is_deep && is_there(path, "config.json"))) add(list, path);
    }
    if (open) closedir(open);
    return list->n - before;
}

/* A model of the cache that is a folder of GGUF files has their paths as names. */
static void add_cached(void *arg, const char *name)
{
    char path[HUB_PATH_BYTES];
    struct error ignored;
    bool is_whole = hub_cache_resolve(path, name, &ignored) == 0;
    if (is_whole && !is_there(path, "config.json") && add_inside(arg, path, false) > 0) return;
    add(arg, name);
}

static int add_folder(struct list *list, const char *folder, struct error *err)
{
    struct stat st;
    if (stat(folder, &st)) {
        return error_set(err, ERR_NOT_FOUND, "there is no folder %.200s", folder);
    }
    if (!S_ISDIR(st.st_mode) || is_there(folder, "config.json")) {
        add(list, folder);
    } else {
        add_inside(list, folder, true);
    }
    return 0;
}

static int compare(const void *a, const void *b)
{
    return strcmp(((const struct row *)a)->name, ((const struct row *)b)->name);
}

/* ---- printing ---- */

static const char *kind_of(const struct row *row)
{
    if (row->is_unread) return "not read";
    if (row->facts.is_head) return "head";
    return row->facts.is_gguf ? "GGUF" : "folder";
}

static void print_table(const struct list *list)
{
    const struct terminal terminal = terminal_of(stdout);
    for (int i = 0; i < list->n; i++) {
        const struct row *row = &list->rows[i];
        if (i == 0)
            printf("%-8s  %9s  %-*s  name\n", "kind", "size", ARCHITECTURE_COLUMNS, "family");
        if (row->is_unread) {
            printf("%-8s  %9s  %-*s  ", kind_of(row), "", ARCHITECTURE_COLUMNS, "");
        } else {
            printf("%-8s  %6.1f MB  %-*s  ", kind_of(row), (double)row->facts.weight_bytes * 1e-6,
                   ARCHITECTURE_COLUMNS, row->facts.architecture);
        }
        terminal_quoted(&terminal, row->name, strlen(row->name));
        if (row->is_unread) fputs(": ", stdout);
        if (row->is_unread) terminal_quoted(&terminal, row->why.text, strlen(row->why.text));
        fputc('\n', stdout);
    }
}

static json_t *row_json(const struct row *row)
{
    json_t *name = client_json_text(row->name, strlen(row->name));
    if (row->is_unread) {
        return json_pack("{so ss ss}", "name", name, "kind", "not read", "why", row->why.text);
    }
    return json_pack("{so ss ss sI sI}", "name", name, "kind", kind_of(row), "family",
                     row->facts.architecture, "weight_bytes", (json_int_t)row->facts.weight_bytes,
                     "parameters", (json_int_t)row->facts.n_parameters);
}

static int print_list(const struct list *list, const char *cache, struct error *err)
{
    if (list->is_json) {
        json_t *models = json_array();
        for (int i = 0; i < list->n; i++)
            json_array_append_new(models, row_json(&list->rows[i]));
        return client_print_json(json_pack("{so}", "models", models), err);
    }
    print_table(list);
    if (list->n == 0) {
        fprintf(stderr, "outrider: no models in %s; `hf download ORG/NAME` gets one\n",
                list->n_folders ? "these folders" : cache);
    }
    return client_flush(err);
}

int model_list_main(int argc, char **argv)
{
    static struct list list;
    struct error err;
    char cache[HUB_PATH_BYTES] = "";
    const struct option_program program = {.variables = "OUTRIDER_LIST_",
                                           .example = "outrider list models",
                                           .name = "list",
                                           .doc = doc,
                                           .args_doc = "[FOLDER...]",
                                           .parts = {{rows, &list, NULL}},
                                           .take = take_folder};
    int rc = option_program_parse(&program, argc, argv, &err);
    if (rc) return client_fail_local(&err);
    for (int i = 0; i < list.n_folders && !rc; i++)
        rc = add_folder(&list, list.folders[i], &err);
    if (list.n_folders == 0) hub_cache_list(cache, add_cached, &list);
    qsort(list.rows, (size_t)list.n, sizeof *list.rows, compare);
    if (!rc) rc = print_list(&list, cache[0] ? cache : "a Hugging Face cache", &err);
    for (int i = 0; i < list.n; i++)
        free(list.rows[i].name);
    return rc ? client_fail(&err) : CLIENT_OK;
}
