/* ctest: labels=quick,threads,slow libs=model timeout=120 */
/* The forward pass with one thread much slower than the others, which then compute what would have
 * been its part: no bit changes. */
#include <stdatomic.h>

#include "model/backend/cpu/internal.h"
#include "tests/support/forward_ways.h"
#include "tests/support/sleep_util.h"

enum { N_THREADS = 3 };

static const struct cpu_matrix_ops *matrix;
static struct cpu_matrix_ops slow_matrix;
static const struct kernels *kernels;
static struct kernels slow_kernels;
static atomic_int n_named, n_slept;
static int slow_thread;
static _Thread_local int name; /* from 1, in the order of first calls */

static void sleep_if_slow(void)
{
    if (!name) name = atomic_fetch_add(&n_named, 1) % N_THREADS + 1;
    if (name != slow_thread) return;
    n_slept++;
    sleep_us(500);
}

static void multiply(const struct cpu_matmul *job, int i, int first_block, int end_block)
{
    sleep_if_slow();
    matrix->multiply(job, i, first_block, end_block);
}

static void scores(const struct query_rows *q, const struct kv_parts *k, int head_dim, float *out,
                   size_t out_stride)
{
    sleep_if_slow();
    kernels->scores(q, k, head_dim, out, out_stride);
}

static void slow_down(struct backend *be)
{
    struct backend_cpu *cpu = backend_cpu_of(be);
    matrix = cpu->matrix;
    slow_matrix = *matrix;
    slow_matrix.multiply = multiply;
    cpu->matrix = &slow_matrix;
    kernels = cpu->kernels;
    slow_kernels = *kernels;
    slow_kernels.scores = scores;
    cpu->kernels = &slow_kernels;
}

static const char *const forms[] = {"bf16", "int8", "int4"};

START_TEST(a_slow_thread_changes_no_bit)
{
    rig_weights = forms[_i];
    float *want = reference(TALES, N_TOKENS);
    for (slow_thread = 1; slow_thread <= N_THREADS; slow_thread++) {
        struct rig rig;
        n_named = n_slept = 0;
        rig_open(&rig, TALES, 1, "auto", N_THREADS);
        slow_down(rig.backends[0]);
        float *logits = new_logits(&rig, N_TOKENS);
        rig_logits(&rig, tokens, N_TOKENS, N_TOKENS / 2, blocks[0], logits);
        check_equal(&rig, logits, want, N_TOKENS, "a slow thread");
        ck_assert_int_gt(n_slept, 0);
        free(logits);
        rig_close(&rig);
    }
    free(want);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("forward_slow");
    TCase *tcase = tcase_create("forward_slow");
    tcase_set_timeout(tcase, 0);
    tcase_add_loop_test(tcase, a_slow_thread_changes_no_bit, 0, sizeof forms / sizeof *forms);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
