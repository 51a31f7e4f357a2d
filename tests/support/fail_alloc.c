/* Allocations that fail when a test wants it. */
#include "tests/support/fail_alloc.h"

#include <dirent.h>
#include <errno.h>
#include <execinfo.h>
#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <xxhash.h>

#include "tests/support/sleep_util.h"

enum { TABLE_SIZE = 1 << 20, TRACE_CALLS = 40, PATIENCE_MS = 2000, PAGE_BYTES = 4096 };

/* ---- which allocation fails ---- */

static struct {
    atomic_bool is_armed;
    enum fail_threads threads;
    int kinds;
    long n;
    pthread_t thread; /* that armed it */
    atomic_long n_seen;
} armed;

void fail_alloc_arm(enum fail_threads threads, int kinds, long n)
{
    armed.threads = threads;
    armed.kinds = kinds;
    armed.n = n;
    armed.thread = pthread_self();
    atomic_store(&armed.n_seen, 0);
    atomic_store(&armed.is_armed, true);
}

bool fail_alloc_disarm(void)
{
    atomic_store(&armed.is_armed, false);
    return atomic_load(&armed.n_seen) >= armed.n;
}

static void show_trace(void)
{
    void *calls[TRACE_CALLS];
    int n = backtrace(calls, TRACE_CALLS);
    fprintf(stderr, "allocation %ld fails:\n", armed.n);
    backtrace_symbols_fd(calls, n, STDERR_FILENO);
}

/* FAIL_LIBRARIES while a library allocates by a function of ours. */
static _Thread_local int kind = FAIL_OURS;

/* Counts an allocation; true if it is the one that fails. */
static bool is_failing(void)
{
    if (!atomic_load(&armed.is_armed) || !(armed.kinds & kind)) return false;
    bool is_this = pthread_equal(pthread_self(), armed.thread);
    if (is_this != (armed.threads == FAIL_THIS_THREAD)) return false;
    if (atomic_fetch_add(&armed.n_seen, 1) + 1 != armed.n) return false;
    if (getenv("FAIL_ALLOC_TRACE")) show_trace();
    errno = ENOMEM;
    return true;
}

/* ---- what is allocated: a table of addresses, so that blocks of others may be freed here ---- */

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *block, size_t size);
void __real_free(void *block);

static uintptr_t table[TABLE_SIZE]; /* open addressing, linear probing; 0 = empty */
static long n_blocks;
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_long mapped_bytes;

static size_t home_of(uintptr_t block)
{
    return (size_t)((uint64_t)block * 0x9E3779B97F4A7C15u >> 44) % TABLE_SIZE;
}

static void *note(void *block)
{
    if (!block) return NULL;
    pthread_mutex_lock(&table_lock);
    if (n_blocks == TABLE_SIZE / 2) abort(); /* libcheck's own asserts allocate */
    size_t at = home_of((uintptr_t)block);
    while (table[at]) {
        at = (at + 1) % TABLE_SIZE;
    }
    table[at] = (uintptr_t)block;
    n_blocks++;
    pthread_mutex_unlock(&table_lock);
    return block;
}

/* Moves the following entries up, so that a search never meets a hole. */
static void close_hole(size_t hole)
{
    for (size_t at = (hole + 1) % TABLE_SIZE; table[at]; at = (at + 1) % TABLE_SIZE) {
        size_t way = (at - home_of(table[at])) % TABLE_SIZE;
        if (way < (at - hole) % TABLE_SIZE) continue;
        table[hole] = table[at];
        hole = at;
    }
    table[hole] = 0;
}

static void forget(const void *block)
{
    if (!block) return;
    pthread_mutex_lock(&table_lock);
    size_t at = home_of((uintptr_t)block);
    while (table[at] && table[at] != (uintptr_t)block) {
        at = (at + 1) % TABLE_SIZE;
    }
    if (table[at]) {
        close_hole(at);
        n_blocks--;
    }
    pthread_mutex_unlock(&table_lock);
}

static long count_files(void)
{
    DIR *folder = opendir("/proc/self/fd");
    long n = 0;
    while (folder && readdir(folder)) {
        n++;
    }
    if (folder) closedir(folder);
    return n;
}

struct fail_alloc_live fail_alloc_live(void)
{
    pthread_mutex_lock(&table_lock);
    long n = n_blocks;
    pthread_mutex_unlock(&table_lock);
    return (struct fail_alloc_live){n, atomic_load(&mapped_bytes), count_files()};
}

/* ---- our own calls ---- */

void *__wrap_malloc(size_t size);
void *__wrap_malloc(size_t size)
{
    return is_failing() ? NULL : note(__real_malloc(size));
}

void *__wrap_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size)
{
    return is_failing() ? NULL : note(__real_calloc(n, size));
}

