/* Helpers that every test shares: a main around libcheck, which prints the closing line, and checks
 * that show the error they got. */
#pragma once

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* libcheck notes each assertion that holds in a file, with system calls that take longer than most
 * of what is tested here. Of each thread the first ones are enough: they say how far a test came
 * that crashes. All ck_assert macros lead to this one. */
static inline void check_holds(const char *file, int line)
{
    enum { NOTED = 1000 };
    static __thread int n_held;
    if (n_held >= NOTED) return;
    n_held++;
    _mark_point(file, line);
}
#undef ck_assert_msg
#define ck_assert_msg(expr, ...)              \
    ((expr) ? check_holds(__FILE__, __LINE__) \
            : _ck_assert_failed(__FILE__, __LINE__, "Assertion '" #expr "' failed", __VA_ARGS__))

/* The call must succeed; its error text is shown otherwise. Needs a local `struct error err`. */
#define CHECK_OK(call)                                           \
    do {                                                         \
        int check_rc = (call);                                   \
        ck_assert_msg(check_rc == 0, "%s: %s", #call, err.text); \
    } while (0)

/* The call must fail with `code` and a text that contains `part`. */
#define CHECK_ERR(call, code_wanted, part)                                                     \
    do {                                                                                       \
        int check_rc = (call);                                                                 \
        ck_assert_msg(check_rc == (code_wanted), "%s: rc %d, wanted %d (%s)", #call, check_rc, \
                      (code_wanted), check_rc ? err.text : "success");                         \
        ck_assert_msg(strstr(err.text, (part)) != NULL, "%s: text '%s' lacks '%s'", #call,     \
                      err.text, (part));                                                       \
    } while (0)

/* Runs one suite; the exit status of a test program. */
static inline int check_main(Suite *suite)
{
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
