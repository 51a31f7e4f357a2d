/* Names that were mistyped. Part of every program, before argp. */
#include "base/text/option_names.h"

#include <string.h>

#include "base/least.h"

enum { WORD_MAX = 40, NAMES_MAX = 512 };

/* All options of a command line. */
struct option_set {
    const struct argp_option *options[NAMES_MAX];
    int n;
};

/* Edit distance of a and b, where neighbours that are exchanged count once (Damerau; Wagner and
 * Fischer 1974). Words that are too long are far from everything. */
static int distance(const char *a, const char *b)
{
    int rows[3][WORD_MAX + 1];
    int n_a = (int)strnlen(a, WORD_MAX + 1), n_b = (int)strnlen(b, WORD_MAX + 1);
    if (n_a > WORD_MAX || n_b > WORD_MAX) return WORD_MAX;
    for (int j = 0; j <= n_b; j++)
        rows[0][j] = j;
    for (int i = 1; i <= n_a; i++) {
        int *row = rows[i % 3], *above = rows[(i + 2) % 3], *second = rows[(i + 1) % 3];
        row[0] = i;
        for (int j = 1; j <= n_b; j++) {
            row[j] = least(least(above[j], row[j - 1]) + 1, above[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                row[j] = least(row[j], second[j - 2] + 1);
            }
        }
    }
    return rows[n_a % 3][n_b];
}

const char *option_names_nearest(const char *word, const char *const *names, int n)
{
    int most = ((int)strnlen(word, WORD_MAX) + 2) / 3, best = most + 1;
    const char *nearest = NULL;
    for (int i = 0; i < n; i++) {
        int d = distance(word, names[i]);
        if (d < best) {
            best = d;
            nearest = names[i];
        }
    }
    return nearest;
}

static void collect(struct option_set *set, const struct argp *argp)
{
    const struct argp_option *option = argp->options;
    for (; option && (option->name || option->key || option->doc); option++) {
        if (set->n < NAMES_MAX && !(option->flags & OPTION_DOC)) set->options[set->n++] = option;
    }
    for (const struct argp_child *child = argp->children; child && child->argp; child++)
        collect(set, child->argp);
}

static const struct argp_option *find_key(const struct option_set *set, char key)
{
    for (int i = 0; i < set->n; i++) {
        if (set->options[i]->key == key) return set->options[i];
    }
    return NULL;
}

/* The option of this long name, or the first that begins so. */
static const struct argp_option *find_name(const struct option_set *set, const char *name,
                                           size_t len)
{
    const struct argp_option *found = NULL;
    for (int i = 0; i < set->n; i++) {
        const char *own = set->options[i]->name;
        if (!own || strncmp(own, name, len) != 0) continue;
        if (!own[len]) return set->options[i];
        if (!found) found = set->options[i];
    }
    return found;
}

static bool takes_next_word(const struct argp_option *option)
{
    return option->arg && !(option->flags & OPTION_ARG_OPTIONAL);
}

static int refuse_host_or_port(const struct option_set *set, const char *name, struct error *err)
{
    static const char *const doors[] = {"listen", "address"};
    const char *http = find_name(set, "http", 4) ? ", or --http=HOST:PORT for HTTP" : "";
    for (int i = 0; i < 2; i++) {
        if (!find_name(set, doors[i], strlen(doors[i]))) continue;
        return error_set(err, ERR_ARGUMENT,
                         "--%s is not an option; host and port are given together: "
                         "--%s=HOST:PORT%s; see --help",
                         name, doors[i], http);
    }
    return error_set(err, ERR_ARGUMENT, "--%s is not an option; see --help", name);
}

static int refuse(const struct option_set *set, const char *word, size_t len, struct error *err)
{
    char name[WORD_MAX + 1];
    const char *names[NAMES_MAX], *nearest;
    int n = 0;
    size_t kept = len < WORD_MAX ? len : WORD_MAX;
    memcpy(name, word, kept);
    name[kept] = '\0';
    if (strcmp(name, "host") == 0 || strcmp(name, "port") == 0) {
        return refuse_host_or_port(set, name, err);
    }
    for (int i = 0; i < set->n; i++) {
        int flags = set->options[i]->flags;
        bool is_shown = !(flags & OPTION_HIDDEN) || flags & OPTION_NAMES_SUGGESTED;
        if (set->options[i]->name && is_shown) names[n++] = set->options[i]->name;
    }
    nearest = option_names_nearest(name, names, n);
    if (nearest) {
        return error_set(err, ERR_ARGUMENT, "--%s is not an option; do you mean --%s? See --help",
                         name, nearest);
    }
    return error_set(err, ERR_ARGUMENT, "--%s is not an option; see --help", name);
}

/* A word that begins with one '-'. Returns whether the next word is the value of its last
 * letter. */
static bool read_letters(const struct option_set *set, char **word)
{
    const struct argp_option *option;
    if (strcmp(*word, "-h") == 0 && !find_key(set, 'h')) {
        static char help[] = "--help";
        *word = help;
        return false;
    }
    for (const char *letter = *word + 1; *letter; letter++) {
        option = find_key(set, *letter);
        if (!option) return false;
        if (option->arg) return !letter[1] && takes_next_word(option);
    }
    return false;
}

int option_names_check(const struct argp *argp, int argc, char **argv, bool in_order,
                       struct error *err)
{
    static const struct argp_option own[] = {{"help", '?', NULL, 0, "", 0},
                                             {"usage", 0, NULL, 0, "", 0},
                                             {"version", 'V', NULL, 0, "", 0},
                                             {0}};
    const struct argp always = {.options = own};
    struct option_set set = {.n = 0};
    collect(&set, argp);
    collect(&set, &always);
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        if (strcmp(word, "--") == 0) return 0;
        if (word[0] != '-' || !word[1]) {
            if (in_order) return 0;
        } else if (word[1] != '-') {
            if (read_letters(&set, &argv[i])) i++;
        } else {
            size_t len = strcspn(word + 2, "=");
            const struct argp_option *option = find_name(&set, word + 2, len);
            if (!option) return refuse(&set, word + 2, len, err);
            if (!word[2 + len] && takes_next_word(option)) i++;
        }
    }
    return 0;
}
