/* Reading lists of names. */
#include "base/text/name_list.h"

#include <stdio.h>
#include <string.h>

enum { SHOWN_MAX = 60, NAMES_BYTES = 160, PROBLEM_BYTES = 160 };

static int refuse(const struct name_list *list, const char *text, const char *problem,
                  struct error *err)
{
    char names[NAMES_BYTES] = "";
    size_t n = 0;
    for (int i = 0; i < list->n && n < sizeof names; i++) {
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s%s", i ? ", " : "",
                              list->names[i].name, list->names[i].takes_file ? "=FILE" : "");
    }
    return error_set(err, ERR_ARGUMENT, "%s %.*s: %s; expected %scomma-separated names from: %s",
                     list->option, SHOWN_MAX, text, problem, list->may_be_none ? "none or " : "",
                     names);
}

/* True if word[len] is this name, or, of a name that takes a file, the name with "=" after it. */
static bool is_named(const struct name_list_name *name, const char *word, size_t len)
{
    size_t own = strlen(name->name);
    if (len < own || memcmp(name->name, word, own) != 0) return false;
    return len == own || (name->takes_file && word[own] == '=');
}

/* The word's name in the list; -1: it has none. */
static int find(const struct name_list *list, const char *word, size_t len)
{
    for (int i = 0; i < list->n; i++) {
        if (is_named(&list->names[i], word, len)) return i;
    }
    return -1;
}

/* problem: what is wrong with the word; "" = nothing. */
static void read_word(const struct name_list *list, const char *word, size_t len, unsigned *seen,
                      struct name_list_item *item, char problem[PROBLEM_BYTES])
{
    *item = (struct name_list_item){.index = find(list, word, len)};
    problem[0] = '\0';
    if (item->index < 0) {
        snprintf(problem, PROBLEM_BYTES, "'%.*s' is not known",
                 len < SHOWN_MAX ? (int)len : SHOWN_MAX, word);
        return;
    }
    const struct name_list_name *name = &list->names[item->index];
    if (*seen & 1U << item->index) {
        snprintf(problem, PROBLEM_BYTES, "%s is named twice", name->name);
    }
    *seen |= 1U << item->index;
    if (!name->takes_file) return;
    size_t own = strlen(name->name);
    item->file_len = len > own ? len - own - 1 : 0;
    item->file = item->file_len > 0 ? word + own + 1 : NULL;
    if (item->file_len > 0) return;
    snprintf(problem, PROBLEM_BYTES, "the name of the file after %s= is missing", name->name);
}

int name_list_read(const struct name_list *list, const char *text, struct name_list_item *items,
                   int *n, struct error *err)
{
    unsigned seen = 0;
    *n = 0;
    if (list->may_be_none && strcmp(text, "none") == 0) return 0;
    for (const char *word = text;; word++) {
        char problem[PROBLEM_BYTES];
        struct name_list_item item;
        size_t len = strcspn(word, ",");
        read_word(list, word, len, &seen, &item, problem);
        if (problem[0]) return refuse(list, text, problem, err);
        items[(*n)++] = item;
        word += len;
        if (!*word) return 0;
    }
}
