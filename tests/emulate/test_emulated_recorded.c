/* The forward pass in steps of one row, and of many rows that are padded, on the emulated GPU has
 * the same bits whether steps are launched kernel by kernel, recorded and replayed, or given once
 * more because the device has no memory for a graph; and whether the device has the table of
 * embeddings or the host sends rows because there is no room for it. */
#include "tests/support/forward_util.h"

#define TALES SOURCE_DIR "/deploy/models/tales/target"

enum { N_TOKENS = 4 * 66 };

/* Less than steps need besides a copy of the table, and enough for the model. */
#define LITTLE_MEMORY_MIB "1000"

static int32_t tokens[N_TOKENS], blocks[RIG_BLOCKS];

/* Logits of n positions, `chunk` in a step, with one environment variable set; "": without. */
static float *logits_with(const char *name, const char *value, int n, int chunk)
{
    struct rig rig;
    if (*name) setenv(name, value, 1);
    rig_open(&rig, TALES, 1, "auto", 1);
    bool lacks_room = strcmp(value, LITTLE_MEMORY_MIB) == 0;
    size_t table_bytes = (size_t)4096 * 256 * sizeof(uint16_t);
    ck_assert_uint_eq(model_lacks_copy(rig.models[0]), lacks_room ? table_bytes : 0);
    float *logits = calloc((size_t)n * (size_t)rig.n_vocab, sizeof *logits);
    ck_assert_ptr_nonnull(logits);
    rig_logits(&rig, tokens, n, chunk, blocks, logits);
    rig_close(&rig);
    if (*name) unsetenv(name);
    return logits;
}

/* The steps of a row at a time, of which 10 are replayed, or of 66 rows, of which 2 are. */
START_TEST(every_way_has_the_same_bits)
{
    int n = _i == 0 ? 12 : N_TOKENS, chunk = _i == 0 ? 1 : N_TOKENS / 4;
    size_t bytes = (size_t)n * 4096 * sizeof(float);
    for (int i = 0; i < N_TOKENS; i++) {
        tokens[i] = (37 * i + 11) % 4000;
    }
    for (int i = 0; i < RIG_BLOCKS; i++) {
        blocks[i] = RIG_BLOCKS - 1 - i;
    }
    float *launched = logits_with("OUTRIDER_TEST_NO_GRAPHS", "1", n, chunk);
    float *replayed = logits_with("", "", n, chunk);
    float *refused = logits_with("EMULATED_GRAPHS", "refused", n, chunk);
    float *sent = logits_with("EMULATED_MEMORY_MIB", LITTLE_MEMORY_MIB, n, chunk);
    ck_assert(launched[0] != launched[1]);
    ck_assert_mem_eq(launched, replayed, bytes);
    ck_assert_mem_eq(launched, refused, bytes);
    ck_assert_mem_eq(launched, sent, bytes);
    free(sent);
    free(launched);
    free(replayed);
    free(refused);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("emulated_recorded");
    TCase *tc = tcase_create("steps");
    tcase_set_timeout(tc, 280);
    tcase_add_loop_test(tc, every_way_has_the_same_bits, 0, 2);
    suite_add_tcase(suite, tc);
    return check_main(suite);
}
