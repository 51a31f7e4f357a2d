/* ctest: labels=quick,bits libs=model timeout=120 */
/* The logits of some models in each arithmetic of the CPU, as a hash of their bits: the same on
 * every machine, with every variant of the kernels. Who changes an arithmetic on purpose puts the
 * hashes that the test prints in place of these. */
#include "tests/support/forward_ways.h"

enum { N_FORMS = 3, N_MODELS = 17 };

static const char *const forms[N_FORMS] = {"bf16", "int8", "int4"};

static const struct {
    const char *model;
    uint64_t hashes[N_FORMS];
} cases[N_MODELS] = {
    {"synthetic:tiny,seed=7,vocab=100",
     {0x2314f2b7bcc0b625, 0x416eff820e7492fe, 0x4fcd38ed62d09f4c}},
    {GOLDEN "llama_kv_one", {0xaa3df15d387557fc, 0xf5a9477bb16367fe, 0x370944620beb149f}},
    {GOLDEN "qwen3_norm_bias", {0x8f5a0503c9bf5df2, 0xd572f80867952c9c, 0x1f950d2f58dd0966}},
    {GOLDEN "llama_rope_llama3", {0xc129f86aa4d2fa33, 0x2c21aed3220f51f3, 0x59bac1aaf70ae1d3}},
    {GOLDEN "llama_rope_yarn_factor", {0x74c32020b4f98348, 0x3a92ce62ea76101a, 0x7e55ab159b60eecf}},
    {GOLDEN "mistral_window", {0x6d0887c5c84c534a, 0x72363560c09eac52, 0x068e577937c7ec28}},
    /* 3, 5, 6 and 7 slices */
    {"synthetic:tiny-3,seed=7", {0xdca668678dcf949b, 0x0186d5a408d80593, 0x408a8e2799b2f119}},
    {"synthetic:tiny-5,seed=7", {0x6092fb240db73bd0, 0x2166b9ed104935c4, 0x3ecccf422aa6049f}},
    {"synthetic:tiny-6,seed=7", {0x10b360e11253d861, 0xdf923f8eec70f36f, 0x0922d8579e14bb21}},
    {"synthetic:tiny-7,seed=7,vocab=100",
     {0xda06b7b874e778d2, 0x598490cc50007e03, 0x8190372b26fcd893}},
    {"synthetic:smollm2-135m,seed=7,layers=1,vocab=1000",
     {0xca9d864e3ebe72fb, 0x8a9491e1b3e824e1, 0x96b7472122893975}},
    {GOLDEN "qwen3_slides_listed", {0x2631fc23e2cea635, 0x1832367b58bc1882, 0xbef38367bc5de28d}},
    {GOLDEN "gemma2_softcap", {0x33e302e2634f75d1, 0x0157f48c921c4eb9, 0x0aaf10c3a19c8c20}},
    {GOLDEN "gemma3_two_ropes", {0x13995f7ff4cc0d45, 0x92aa60cf02843686, 0xebd651255fd86402}},
    {GOLDEN "phi3_partial", {0x4a94f3f3115556e4, 0xeb113ff3945cb36b, 0x2ec87940f9b11c89}},
    {GOLDEN "olmo2_shared_heads", {0x9badb4f9902b03d8, 0x8bbd100d2d53cad5, 0x8409c877d761680d}},
    {GOLDEN "granite_factors", {0x41ee5aa083583e86, 0xbf9174cd4dbfcd17, 0xfebb1dc474ee2cc1}},
};

/* FNV-1a */
static uint64_t hash_bytes(const void *data, size_t len)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < len; i++) {
        hash = (hash ^ ((const uint8_t *)data)[i]) * 0x100000001b3u;
    }
    return hash;
}

static uint64_t hash_logits(const char *model, const char *kernels, int chunk)
{
    struct rig rig;
    rig_open(&rig, model, 1, kernels, 1);
    make_inputs(rig.n_vocab);
    float *logits = new_logits(&rig, N_TOKENS);
    rig_logits(&rig, tokens, N_TOKENS, chunk, blocks[0], logits);
    uint64_t hash = hash_bytes(logits, (size_t)N_TOKENS * (size_t)rig.n_vocab * sizeof *logits);
    rig_close(&rig);
    free(logits);
    return hash;
}

START_TEST(logits_have_their_known_bits)
{
    const char *model = cases[_i / N_FORMS].model;
    uint64_t want = cases[_i / N_FORMS].hashes[_i % N_FORMS];
    rig_weights = forms[_i % N_FORMS];
    for (int i = 0; kernels_name(i); i++) {
        struct error err;
        const struct kernels *kernels;
        if (kernels_find(&kernels, kernels_name(i), &err)) continue;
        uint64_t got = hash_logits(model, kernels->name, i % 2 ? 7 : 64);
        ck_assert_msg(got == want, "%s, %s, %s: 0x%016llx, not 0x%016llx", model, rig_weights,
                      kernels->name, (unsigned long long)got, (unsigned long long)want);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("forward_bits");
    TCase *tcase = tcase_create("hashes");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, logits_have_their_known_bits, 0, N_MODELS * N_FORMS);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
