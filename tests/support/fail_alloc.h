/* Makes the n-th allocation fail, and counts what is allocated. For tests with fail_alloc=yes in
 * their ctest comment: there the linker's --wrap leads our own calls of malloc, mmap, fopen,
 * pthread_create and others to fail_alloc.c. jansson, pcre2 and xxhash report a failed allocation,
 * so theirs can fail too; gRPC, MPI and libc are left alone, because they end the process or hide
 * the failure.
 *
 * With FAIL_ALLOC_TRACE in the environment each allocation that is made to fail prints its call
 * stack, as addresses for addr2line. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "tests/support/check_util.h"

/* Step for whole servers: each allocation fails in turn; in a build that checks every access, which
 * is slow, each third one. */
#ifdef __SANITIZE_ADDRESS__
enum { FAIL_ALLOC_STEP = 3 };
#else
enum { FAIL_ALLOC_STEP = 1 };
#endif

enum fail_threads { FAIL_THIS_THREAD, FAIL_OTHER_THREADS };

enum { FAIL_OURS = 1, FAIL_LIBRARIES = 2, FAIL_ALL = FAIL_OURS | FAIL_LIBRARIES };

/* The n-th allocation (from 1) of these kinds on these threads fails. */
void fail_alloc_arm(enum fail_threads threads, int kinds, long n);

/* Ends that; true if the n-th allocation came and failed. */
bool fail_alloc_disarm(void);

/* The allocations and files that exist now. */
struct fail_alloc_live {
    long n_blocks;
    long mapped_bytes;
    long n_files; /* open descriptors of the process */
};
struct fail_alloc_live fail_alloc_live(void);

/* True when the same is allocated as before; waits a little for what other threads still free. */
bool fail_alloc_is_as_before(const struct fail_alloc_live *before, struct fail_alloc_live *after);

/* True for an error that says that memory, or threads, are short. */
bool fail_alloc_is_truthful(const struct error *err);

/* Something that may fail: opens and closes what it tries. It must not assert, because libcheck
 * allocates. */
typedef int fail_alloc_trial(void *arg, struct error *err);

/* Calls trial with its 1st, 1 + step-th, ... allocation of these kinds failing, until none fails.
 * Each call must report what is truthful, or succeed if it can do without the allocation, and leave
 * nothing allocated. */
void fail_alloc_each(const char *what, fail_alloc_trial *trial, void *arg, int kinds, long step);