void *__wrap_realloc(void *block, size_t size);
void *__wrap_realloc(void *block, size_t size)
{
    if (is_failing()) return NULL;
    forget(block);
    void *grown = __real_realloc(block, size);
    note(grown ? grown : block);
    return grown;
}

void __wrap_free(void *block);
void __wrap_free(void *block)
{
    forget(block);
    __real_free(block);
}

int __real_posix_memalign(void **block, size_t align, size_t size);
int __wrap_posix_memalign(void **block, size_t align, size_t size);
int __wrap_posix_memalign(void **block, size_t align, size_t size)
{
    if (is_failing()) return ENOMEM;
    int failure = __real_posix_memalign(block, align, size);
    if (!failure) note(*block);
    return failure;
}

char *__real_strdup(const char *text);
char *__wrap_strdup(const char *text);
char *__wrap_strdup(const char *text)
{
    return is_failing() ? NULL : note(__real_strdup(text));
}

static long pages_of(size_t size)
{
    return (long)((size + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES);
}

void *__real_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
    if (is_failing()) return MAP_FAILED;
    void *map = __real_mmap(at, size, protection, flags, fd, offset);
    if (map != MAP_FAILED) atomic_fetch_add(&mapped_bytes, pages_of(size));
    return map;
}

int __real_munmap(void *at, size_t size);
int __wrap_munmap(void *at, size_t size);
int __wrap_munmap(void *at, size_t size)
{
    atomic_fetch_sub(&mapped_bytes, pages_of(size));
    return __real_munmap(at, size);
}

FILE *__real_fopen(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode)
{
    return is_failing() ? NULL : __real_fopen(path, mode);
}

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*start)(void *), void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*start)(void *), void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*start)(void *), void *arg)
{
    return is_failing() ? EAGAIN : __real_pthread_create(thread, attributes, start, arg);
}

/* ---- libraries ---- */

static json_malloc_t json_allocate = __wrap_malloc; /* what base/text/json.c has chosen */

/* jansson 2.14 does not survive when the buffer of a token cannot grow: it drops a character, then
 * one of its asserts may fail, and if the character is the quote that ends a string it reads on
 * past the buffer. So the place in jansson that allocates this buffer is found once, and the
 * allocations that it asks for never fail. */
enum { TOKEN_CHARS = 200, TOKEN_BUFFER_BYTES = 256 };
static const void *growth_caller;
static bool is_finding_growth;

static void *json_malloc_of_library(size_t size)
{
    const void *caller = __builtin_return_address(0);
    if (is_finding_growth && size == TOKEN_BUFFER_BYTES) growth_caller = caller;
    kind = caller == growth_caller ? 0 : FAIL_LIBRARIES;
    void *block = json_allocate(size);
    kind = FAIL_OURS;
    return block;
}

static void find_growth(void)
{
    char text[TOKEN_CHARS + 4];
    snprintf(text, sizeof text, "[\"%0*d\"]", TOKEN_CHARS - 1, 0);
    is_finding_growth = true;
    json_decref(json_loads(text, 0, NULL));
    is_finding_growth = false;
    if (!growth_caller) abort();
}

void __real_json_set_alloc_funcs(json_malloc_t allocate, json_free_t release);
void __wrap_json_set_alloc_funcs(json_malloc_t allocate, json_free_t release);
void __wrap_json_set_alloc_funcs(json_malloc_t allocate, json_free_t release)
{
    json_allocate = allocate;
    __real_json_set_alloc_funcs(json_malloc_of_library, release);
}

static void *pattern_malloc(size_t size, void *unused)
{
    (void)unused;
    kind = FAIL_LIBRARIES;
    void *block = __wrap_malloc(size);
    kind = FAIL_OURS;
    return block;
}

static void pattern_free(void *block, void *unused)
{
    (void)unused;
    __wrap_free(block);
}

static pcre2_general_context *pattern_memory;
static pcre2_compile_context *pattern_compiling;

__attribute__((constructor)) static void begin(void)
{
    json_set_alloc_funcs(__wrap_malloc, __wrap_free);
    find_growth();
    pattern_memory = pcre2_general_context_create(pattern_malloc, pattern_free, NULL);
    pattern_compiling = pcre2_compile_context_create(pattern_memory);
}

__attribute__((destructor)) static void end(void)
{
    pcre2_compile_context_free(pattern_compiling);
    pcre2_general_context_free(pattern_memory);
}

pcre2_code *__real_pcre2_compile_8(PCRE2_SPTR text, PCRE2_SIZE len, uint32_t options, int *code,
                                   PCRE2_SIZE *where, pcre2_compile_context *context);
pcre2_code *__wrap_pcre2_compile_8(PCRE2_SPTR text, PCRE2_SIZE len, uint32_t options, int *code,
                                   PCRE2_SIZE *where, pcre2_compile_context *context);
