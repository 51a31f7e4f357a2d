/* The file is read word by word. What follows the name and the hash are fields NAME=VALUE. */
#include "access/key_file.h"

#include <openssl/sha.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/memory.h"
#include "base/text/options.h"

enum { LINE_BYTES = 512, SHOWN_CHARS = 80, HASH_CHARS = 2 * KEY_HASH_BYTES };

static const char name_letters[] =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
static const char blanks[] = " \t\r";
static const char key_begin[] = "or-"; /* for scanners that look for keys where none should be */

const char *const key_priority_names[N_KEY_PRIORITIES] = {"low", "normal", "high"};

/* ---- keys ---- */

int key_check_name(const char *name, struct error *err)
{
    size_t len = strlen(name);
    if (len > 0 && len < KEY_NAME_BYTES && strspn(name, name_letters) == len) return 0;
    return error_set(err, ERR_ARGUMENT,
                     "'%.*s' is no name of a key: it must have 1 to %d letters, digits, '.', '-' "
                     "or '_'",
                     SHOWN_CHARS, name, KEY_NAME_BYTES - 1);
}

void key_hash(const char *key, size_t len, uint8_t hash[KEY_HASH_BYTES])
{
    _Static_assert(KEY_HASH_BYTES == SHA256_DIGEST_LENGTH, "the hash is SHA-256");
    SHA256((const unsigned char *)key, len, hash);
}

/* Two letters a byte, and a NUL. */
static void write_hex(char *text, const uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    }
}

int key_make(char key[KEY_TEXT_BYTES], struct error *err)
{
    uint8_t bytes[KEY_RANDOM_BYTES];
    _Static_assert(sizeof key_begin + 2 * sizeof bytes == KEY_TEXT_BYTES, "the key fits");
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes) {
        return error_set(err, ERR_IO, "the system gives no random bits");
    }
    memcpy(key, key_begin, sizeof key_begin);
    write_hex(key + sizeof key_begin - 1, bytes, sizeof bytes);
    return 0;
}

/* ---- one line ---- */

static int digit_of(char letter)
{
    if (letter >= '0' && letter <= '9') return letter - '0';
    return letter >= 'a' && letter <= 'f' ? letter - 'a' + 10 : -1;
}

static int read_hash(uint8_t hash[KEY_HASH_BYTES], const char *word, struct error *err)
{
    bool is_hash = strlen(word) == HASH_CHARS;
    for (size_t i = 0; is_hash && i < KEY_HASH_BYTES; i++) {
        int high = digit_of(word[2 * i]), low = digit_of(word[2 * i + 1]);
        is_hash = high >= 0 && low >= 0;
        hash[i] = (uint8_t)(16 * high + low);
    }
    if (is_hash) return 0;
    return error_set(err, ERR_FORMAT,
                     "'%.*s' is no hash of a key: it must have %d digits and letters a to f",
                     SHOWN_CHARS, word, HASH_CHARS);
}

static int read_field(struct key_entry *entry, char *word, struct error *err)
{
    char *value = strchr(word, '=');
    int priority, rc = 0;
    if (value) *value++ = '\0';
    if (value && strcmp(word, "weight") == 0) {
        return options_int(&entry->weight, word, value, 1, KEY_WEIGHT_MAX, err);
    }
    if (value && strcmp(word, "max_jobs") == 0) {
        return options_int(&entry->max_jobs, word, value, 1, KEY_JOBS_MAX, err);
    }
    if (value && strcmp(word, "max_priority") == 0) {
        TRY(options_word(&priority, word, value, key_priority_names, N_KEY_PRIORITIES, err));
        entry->max_priority = (enum key_priority)priority;
        return 0;
    }
    rc = error_set(err, ERR_FORMAT,
                   "'%.*s' is no field: weight=W, max_jobs=N and max_priority=NAME are",
                   SHOWN_CHARS, word);
out:
    return rc;
}

