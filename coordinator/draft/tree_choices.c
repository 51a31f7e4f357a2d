/* Reading Medusa's choices, and the trees that they are. */
#include "coordinator/draft/tree_choices.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/system/file.h"
#include "base/text/json.h"

enum { FILE_MOST_BYTES = 1 << 20, PATHS_MOST = 1024, RANK_MOST = 255, PATH_TEXT_BYTES = 64 };

/* A path of the file. Ranks after the first DRAFT_MAX are not kept. */
struct path {
    int n;
    uint8_t ranks[DRAFT_MAX + 1];
    bool is_kept;
};

struct reading {
    const char *file;
    struct path *paths; /* [n] in the order of the file */
    int n, n_beside;    /* n_beside: kept ones that are not of the chain */
};

static const char *show(const struct path *path, int n, char text[PATH_TEXT_BYTES])
{
    size_t len = 0;
    for (int i = 0; i < n && len < PATH_TEXT_BYTES; i++) {
        len += (size_t)snprintf(text + len, PATH_TEXT_BYTES - len, "%s%d", i ? ", " : "[",
                                path->ranks[i]);
    }
    if (len < PATH_TEXT_BYTES) snprintf(text + len, PATH_TEXT_BYTES - len, "]");
    return text;
}

static int read_path(const struct reading *in, int at, const json_t *list, struct path *path,
                     struct error *err)
{
    size_t n = json_array_size(list);
    if (n == 0 || n > RANK_MOST) {
        return error_set(err, ERR_ARGUMENT,
                         "--trees choices:%s: element %d of the list must be a list of ranks, such "
                         "as [0, 1]",
                         in->file, at);
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *rank = json_array_get(list, i);
        json_int_t value = json_integer_value(rank);
        if (!json_is_integer(rank) || value < 0 || value > RANK_MOST) {
            return error_set(err, ERR_ARGUMENT,
                             "--trees choices:%s: element %d of the list has a rank that is no "
                             "number of 0 to %d",
                             in->file, at, RANK_MOST);
        }
        if (i <= DRAFT_MAX) path->ranks[i] = (uint8_t)value;
    }
    path->n = n <= DRAFT_MAX ? (int)n : DRAFT_MAX + 1;
    return 0;
}

static int read_paths(struct reading *in, const json_t *root, struct error *err)
{
    int rc = 0;
    size_t n = json_array_size(root);
    if (n == 0 || n > PATHS_MOST) {
        return error_set(err, ERR_ARGUMENT,
                         "--trees choices:%s: the file must be a list of 1 to %d lists of ranks, "
                         "such as [[0], [0, 0], [1]]",
                         in->file, PATHS_MOST);
    }
    TRY(mem_array(&in->paths, n, sizeof *in->paths, err));
    for (; in->n < (int)n; in->n++) {
        TRY(read_path(in, in->n, json_array_get(root, (size_t)in->n), &in->paths[in->n], err));
    }
out:
    return rc;
}

static int compare(const void *left, const void *right)
{
    const struct path *a = left, *b = right;
    if (a->n != b->n) return a->n - b->n;
    return memcmp(a->ranks, b->ranks, (size_t)a->n);
}

/* The first n ranks of a path, as a path of the file; NULL: there is none. */
static struct path *find(const struct reading *in, const struct path *path, int n)
{
    struct path wanted = *path;
    wanted.n = n;
    for (int i = 0; i < in->n; i++) {
        if (compare(&in->paths[i], &wanted) == 0) return &in->paths[i];
    }
    return NULL;
}

/* Paths that a round has room for are unique, and what leads to them is there. */
static int check_paths(const struct reading *in, struct error *err)
{
    char text[PATH_TEXT_BYTES], before[PATH_TEXT_BYTES];
    for (int i = 0; i < in->n; i++) {
        const struct path *path = &in->paths[i];
        if (path->n > DRAFT_MAX) continue;
        if (find(in, path, path->n) != path) {
            return error_set(err, ERR_ARGUMENT, "--trees choices:%s has %s twice", in->file,
                             show(path, path->n, text));
        }
        if (path->n == 1 || find(in, path, path->n - 1)) continue;
        return error_set(err, ERR_ARGUMENT, "--trees choices:%s has %s, but not %s before it",
                         in->file, show(path, path->n, text), show(path, path->n - 1, before));
    }
    if (find(in, &(struct path){.n = 1}, 1)) return 0;
    return error_set(err, ERR_ARGUMENT,
                     "--trees choices:%s lacks [0], the best guess for the "
                     "first place",
                     in->file);
}

