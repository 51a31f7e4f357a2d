/* The CPU backend, assembled: the operations of model/backend/backend.h over the kernels and a team
 * of threads. Threads divide outputs among them (column blocks, rows, heads), never sums. */
#include "model/backend/cpu/internal.h"

#include <stdlib.h>
#include <string.h>

#include "model/logits/answer.h"

enum { TEAM_SPIN_US = 200 };

static void cpu_upload(struct backend *be, void *buffer, const void *host, size_t bytes)
{
    (void)be;
    memcpy(buffer, host, bytes);
}

static const float *cpu_read(struct backend *be, const float *data, size_t n)
{
    (void)be;
    (void)n;
    return data;
}

static const char *cpu_kernels(const struct backend *be)
{
    return ((const struct backend_cpu *)be)->kernels->name;
}

static int cpu_capacity(const struct backend *be, int n)
{
    (void)be;
    return n;
}

static int cpu_begin(struct backend *be, const struct backend_step *step, bool *replayed,
                     struct error *err)
{
    (void)be;
    (void)step;
    (void)err;
    *replayed = false;
    return 0;
}

static int cpu_end(struct backend *be, bool *again, struct error *err)
{
    (void)be;
    (void)err;
    *again = false;
    return 0;
}

static int cpu_answer(struct backend *be, const struct answer_item *items, int n_items,
                      struct arena *arena, struct slice_row *out, struct error *err)
{
    (void)err;
    answer_items(backend_cpu_of(be)->team, items, n_items, arena, out);
    return 0;
}

static void cpu_close(struct backend *be)
{
    if (!be) return;
    struct backend_cpu *cpu = backend_cpu_of(be);
    team_close(cpu->team);
    cpu_groups_close(cpu);
    cpu_panels_close(cpu);
    cpu_ordered_close(cpu);
    cpu_buffers_end(cpu);
    free(cpu->scratch);
    free(cpu);
}

static const struct {
    const char *arithmetic;
    const struct cpu_matrix_ops *matrix;
} forms[] = {
    [WEIGHTS_BF16] = {"cpu-bf16", &cpu_matrix_bf16},
    [WEIGHTS_INT8] = {"cpu-int8", &cpu_matrix_int8},
    [WEIGHTS_INT4] = {"cpu-int4", &cpu_matrix_int4},
    [WEIGHTS_BLOCKS] = {"cpu-blocks", &cpu_matrix_blocks_ops},
};

/* All but the arithmetic and the form. */
static const struct backend_ops cpu_ops = {
    .name = "cpu",
    .is_host = true,
    .kernels = cpu_kernels,
    .capacity = cpu_capacity,
    .wanted_capacity = cpu_capacity,
    .buffer_open = cpu_buffer_open,
    .buffer_close = cpu_buffer_close,
    .upload = cpu_upload,
    .read = cpu_read,
    .matrix_open = cpu_matrix_open,
    .matrix_close = cpu_matrix_close,
    .matrix_digest = cpu_matrix_digest,
    .begin = cpu_begin,
    .end = cpu_end,
    .embed = cpu_embed,
    .rmsnorm = cpu_rmsnorm,
    .rmsnorm_rows = cpu_rmsnorm_rows,
    .feature_rows = cpu_feature_rows,
    .step_features = cpu_step_features,
    .widen = cpu_widen,
    .norm_part = cpu_norm_part,
    .matmul = cpu_matmul,
    .matmul_slices = cpu_matmul_slices,
    .matmul_gated = cpu_matmul_gated,
    .qk_squares = cpu_qk_squares,
    .attention_store = cpu_attention_store,
    .attention = cpu_attention,
    .tree_sum = cpu_tree_sum,
    .residual_norm = cpu_residual_norm,
    .adjust_logits = cpu_adjust_logits,
    .add_logits = cpu_add_logits,
    .answer = cpu_answer,
    .close = cpu_close,
};

int backend_cpu_open(struct backend **be, const struct backend_cpu_options *options,
                     struct error *err)
{
    int rc = 0;
    struct backend_cpu *cpu = NULL;
    *be = NULL;
    TRY(mem_array(&cpu, 1, sizeof *cpu, err));
    cpu->ops = cpu_ops;
    cpu->ops.arithmetic = forms[options->form].arithmetic;
    cpu->ops.form = options->form;
    cpu->base.ops = &cpu->ops;
    cpu->matrix = forms[options->form].matrix;
    bool has_bf16 = options->form == WEIGHTS_BF16 || options->form == WEIGHTS_BLOCKS;
    if (has_bf16) TRY(cpu_panels_open(cpu, err));
    if (options->form != WEIGHTS_BF16) TRY(cpu_groups_open(cpu, err));
    TRY(kernels_find(&cpu->kernels, options->kernels, err));
    kernels_reason(cpu->kernels_reason, sizeof cpu->kernels_reason, options->kernels);
    cpu->base.kernels_reason = cpu->kernels_reason;
    TRY(team_open(&cpu->team, options->n_threads, TEAM_SPIN_US, err));
    TRY(mem_array(&cpu->scratch, (size_t)options->n_threads * CPU_SCRATCH_FLOATS,
                  sizeof *cpu->scratch, err));
    *be = &cpu->base;
    cpu = NULL;
out:
    if (cpu) cpu_close(&cpu->base);
    return rc;
}

bool backend_cpu_kernels_is_known(const char *name)
{
    bool is_known = strcmp(name, "auto") == 0;
    for (int i = 0; !is_known && kernels_name(i); i++) {
        is_known = strcmp(name, kernels_name(i)) == 0;
    }
    return is_known;
}

void backend_cpu_kernels_names(char *text, size_t size)
{
    kernels_names(text, size);
}

int backend_cpu_pin(struct backend *be, const int *cpus, struct error *err)
{
    return team_pin(backend_cpu_of(be)->team, cpus, err);
}