/* *is_entry: false for an empty line or a comment. Cuts the line into words. */
static int read_line(struct key_entry *entry, bool *is_entry, char *line, struct error *err)
{
    char *rest = NULL, *name = strtok_r(line, blanks, &rest);
    int rc = 0;
    *is_entry = name && name[0] != '#';
    if (!*is_entry) return 0;
    *entry = (struct key_entry){.max_priority = KEY_PRIORITY_HIGH};
    TRY(key_check_name(name, err));
    memcpy(entry->name, name, strlen(name) + 1);
    const char *hash = strtok_r(NULL, blanks, &rest);
    TRY(read_hash(entry->hash, hash ? hash : "", err));
    for (char *word; (word = strtok_r(NULL, blanks, &rest)) && word[0] != '#';) {
        TRY(read_field(entry, word, err));
    }
out:
    return rc;
}

/* ---- all lines ---- */

static int check_new(const struct key_list *list, const struct key_entry *entry, struct error *err)
{
    for (int i = 0; i < list->n; i++) {
        const struct key_entry *other = &list->entries[i];
        if (strcmp(other->name, entry->name) == 0) {
            return error_set(err, ERR_FORMAT, "the name '%s' is in line %d already", entry->name,
                             other->line);
        }
        if (memcmp(other->hash, entry->hash, sizeof entry->hash) == 0) {
            return error_set(err, ERR_FORMAT, "the key of '%s' is that of line %d", entry->name,
                             other->line);
        }
    }
    if (list->n < KEYS_MAX) return 0;
    return error_set(err, ERR_FORMAT, "there are more than %d keys", KEYS_MAX);
}

/* Copies the line, because reading cuts it. */
static int add_line(struct key_list *list, size_t *capacity, const char *line, size_t len,
                    int number, struct error *err)
{
    char copy[LINE_BYTES];
    struct key_entry entry;
    bool is_entry;
    int rc = 0;
    if (len >= sizeof copy || memchr(line, '\0', len)) {
        return error_set(err, ERR_FORMAT, "the line is no text of at most %d bytes",
                         LINE_BYTES - 1);
    }
    memcpy(copy, line, len);
    copy[len] = '\0';
    TRY(read_line(&entry, &is_entry, copy, err));
    if (!is_entry) goto out;
    entry.line = number;
    TRY(check_new(list, &entry, err));
    TRY(mem_grow(&list->entries, capacity, (size_t)list->n + 1, err));
    list->entries[list->n++] = entry;
out:
    return rc;
}

int key_list_parse(struct key_list *list, const char *text, size_t len, const char *path,
                   struct error *err)
{
    const char *at = text, *end = text + len;
    size_t capacity = 0;
    int rc = 0;
    *list = (struct key_list){0};
    for (int number = 1; at < end && !rc; number++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const char *line_end = newline ? newline : end;
        rc = add_line(list, &capacity, at, (size_t)(line_end - at), number, err);
        if (rc) error_wrap(err, "%.200s:%d", path, number);
        at = newline ? newline + 1 : end;
    }
    if (rc) {
        key_list_free(list);
        if (rc == ERR_ARGUMENT) rc = err->code = ERR_FORMAT;
    }
    return rc;
}

void key_list_free(struct key_list *list)
{
    free(list->entries);
    *list = (struct key_list){0};
}

void key_entry_text(const struct key_entry *entry, char text[KEY_LINE_BYTES])
{
    char hash[HASH_CHARS + 1], weight[32] = "", jobs[32] = "", priority[32] = "";
    write_hex(hash, entry->hash, sizeof entry->hash);
    if (entry->weight) snprintf(weight, sizeof weight, " weight=%d", entry->weight);
    if (entry->max_jobs) snprintf(jobs, sizeof jobs, " max_jobs=%d", entry->max_jobs);
    if (entry->max_priority != KEY_PRIORITY_HIGH) {
        snprintf(priority, sizeof priority, " max_priority=%s",
                 key_priority_names[entry->max_priority]);
    }
    snprintf(text, KEY_LINE_BYTES, "%s %s%s%s%s\n", entry->name, hash, weight, jobs, priority);
}
