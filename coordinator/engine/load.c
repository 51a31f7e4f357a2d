/* Figures of an engine that requests are placed by, and that Describe and the metrics show. */
#include "coordinator/engine/internal.h"

static void fill_blocks(atomic_int blocks[SIGNALS_BLOCK_STATES], int n_blocks, int n_free,
                        int n_cached)
{
    atomic_store_explicit(&blocks[SIGNALS_FREE], n_free, memory_order_relaxed);
    atomic_store_explicit(&blocks[SIGNALS_CACHED], n_cached, memory_order_relaxed);
    atomic_store_explicit(&blocks[SIGNALS_IN_USE], n_blocks - n_free - n_cached,
                          memory_order_relaxed);
}

void engine_show_load(struct engine *e)
{
    struct seat_load *load = load_of(e);
    const struct block_pool *pool = &e->target_pool;
    atomic_store_explicit(&load->n_running, engine_count_running(e), memory_order_relaxed);
    atomic_store_explicit(&load->n_places, e->n_places, memory_order_relaxed);
    atomic_store_explicit(&load->n_waiting, waiting_count(e->waiting), memory_order_relaxed);
    atomic_store_explicit(&load->n_waiting_again, waiting_count_returned(e->waiting),
                          memory_order_relaxed);
    atomic_store_explicit(&load->step_us, (int)planner_estimates(&e->planner, NULL).step_us,
                          memory_order_relaxed);
    atomic_store_explicit(&load->n_steps, e->round->n_steps, memory_order_relaxed);
    atomic_store_explicit(&load->is_measured, !e->calibration, memory_order_relaxed);
    const struct planner_prior *prior =
        &e->planner.models[planner_first_model(&e->planner, NULL)].prior;
    for (int i = 0; i < DRAFT_MAX; i++) {
        atomic_store_explicit(&load->alpha[i], prior->alpha[i], memory_order_relaxed);
    }
    fill_blocks(load->kv_blocks, pool->n_blocks, pool->n_free, pool->n_cached);
    const struct drafters *drafters = e->options.drafters;
    struct draft_kv all = {0};
    for (int m = 0; m < drafters->n_models; m++) {
        struct draft_kv kv = drafter_kv(drafters->models[m]);
        all.n_blocks += kv.n_blocks;
        all.n_free += kv.n_free;
        all.n_cached += kv.n_cached;
    }
    if (drafters->n_models > 0) {
        fill_blocks(load->draft_kv_blocks, all.n_blocks, all.n_free, all.n_cached);
    }
}
