/* The handler of SIGBUS. The signal is synchronous: it comes where a thread reads guarded memory,
 * in code of ours that holds no lock of the C library, so the handler may write to the log. */
#include "base/system/file_guard.h"

#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/system/process.h"

enum { PATH_BYTES = 256 };

struct guard {
    atomic_uintptr_t begin; /* 0 = free; written last, so that the handler reads whole entries */
    size_t bytes;
    _Atomic(atomic_bool *) is_lost; /* NULL: the process ends */
    char path[PATH_BYTES];
};

static struct guard guards[FILE_GUARDS_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of those who change the table */
static bool is_installed;
static struct sigaction earlier; /* what handled the signal before */

/* The address is in the last page of a mapping, too, if that is not a whole one. */
static struct guard *find(uintptr_t address)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    for (int i = 0; i < FILE_GUARDS_MAX; i++) {
        uintptr_t begin = atomic_load(&guards[i].begin);
        if (!begin || address < begin) continue;
        if (address - begin < (guards[i].bytes + page - 1) / page * page) return &guards[i];
    }
    return NULL;
}

static void end_with(const struct guard *guard)
{
    log_line(LOG_LEVEL_ERROR, "file_lost",
             "path=%s text=\"the file became shorter while it was in use, or it cannot be read any "
             "more; replace such files by renaming a new one over them\"",
             guard->path);
    process_end_now(FILE_GUARD_EXIT);
}

/* Zeros in place of the whole file, because what is left of it makes no sense. */
static void lose(struct guard *guard, atomic_bool *is_lost)
{
    union {
        uintptr_t number;
        void *pointer;
    } begin = {.number = atomic_load(&guard->begin)};
    void *zeros = mmap(begin.pointer, guard->bytes, PROT_READ,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    if (zeros == MAP_FAILED) end_with(guard);
    atomic_store(is_lost, true);
}

static void on_bus_error(int number, siginfo_t *info, void *context)
{
    (void)context;
    struct guard *guard = info->si_code == BUS_ADRERR ? find((uintptr_t)info->si_addr) : NULL;
    if (!guard) { /* not ours: the signal comes again, for the handler that was there before */
        sigaction(number, &earlier, NULL);
        if (info->si_code <= 0) raise(number); /* a process has sent it */
        return;
    }
    atomic_bool *is_lost = atomic_load(&guard->is_lost);
    if (!is_lost) end_with(guard);
    lose(guard, is_lost);
}

/* With the lock held. */
static void install(void)
{
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
    if (is_installed) return;
    sigemptyset(&action.sa_mask);
    tzset(); /* so that the log's line takes no memory in the handler */
    is_installed = sigaction(SIGBUS, &action, &earlier) == 0;
}

static struct guard *entry_of(uintptr_t begin)
{
    for (int i = 0; i < FILE_GUARDS_MAX; i++) {
        if (atomic_load(&guards[i].begin) == begin) return &guards[i];
    }
    return NULL;
}

void file_guard_add(const void *data, size_t bytes, const char *path)
{
    pthread_mutex_lock(&lock);
    struct guard *guard = entry_of(0);
    if (guard) {
        install();
        guard->bytes = bytes;
        atomic_store(&guard->is_lost, NULL);
        snprintf(guard->path, sizeof guard->path, "%s", path);
        atomic_store(&guard->begin, (uintptr_t)data);
    }
    pthread_mutex_unlock(&lock);
}

void file_guard_remove(const void *data)
{
    pthread_mutex_lock(&lock);
    struct guard *guard = data ? entry_of((uintptr_t)data) : NULL;
    if (guard) atomic_store(&guard->begin, 0);
    pthread_mutex_unlock(&lock);
}

bool file_guard_set_flag(const void *data, atomic_bool *is_lost)
{
    pthread_mutex_lock(&lock);
    struct guard *guard = data ? entry_of((uintptr_t)data) : NULL;
    if (guard) atomic_store(&guard->is_lost, is_lost);
    pthread_mutex_unlock(&lock);
    return guard != NULL;
}