static bool is_of_chain(const struct path *path)
{
    for (int i = 0; i < path->n; i++) {
        if (path->ranks[i]) return false;
    }
    return true;
}

/* The best guesses of each parent stay, whatever their order in the file. */
static bool has_room(const struct reading *in, const struct path *path)
{
    int n_better = 0;
    for (int i = 0; i < in->n; i++) {
        const struct path *other = &in->paths[i];
        n_better += other->n == path->n && compare(other, path) < 0 &&
                    memcmp(other->ranks, path->ranks, (size_t)path->n - 1) == 0;
    }
    if (n_better > SIBLINGS_MAX) return false;
    return is_of_chain(path) || in->n_beside < GROWN_MAX - 1;
}

/* Keeps what a round has room for. A path may come before that of its parent, so the file is gone
 * through until nothing is added. */
static void keep(struct reading *in)
{
    for (bool goes_on = true; goes_on;) {
        goes_on = false;
        for (int i = 0; i < in->n; i++) {
            struct path *path = &in->paths[i];
            if (path->is_kept || path->n > DRAFT_MAX) continue;
            if (path->n > 1 && !find(in, path, path->n - 1)->is_kept) continue;
            if (!has_room(in, path)) continue;
            path->is_kept = goes_on = true;
            in->n_beside += is_of_chain(path) ? 0 : 1;
        }
    }
}

static void fill(struct tree_choices *choices, struct reading *in)
{
    int n = 0;
    for (int i = 0; i < in->n; i++) {
        if (in->paths[i].is_kept) in->paths[n++] = in->paths[i];
    }
    in->n = n;
    qsort(in->paths, (size_t)n, sizeof *in->paths, compare);
    *choices = (struct tree_choices){.n = n, .n_places = in->paths[n - 1].n};
    for (int i = 0; i < n; i++) {
        const struct path *path = &in->paths[i];
        choices->parents[i] = path->n == 1 ? -1 : (int8_t)(find(in, path, path->n - 1) - in->paths);
    }
}

int tree_choices_parse(struct tree_choices *choices, const char *text, size_t len, const char *file,
                       struct error *err)
{
    struct reading in = {.file = file};
    json_t *root = NULL;
    int rc = json_parse_text(&root, text, len, file, err);
    if (rc == ERR_FORMAT) err->code = rc = ERR_ARGUMENT;
    if (rc) {
        error_wrap(err, "--trees choices");
        goto out;
    }
    TRY(read_paths(&in, root, err));
    TRY(check_paths(&in, err));
    keep(&in);
    fill(choices, &in);
out:
    free(in.paths);
    json_decref(root);
    return rc;
}

int tree_choices_read(struct tree_choices *choices, const char *file, struct error *err)
{
    char *text = NULL;
    size_t len = 0;
    int rc = file_read_text(&text, &len, file, FILE_MOST_BYTES, err);
    if (rc && rc != ERR_NO_MEMORY) err->code = rc = ERR_ARGUMENT;
    if (rc) {
        error_wrap(err, "--trees choices");
        goto out;
    }
    TRY(tree_choices_parse(choices, text, len, file, err));
out:
    free(text);
    return rc;
}

/* ---- plans ---- */

/* The node of the list that node of the plan is; -1: the root, NO_CHOICE: none. */
enum { NO_CHOICE = -2 };

static int first_child(const struct tree_choices *choices, int parent)
{
    for (int i = 0; i < choices->n; i++) {
        if (choices->parents[i] == parent) return i;
    }
    return NO_CHOICE;
}

void tree_choices_plan(const struct tree_choices *choices, int k, struct guess_tree *plan)
{
    int of_plan[TREE_NODES_MAX], of_chain = -1;
    guess_tree_begin(plan, 0);
    for (int place = 0; place < k; place++) {
        int parent = guess_tree_last(plan), first = first_child(choices, of_chain);
        of_plan[guess_tree_extend(plan, 0, -1, NULL)] = first;
        for (int i = first + 1; first >= 0 && i < choices->n; i++) {
            if (choices->parents[i] != of_chain) continue;
            of_plan[guess_tree_add(plan, parent, GUESS_SIBLING, -1, NULL)] = i;
        }
        of_chain = first;
    }
    for (int place = 1; place < k; place++) {
        for (int parent = 0, n = plan->n; parent < n; parent++) {
            if (plan->marks[parent] & GUESS_CHAIN || guess_tree_place(plan, parent) != place - 1) {
                continue;
            }
            for (int i = 0; i < choices->n; i++) {
                if (choices->parents[i] != of_plan[parent]) continue;
                of_plan[guess_tree_add(plan, parent, GUESS_GROWN, -1, NULL)] = i;
            }
        }
    }
}
