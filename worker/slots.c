/* Slots and blocks of a rank's KV cache. */
#include "worker/slots.h"

#include <stdio.h>
#include <stdlib.h>

#include "model/backend/attention_lane.h"

int slots_open(struct slots *s, int n_slots, int n_blocks, int table_len, int window,
               struct error *err)
{
    int rc = 0;
    *s = (struct slots){
        .n_slots = n_slots, .table_len = table_len, .n_blocks = n_blocks, .window = window};
    TRY(mem_array(&s->slots, (size_t)n_slots, sizeof *s->slots, err));
    for (int i = 0; i < n_slots; i++) {
        TRY(mem_array(&s->slots[i].blocks, (size_t)table_len, sizeof(int32_t), err));
    }
    TRY(mem_array(&s->blocks, (size_t)n_blocks, sizeof *s->blocks, err));
out:
    if (rc) slots_close(s);
    return rc;
}

void slots_close(struct slots *s)
{
    for (int i = 0; s->slots && i < s->n_slots; i++) {
        free(s->slots[i].blocks);
    }
    free(s->slots);
    free(s->blocks);
    *s = (struct slots){0};
}

void slots_reset(struct slots *s)
{
    for (int i = 0; i < s->n_slots; i++) {
        s->slots[i].n_blocks = 0;
        s->slots[i].n_kv = 0;
    }
    for (int i = 0; i < s->n_blocks; i++) {
        s->blocks[i] = (struct kv_block){0};
    }
    s->n_blocks_written = 0;
}

/* The position of the first guess of a tree. */
static int first_guess(const struct step_lane *lane)
{
    return lane->position + lane->n_tokens - lane->n_draft;
}

int shaped_lane_end(const struct shaped_lane *shaped, int path)
{
    const struct step_lane *lane = shaped->lane;
    if (!shaped->tree.n_nodes) return lane->position + lane->n_tokens;
    return first_guess(lane) + shaped->tree.leaf_depth[path] + 1;
}

/* Writes the sentence for the reply and is false, so that a check can return it. */
#define REFUSE(why, ...) (snprintf((why), ERROR_TEXT_BYTES, __VA_ARGS__), false)

/* The block of the slot's table at `index`, once the lane's new entries are in it. */
static int block_at(const struct step_lane *lane, const struct slot *slot, int index)
{
    bool is_new = lane->n_blocks && index >= lane->first_block;
    return is_new ? lane->blocks[index - lane->first_block] : slot->blocks[index];
}

/* The first entry of its table that the lane's rows read through. The blocks before may be another
 * sequence's by now. */
static int first_read(const struct slots *s, const struct step_lane *lane)
{
    return attention_first(lane->position, s->window) / KV_BLOCK_TOKENS;
}

/* Earlier positions must hold KV, as far as rows see them. The slot knows that of those that it has
 * fed itself; after them the table may go on with blocks that other slots or paths have filled. */
static bool check_written(const struct slots *s, const struct step_lane *lane, char *why)
{
    const struct slot *slot = &s->slots[lane->slot];
    int kept = lane->n_blocks ? lane->first_block * KV_BLOCK_TOKENS : slot->n_kv;
    int first = (kept < slot->n_kv ? kept : slot->n_kv) / KV_BLOCK_TOKENS;
    if (first < first_read(s, lane)) first = first_read(s, lane);
    for (int i = first; i * KV_BLOCK_TOKENS < lane->position; i++) {
        int rest = lane->position - i * KV_BLOCK_TOKENS;
        int n_written = s->blocks[block_at(lane, slot, i)].n_written;
        if (n_written < rest && n_written < KV_BLOCK_TOKENS) {
            return REFUSE(why, "position %d leaves a gap after the %d known positions of slot %d",
                          lane->position, i * KV_BLOCK_TOKENS + n_written, lane->slot);
        }
    }
    return true;
}

/* Two lanes of one step that write to the same block would both be wrong. */
static bool check_unwritten(const struct slots *s, int block, uint64_t step_id, char *why)
{
    if (s->blocks[block].step_id != step_id) return true;
    return REFUSE(why, "KV block %d is written by two lanes of the step", block);
}

static bool check_unshared(const struct slots *s, const struct shaped_lane *shaped,
                           uint64_t step_id, char *why)
{
    const struct step_lane *lane = shaped->lane;
    int last = (shaped_lane_end(shaped, 0) - 1) / KV_BLOCK_TOKENS;
    for (int i = lane->position / KV_BLOCK_TOKENS; i <= last; i++) {
        int block = block_at(lane, &s->slots[lane->slot], i);
        if (!check_unwritten(s, block, step_id, why)) return false;
    }
    return true;
}

