/* The folder of --head. */
#include "worker/held_head.h"

#include "model/projection.h"

int held_head_open(struct held_head *held, const char *name, const struct checkpoint *target,
                   struct error *err)
{
    int rc = 0;
    *held = (struct held_head){0};
    if (!look_ahead_is_folder(name)) return projection_open_head(&held->head, name, target, err);
    TRY(look_ahead_open(&held->look_ahead, name, err));
    TRY(look_ahead_check_target(&held->look_ahead, checkpoint_name(target),
                                checkpoint_config(target)->dim, err));
out:
    if (rc) held_head_close(held);
    return rc;
}

void held_head_close(struct held_head *held)
{
    checkpoint_close(held->head);
    look_ahead_close(&held->look_ahead);
    *held = (struct held_head){0};
}
