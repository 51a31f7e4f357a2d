/* The guesses of a round and their fate, for clients that asked to see them. */
#include "proto/codec.h"
#include "proto/generation_wire_parts.h"

enum { GUESS_BYTES_MAX = 4096, DRAFTER_BYTES_MAX = 32 };

static const char guess_field[] = "a guess";

Outrider__Generation__V1__Round *round_make(struct arena *scratch,
                                            const struct generate_round *round)
{
    Outrider__Generation__V1__Round *out = arena_take(scratch, 1, sizeof *out);
    size_t n = (size_t)round->n_guesses;
    Outrider__Generation__V1__Guess **list = arena_take(scratch, n + 1, sizeof *list);
    Outrider__Generation__V1__Guess *items = arena_take(scratch, n + 1, sizeof *items);
    if (!out || !list || !items) return NULL;
    outrider__generation__v1__round__init(out);
    for (size_t i = 0; i < n; i++) {
        const struct generate_guess *from = &round->guesses[i];
        outrider__generation__v1__guess__init(&items[i]);
        items[i].id = from->id;
        items[i].text = codec_copy_string(scratch, from->text);
        items[i].q = from->q;
        items[i].p = from->p;
        items[i].place = (uint32_t)from->place;
        items[i].sibling = (uint32_t)from->sibling;
        items[i].untried = from->is_untried;
        if (!items[i].text) return NULL;
        list[i] = &items[i];
    }
    out->n_guesses = n;
    out->guesses = list;
    out->kept = (uint32_t)round->n_kept;
    out->next_p = round->next_p;
    out->drafter = codec_copy_string(scratch, round->drafter);
    if (!out->drafter) return NULL;
    out->draft_us = round->draft_us;
    out->verify_us = round->verify_us;
    out->collective_us = round->collective_us;
    out->wire_us = round->wire_us;
    out->total_us = round->total_us;
    out->lanes = (uint32_t)round->n_lanes;
    out->rows = (uint32_t)round->n_rows;
    return out;
}

static int guess_decode(const Outrider__Generation__V1__Guess *msg, struct generate_guess *guess,
                        struct error *err)
{
    int rc = 0;
    *guess = (struct generate_guess){
        .id = msg->id, .q = msg->q, .p = msg->p, .is_untried = msg->untried};
    TRY(codec_check_ids(&msg->id, 1, guess_field, err));
    TRY(codec_read_int(&guess->place, msg->place, 0, DRAFT_MAX - 1, "place", err));
    TRY(codec_read_int(&guess->sibling, msg->sibling, 0, GENERATE_SIBLING_MOST, "sibling", err));
    TRY(range_check(msg->q, 0, 1, false, "q", err));
    TRY(range_check(msg->p, -1, 1, false, "p", err));
    TRY(codec_read_string(&guess->text, NULL, msg->text, GUESS_BYTES_MAX, guess_field, err));
out:
    return rc;
}

int round_decode(const Outrider__Generation__V1__Round *msg, struct arena *arena,
                 const struct generate_round **round, struct error *err)
{
    int rc = 0;
    struct generate_round *out = codec_take(arena, 1, sizeof *out, err);
    if (!out) return err->code;
    *out = (struct generate_round){.next_p = msg->next_p,
                                   .draft_us = msg->draft_us,
                                   .verify_us = msg->verify_us,
                                   .collective_us = msg->collective_us,
                                   .wire_us = msg->wire_us,
                                   .total_us = msg->total_us};
    TRY(codec_read_count(&out->n_guesses, msg->n_guesses, TREE_NODES_MAX, "guesses", err));
    TRY(codec_read_int(&out->n_kept, msg->kept, 0, out->n_guesses, "kept", err));
    TRY(codec_read_int(&out->n_lanes, msg->lanes, 0, INT32_MAX, "lanes", err));
    TRY(codec_read_int(&out->n_rows, msg->rows, 0, INT32_MAX, "rows", err));
    TRY(range_check(msg->next_p, -1, 1, false, "next_p", err));
    TRY(codec_read_string(&out->drafter, NULL, msg->drafter, DRAFTER_BYTES_MAX, "drafter", err));
    struct generate_guess *guesses = codec_take(arena, msg->n_guesses, sizeof *guesses, err);
    if (!guesses) return err->code;
    for (int i = 0; i < out->n_guesses; i++) {
        TRY(guess_decode(msg->guesses[i], &guesses[i], err));
    }
    out->guesses = guesses;
    *round = out;
out:
    return rc;
}