pcre2_code *__wrap_pcre2_compile_8(PCRE2_SPTR text, PCRE2_SIZE len, uint32_t options, int *code,
                                   PCRE2_SIZE *where, pcre2_compile_context *context)
{
    if (!context) context = pattern_compiling;
    return __real_pcre2_compile_8(text, len, options, code, where, context);
}

pcre2_match_data *__real_pcre2_match_data_create_8(uint32_t n, pcre2_general_context *context);
pcre2_match_data *__wrap_pcre2_match_data_create_8(uint32_t n, pcre2_general_context *context);
pcre2_match_data *__wrap_pcre2_match_data_create_8(uint32_t n, pcre2_general_context *context)
{
    return __real_pcre2_match_data_create_8(n, context ? context : pattern_memory);
}

pcre2_match_context *__real_pcre2_match_context_create_8(pcre2_general_context *context);
pcre2_match_context *__wrap_pcre2_match_context_create_8(pcre2_general_context *context);
pcre2_match_context *__wrap_pcre2_match_context_create_8(pcre2_general_context *context)
{
    return __real_pcre2_match_context_create_8(context ? context : pattern_memory);
}

pcre2_jit_stack *__real_pcre2_jit_stack_create_8(size_t least, size_t most,
                                                 pcre2_general_context *context);
pcre2_jit_stack *__wrap_pcre2_jit_stack_create_8(size_t least, size_t most,
                                                 pcre2_general_context *context);
pcre2_jit_stack *__wrap_pcre2_jit_stack_create_8(size_t least, size_t most,
                                                 pcre2_general_context *context)
{
    return __real_pcre2_jit_stack_create_8(least, most, context ? context : pattern_memory);
}

XXH3_state_t *__real_XXH3_createState(void);
XXH3_state_t *__wrap_XXH3_createState(void);
XXH3_state_t *__wrap_XXH3_createState(void)
{
    kind = FAIL_LIBRARIES;
    XXH3_state_t *state = is_failing() ? NULL : note(__real_XXH3_createState());
    kind = FAIL_OURS;
    return state;
}

XXH_errorcode __real_XXH3_freeState(XXH3_state_t *state);
XXH_errorcode __wrap_XXH3_freeState(XXH3_state_t *state);
XXH_errorcode __wrap_XXH3_freeState(XXH3_state_t *state)
{
    forget(state);
    return __real_XXH3_freeState(state);
}

/* ---- trials ---- */

bool fail_alloc_is_truthful(const struct error *err)
{
    return err->code == ERR_NO_MEMORY || strstr(err->text, strerror(ENOMEM)) ||
           strstr(err->text, strerror(EAGAIN));
}

bool fail_alloc_is_as_before(const struct fail_alloc_live *before, struct fail_alloc_live *after)
{
    for (int i = 0; i < PATIENCE_MS; i++) {
        *after = fail_alloc_live();
        if (memcmp(before, after, sizeof *after) == 0) return true;
        sleep_ms(1);
    }
    return false;
}

static void check_trial(const char *what, long n, int rc, const struct error *err)
{
    ck_assert_msg(!rc || rc == err->code,
                  "%s: allocation %ld fails: rc %d, but the error is %d (%s)", what, n, rc,
                  err->code, err->text);
    ck_assert_msg(!rc || fail_alloc_is_truthful(err),
                  "%s: allocation %ld fails: error %d (%s) does not say so", what, n, rc,
                  err->text);
}

void fail_alloc_each(const char *what, fail_alloc_trial *trial, void *arg, int kinds, long step)
{
    struct error err = {0};
    long n = 1, n_trials = 0, n_survived = 0;
    CHECK_OK(trial(arg, &err)); /* what is made once and stays */
    for (;; n += step) {
        struct fail_alloc_live before = fail_alloc_live();
        err = (struct error){0};
        fail_alloc_arm(FAIL_THIS_THREAD, kinds, n);
        int rc = trial(arg, &err);
        bool has_failed = fail_alloc_disarm();
        struct fail_alloc_live after;
        ck_assert_msg(fail_alloc_is_as_before(&before, &after),
                      "%s: allocation %ld fails (%s): %ld blocks, %ld mapped bytes, %ld files stay",
                      what, n, rc ? err.text : "it is done without",
                      after.n_blocks - before.n_blocks, after.mapped_bytes - before.mapped_bytes,
                      after.n_files - before.n_files);
        check_trial(what, n, rc, &err);
        if (!has_failed) {
            CHECK_OK(rc);
            break;
        }
        n_trials++;
        n_survived += rc == 0;
    }
    printf("%s: %ld of %ld allocations failed; %ld are done without\n", what, n_trials, n - 1,
           n_survived);
    ck_assert_int_gt(n_trials, 0);
}