static bool check_exist(const struct slots *s, const int32_t *blocks, int n, char *why)
{
    for (int i = 0; i < n; i++) {
        if (blocks[i] >= 0 && blocks[i] < s->n_blocks) continue;
        return REFUSE(why, "KV block %d does not exist; there are %d", blocks[i], s->n_blocks);
    }
    return true;
}

/* Each block of a tail is of one path alone; the marks are removed by the caller. */
static bool mark_tails(struct slots *s, const struct shaped_lane *shaped, uint64_t step_id,
                       char *why)
{
    const struct step_lane *lane = shaped->lane;
    for (int i = 0; i < lane->n_tails; i++) {
        struct kv_block *block = &s->blocks[lane->tails[i]];
        if (block->is_tail) {
            return REFUSE(why, "KV block %d is in two tails of the lane's tree", lane->tails[i]);
        }
        if (!check_unwritten(s, lane->tails[i], step_id, why)) return false;
        block->is_tail = true;
    }
    int n_table = (shaped_lane_end(shaped, 0) + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
    for (int i = first_read(s, lane); i < n_table; i++) {
        int block = block_at(lane, &s->slots[lane->slot], i);
        if (!s->blocks[block].is_tail) continue;
        return REFUSE(why, "KV block %d is in a tail of the lane's tree and in its table", block);
    }
    return true;
}

static bool check_tails(struct slots *s, const struct shaped_lane *shaped, uint64_t step_id,
                        char *why)
{
    const struct step_lane *lane = shaped->lane;
    int n = tree_layout_tails(&shaped->tree, first_guess(lane), KV_BLOCK_TOKENS);
    if (lane->n_tails != n) {
        return REFUSE(why,
                      "tails has %d blocks, but the %d paths of the tree at position %d need %d",
                      lane->n_tails, shaped->tree.n_paths, first_guess(lane), n);
    }
    if (n == 0) return true;
    if (!check_exist(s, lane->tails, n, why)) return false;
    bool is_good = mark_tails(s, shaped, step_id, why);
    for (int i = 0; i < n; i++) {
        s->blocks[lane->tails[i]].is_tail = false;
    }
    return is_good;
}

bool slots_check(struct slots *s, const struct shaped_lane *shaped, uint64_t step_id, char *why)
{
    const struct step_lane *lane = shaped->lane;
    const struct slot *slot = &s->slots[lane->slot];
    int end = lane->first_block + lane->n_blocks, n_positions = shaped_lane_end(shaped, 0);
    int have = lane->n_blocks ? end : slot->n_blocks;
    if (lane->n_blocks && (lane->first_block > slot->n_blocks || end > s->table_len)) {
        return REFUSE(why, "blocks %d..%d do not continue the slot's table of %d (at most %d)",
                      lane->first_block, end, slot->n_blocks, s->table_len);
    }
    if (!check_exist(s, lane->blocks, lane->n_blocks, why)) return false;
    if (n_positions > have * KV_BLOCK_TOKENS) {
        return REFUSE(why, "positions up to %d need more than the %d blocks given", n_positions,
                      have);
    }
    return check_written(s, lane, why) && check_unshared(s, shaped, step_id, why) &&
           check_tails(s, shaped, step_id, why);
}

/* The first n positions of the block will hold KV. */
static void note_written(struct slots *s, int block, int n, uint64_t step_id)
{
    s->n_blocks_written += s->blocks[block].n_written == 0 ? 1 : 0;
    s->blocks[block].n_written = n < KV_BLOCK_TOKENS ? n : KV_BLOCK_TOKENS;
    s->blocks[block].step_id = step_id;
}

static void note_tails(struct slots *s, const struct shaped_lane *shaped, uint64_t step_id)
{
    const struct step_lane *lane = shaped->lane;
    const int32_t *block = lane->tails;
    int first = first_guess(lane) / KV_BLOCK_TOKENS * KV_BLOCK_TOKENS;
    for (int path = 1; path < shaped->tree.n_paths; path++) {
        for (int at = first; at < shaped_lane_end(shaped, path); at += KV_BLOCK_TOKENS) {
            note_written(s, *block++, shaped_lane_end(shaped, path) - at, step_id);
        }
    }
}

void slots_take(struct slots *s, const struct shaped_lane *shaped, uint64_t step_id)
{
    const struct step_lane *lane = shaped->lane;
    struct slot *slot = &s->slots[lane->slot];
    int end = shaped_lane_end(shaped, 0);
    for (int b = 0; b < lane->n_blocks; b++) {
        slot->blocks[lane->first_block + b] = lane->blocks[b];
    }
    if (lane->n_blocks) slot->n_blocks = lane->first_block + lane->n_blocks;
    slot->n_kv = end;
    for (int i = lane->position / KV_BLOCK_TOKENS; i * KV_BLOCK_TOKENS < end; i++) {
        note_written(s, slot->blocks[i], end - i * KV_BLOCK_TOKENS, step_id);
    }
    note_tails(s, shaped, step_id);
}
