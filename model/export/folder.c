/* Writing a folder so that it exists as a whole or not at all. */
#include "model/export/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/memory.h"

enum { PATH_BYTES = 4096 };

static int join(char path[PATH_BYTES], const struct export_folder *folder, const char *name,
                const char *suffix, struct error *err)
{
    int len = snprintf(path, PATH_BYTES, "%s/%s%s", folder->path, name, suffix);
    if (len < PATH_BYTES) return 0;
    return error_set(err, ERR_ARGUMENT, "the path of %s in %.100s... is too long", name,
                     folder->path);
}

static int check_empty(const char *path, struct error *err)
{
    DIR *dir = opendir(path);
    const struct dirent *entry;
    int rc = 0;
    if (!dir) return error_set(err, ERR_IO, "cannot open %s: %s", path, strerror(errno));
    while (!rc && (entry = readdir(dir))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        rc =
            error_set(err, ERR_ARGUMENT,
                      "%s is not empty (it holds %.80s): nothing is overwritten; name a new folder "
                      "or empty this one",
                      path, entry->d_name);
    }
    closedir(dir);
    return rc;
}

int export_folder_open(struct export_folder *folder, const char *path, struct error *err)
{
    *folder = (struct export_folder){.path = path};
    if (mkdir(path, 0777) == 0) {
        folder->is_made = true;
        return 0;
    }
    if (errno != EEXIST) {
        return error_set(err, ERR_IO, "cannot make the folder %s: %s", path, strerror(errno));
    }
    int rc = check_empty(path, err);
    if (!rc && access(path, W_OK | X_OK)) {
        rc = error_set(err, ERR_IO, "cannot write in %s: %s", path, strerror(errno));
    }
    return rc;
}

/* Removes files under both names, because publishing may have stopped in the middle. */
static void remove_all(const struct export_folder *folder)
{
    static const char *const suffixes[] = {".partial", ""};
    char path[PATH_BYTES];
    struct error ignored;
    for (size_t i = 0; i < 2 * folder->n_names; i++) {
        if (!join(path, folder, folder->names[i / 2], suffixes[i % 2], &ignored)) unlink(path);
    }
    if (folder->is_made) rmdir(folder->path);
}

void export_folder_close(struct export_folder *folder)
{
    if (folder->file) fclose(folder->file);
    if (folder->path && !folder->is_complete) remove_all(folder);
    free(folder->names);
    *folder = (struct export_folder){0};
}

int export_folder_needs(const struct export_folder *folder, uint64_t bytes, struct error *err)
{
    struct statvfs disk;
    if (statvfs(folder->path, &disk)) return 0; /* unknown: writing will tell */
    uint64_t free_bytes = (uint64_t)disk.f_bavail * disk.f_frsize;
    if (bytes <= free_bytes) return 0;
    return error_set(err, ERR_IO, "the export needs %.1f GB, but the disk of %s has %.1f GB free",
                     (double)bytes * 1e-9, folder->path, (double)free_bytes * 1e-9);
}

static int add_name(struct export_folder *folder, const char *name, struct error *err)
{
    int rc = mem_grow(&folder->names, &folder->capacity, folder->n_names + 1, err);
    if (rc) return rc;
    snprintf(folder->names[folder->n_names++], EXPORT_NAME_BYTES, "%s", name);
    return 0;
}

static int write_error(const struct export_folder *folder, struct error *err)
{
    return error_set(err, ERR_IO, "cannot write %s/%s: %s", folder->path,
                     folder->names[folder->n_names - 1], strerror(errno));
}

int export_file_begin(struct export_folder *folder, const char *name, struct error *err)
{
    char path[PATH_BYTES];
    int rc = 0;
    TRY(join(path, folder, name, ".partial", err));
    TRY(add_name(folder, name, err));
    folder->file = fopen(path, "wbx");
    if (!folder->file) rc = write_error(folder, err);
out:
    return rc;
}

int export_file_write(struct export_folder *folder, const void *data, size_t n_bytes,
                      struct error *err)
{
    if (n_bytes == 0 || fwrite(data, 1, n_bytes, folder->file) == n_bytes) return 0;
    return write_error(folder, err);
}

int export_file_end(struct export_folder *folder, struct error *err)
{
    int rc = 0;
    if (fflush(folder->file) || fsync(fileno(folder->file))) rc = write_error(folder, err);
    if (fclose(folder->file) && !rc) rc = write_error(folder, err);
    folder->file = NULL;
    return rc;
}

int export_file_whole(struct export_folder *folder, const char *name, const void *data,
                      size_t n_bytes, struct error *err)
{
    int rc = 0;
    TRY(export_file_begin(folder, name, err));
    TRY(export_file_write(folder, data, n_bytes, err));
    TRY(export_file_end(folder, err));
out:
    return rc;
}

/* The new names are on the disk only when the folder itself is. */
static int sync_folder(const struct export_folder *folder, struct error *err)
{
    int rc = 0, fd = open(folder->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || (fsync(fd) && errno != EINVAL)) {
        rc = error_set(err, ERR_IO, "cannot write %s: %s", folder->path, strerror(errno));
    }
    if (fd >= 0) close(fd);
    return rc;
}

int export_folder_publish(struct export_folder *folder, struct error *err)
{
    char from[PATH_BYTES], to[PATH_BYTES];
    int rc = 0;
    for (size_t i = 0; i < folder->n_names; i++) {
        TRY(join(from, folder, folder->names[i], ".partial", err));
        TRY(join(to, folder, folder->names[i], "", err));
        if (rename(from, to)) {
            rc = error_set(err, ERR_IO, "cannot rename %s to %s: %s", from, folder->names[i],
                           strerror(errno));
            goto out;
        }
    }
    TRY(sync_folder(folder, err));
    folder->is_complete = true;
out:
    return rc;
}
