/* Where the key comes from, and who shows it. */
#include "access/group_key.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "access/authorization.h"
#include "access/secret.h"
#include "base/system/file.h"

enum { FILE_BYTES_MAX = 4096 };

static const char variable[] = "OUTRIDER_GROUP_KEY";

static bool is_good(const char *text)
{
    size_t len = strlen(text);
    for (size_t i = 0; i < len; i++) {
        if (text[i] <= ' ' || text[i] > '~') return false;
    }
    return len >= GROUP_KEY_CHARS_MIN && len < GROUP_KEY_BYTES;
}

static int take(struct group_key *key, const char *text, const char *where, struct error *err)
{
    if (!is_good(text)) {
        return error_set(err, ERR_FORMAT,
                         "%s holds no group key, which is a line of %d to %d letters, digits and "
                         "signs; 'openssl rand -hex 32' makes one",
                         where, GROUP_KEY_CHARS_MIN, GROUP_KEY_BYTES - 1);
    }
    snprintf(key->text, sizeof key->text, "%s", text);
    return 0;
}

static int check_mode(const char *path, struct error *err)
{
    struct stat st;
    if (stat(path, &st) || !(st.st_mode & (S_IROTH | S_IWOTH | S_IWGRP))) return 0;
    return error_set(err, ERR_FORMAT,
                     "the group key %s can be read or written by others than its owner: chmod "
                     "go-w,o-r %s",
                     path, path);
}

bool group_key_is_given(const char *path)
{
    const char *value = getenv(variable);
    return path || (value && *value);
}

int group_key_open(struct group_key *key, const char *path, struct error *err)
{
    char *text = NULL;
    size_t len;
    int rc = 0;
    *key = (struct group_key){0};
    if (!path) {
        const char *value = getenv(variable);
        return value && *value ? take(key, value, variable, err) : 0;
    }
    rc = file_read_text(&text, &len, path, FILE_BYTES_MAX, err);
    if (rc && is_good(path) && !strchr(path, '/')) { /* a key must not get into the log */
        rc = error_set(err, ERR_ARGUMENT,
                       "--group-key names a file that cannot be read; a key itself goes into %s",
                       variable);
    }
    if (rc) goto out;
    TRY(check_mode(path, err));
    text[strcspn(text, "\r\n")] = '\0';
    TRY(take(key, text, path, err));
out:
    free(text);
    return rc;
}

const char *group_key_text(const struct group_key *key)
{
    return key->text[0] ? key->text : NULL;
}

int group_key_admit(void *state, const char *authorization, size_t len, void **caller,
                    struct error *err)
{
    const struct group_key *key = state;
    struct authorization shown;
    (void)caller;
    int rc = authorization ? authorization_read(&shown, authorization, len, err) : 1;
    if (!rc && secret_is(shown.key, shown.len, key->text)) return 0;
    return error_set(err, ERR_UNAUTHENTICATED,
                     "this group serves those who have its key: give --group-key FILE, or set %s",
                     variable);
}
