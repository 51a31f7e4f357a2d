/* API keys and the file that lists them, one a line:
 *
 *     # name  SHA-256 of the key  what it may do
 *     alice   9f86d081...0f00a08  weight=4 max_jobs=8 max_priority=normal
 *
 * The file has no key in it, only what a key is known by. A key is 256 random bits, so nothing is
 * gained by a slower hash than SHA-256. `outrider key` writes the file and the coordinator reads
 * it. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum {
    KEY_NAME_BYTES = 65, /* with its NUL */
    KEY_HASH_BYTES = 32,
    KEY_RANDOM_BYTES = 32,
    KEY_TEXT_BYTES = 68,  /* of a key that key_make makes, with its NUL */
    KEY_LINE_BYTES = 256, /* of a line that key_entry_text writes, with its NUL */
    KEY_WEIGHT_MAX = 1000,
    KEY_JOBS_MAX = 1000000,
    KEYS_MAX = 4096,
    KEY_FILE_BYTES_MAX = 1 << 20
};

enum key_priority { KEY_PRIORITY_LOW, KEY_PRIORITY_NORMAL, KEY_PRIORITY_HIGH, N_KEY_PRIORITIES };
extern const char *const key_priority_names[N_KEY_PRIORITIES];

/* A line of the file. */
struct key_entry {
    char name[KEY_NAME_BYTES]; /* letters, digits, '.', '-' and '_' */
    uint8_t hash[KEY_HASH_BYTES];
    int weight;   /* its share where jobs wait, relative to others; 0, the default = not said */
    int max_jobs; /* that may wait or run at once; 0, the default = any number */
    enum key_priority max_priority; /* that its jobs get when they ask for more; default high */
    int line;                       /* of the file, from 1 */
};

struct key_list {
    struct key_entry *entries; /* [n] in the order of the file */
    int n;
};

/* Reads the text of a file, in which no name and no key may be twice; path is for messages.
 * Errors: ERR_FORMAT, with path and line; ERR_NO_MEMORY. */
int key_list_parse(struct key_list *list, const char *text, size_t len, const char *path,
                   struct error *err);
void key_list_free(struct key_list *list);

/* The line of an entry, with a newline; defaults are left out. */
void key_entry_text(const struct key_entry *entry, char text[KEY_LINE_BYTES]);

/* Errors: ERR_ARGUMENT the name is empty, too long or has another character. */
int key_check_name(const char *name, struct error *err);

/* A new random key. Errors: ERR_IO the system gives no random bits. */
int key_make(char key[KEY_TEXT_BYTES], struct error *err);
void key_hash(const char *key, size_t len, uint8_t hash[KEY_HASH_BYTES]);
