/* Elements of synthetic tensors, a run of blocks at a time. */
#include "model/numerics/synthetic_elements.h"

#include "base/rng.h"
#include "model/numerics/numerics.h"

enum { PIECES = 8, RUN_BLOCKS = 32 };

/* Blocks first .. first + n of eight 16-bit pieces. */
static void fill_blocks(uint64_t seed, uint64_t first, size_t n, uint16_t *pieces)
{
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    for (size_t i = 0; i < n; i++) {
        uint64_t block = first + i;
        const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), RNG_WEIGHT, 0};
        uint32_t words[4];
        philox4x32(counter, key, words);
        for (int k = 0; k < 4; k++) {
            pieces[i * PIECES + 2 * (size_t)k] = (uint16_t)words[k];
            pieces[i * PIECES + 2 * (size_t)k + 1] = (uint16_t)(words[k] >> 16);
        }
    }
}

void synthetic_elements_bf16(uint64_t seed, float mean, float scale, uint64_t first, size_t n,
                             uint16_t *out)
{
    uint16_t pieces[RUN_BLOCKS * PIECES];
    const float step = scale * (3.46410162f / 65536.0f); /* sqrt(12): uniform to deviation 1 */
    while (n > 0) {
        size_t skip = first % PIECES, n_blocks = (skip + n + PIECES - 1) / PIECES;
        if (n_blocks > RUN_BLOCKS) n_blocks = RUN_BLOCKS;
        size_t n_here = n_blocks * PIECES - skip < n ? n_blocks * PIECES - skip : n;
        fill_blocks(seed, first / PIECES, n_blocks, pieces);
        for (size_t i = 0; i < n_here; i++) {
            out[i] = num_float_to_bf16(mean + ((float)pieces[skip + i] - 32767.5f) * step);
        }
        first += n_here;
        out += n_here;
        n -= n_here;
    }
}
