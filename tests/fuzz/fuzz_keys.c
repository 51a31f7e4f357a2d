/* ctest: libs=access */
/* Files of API keys. What is accepted is within its limits, has each name and key once, and comes
 * out of a writing and another reading as it was. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "access/key_file.h"

enum { WRITTEN_MAX = 16 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void demand(int is_true)
{
    if (!is_true) abort();
}

static void check_entry(const struct key_entry *entry)
{
    struct error err;
    demand(key_check_name(entry->name, &err) == 0);
    demand(entry->weight >= 0 && entry->weight <= KEY_WEIGHT_MAX);
    demand(entry->max_jobs >= 0 && entry->max_jobs <= KEY_JOBS_MAX);
    demand((unsigned)entry->max_priority < N_KEY_PRIORITIES);
}

static void check_unlike(const struct key_entry *a, const struct key_entry *b)
{
    demand(strcmp(a->name, b->name) != 0 && a->line < b->line);
    demand(memcmp(a->hash, b->hash, sizeof a->hash) != 0);
}

static void check_again(const struct key_list *list)
{
    char text[WRITTEN_MAX * KEY_LINE_BYTES];
    size_t len = 0;
    struct key_list again;
    struct error err;
    int n = list->n < WRITTEN_MAX ? list->n : WRITTEN_MAX;
    for (int i = 0; i < n; i++) {
        key_entry_text(&list->entries[i], text + len);
        len += strlen(text + len);
        demand(text[len - 1] == '\n');
    }
    demand(key_list_parse(&again, text, len, "again", &err) == 0);
    demand(again.n == n);
    for (int i = 0; i < n; i++) {
        struct key_entry entry = list->entries[i];
        entry.line = i + 1;
        demand(memcmp(entry.hash, again.entries[i].hash, sizeof entry.hash) == 0);
        demand(strcmp(entry.name, again.entries[i].name) == 0);
        demand(entry.weight == again.entries[i].weight);
        demand(entry.max_jobs == again.entries[i].max_jobs);
        demand(entry.max_priority == again.entries[i].max_priority);
        demand(entry.line == again.entries[i].line);
    }
    key_list_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct key_list list;
    struct error err;
    int rc = key_list_parse(&list, (const char *)data, size, "fuzz", &err);
    if (rc) {
        demand(rc == ERR_FORMAT && err.text[0] && !list.entries);
        return 0;
    }
    for (int i = 0; i < list.n; i++) {
        check_entry(&list.entries[i]);
        if (i > 0) check_unlike(&list.entries[i - 1], &list.entries[i]);
    }
    check_again(&list);
    key_list_free(&list);
    return 0;
}
