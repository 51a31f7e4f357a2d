/* Files that an engine keeps. */
#include "coordinator/engine/kept_json.h"

#include <stdlib.h>
#include <string.h>

#include "base/system/file.h"
#include "base/system/file_write.h"

int kept_json_write(const char *path, json_t *root, struct error *err)
{
    int rc = 0;
    char *folder = strdup(path), *text = root ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    if (!folder || !text) {
        rc = error_set(err, ERR_NO_MEMORY, "no memory for what is kept in %.200s", path);
        goto out;
    }
    *strrchr(folder, '/') = '\0';
    TRY(file_make_folder(folder, err));
    rc = file_replace(path, text, strlen(text), err);
out:
    free(folder);
    free(text);
    return rc;
}
