/* Checks that all ranks of a group have the same weights. */
#include "worker/copies.h"

#include <stdlib.h>

#include "worker/share.h"

int copies_witness(const uint64_t *stamps, int n, int rank)
{
    int others[RANKS_MAX], n_others = 0, place = 0;
    for (int r = 0; r < n; r++) {
        if (stamps[r] != stamps[rank]) others[n_others++] = r;
        if (r < rank && stamps[r] == stamps[rank]) place++;
    }
    /* With a copy for each rank: the next rank. With two hosts: the rank of the same place on the
     * other one. */
    bool is_alone = n_others == n - 1;
    return n_others ? others[(is_alone ? rank : place) % n_others] : -1;
}

int copies_plan(struct copies *copies, const struct group *group, const struct checkpoint *ck,
                struct backend *be, struct error *err)
{
    int rc = 0, rank = group->comm->rank, size = group->comm->size;
    uint64_t stamps[RANKS_MAX], mine = checkpoint_stamp(ck);
    *copies = (struct copies){0};
    TRY(share_bytes(group, be, &mine, stamps, sizeof mine, err));
    for (int r = 0; r < size; r++) {
        if (copies_witness(stamps, size, r) == rank) copies->witnessed |= 1u << r;
    }
out:
    return rc;
}

/* The result of a rank's comparison. */
struct verdict {
    uint64_t is_bad;
    struct digest_conflict conflict;
};

/* Compares the parts that several ranks hold, and those that this rank has witnessed. */
static struct verdict judge(const struct copies *copies, const struct part_digest *tables, size_t n,
                            const struct comm *comm, const struct model *model)
{
    struct verdict verdict = {0};
    verdict.is_bad = !digest_ranks_agree(tables, comm->size, n, &verdict.conflict);
    for (int r = 0; r < comm->size && !verdict.is_bad; r++) {
        if (!(copies->witnessed >> r & 1)) continue;
        size_t tensor =
            digest_witness_differs(tables + (size_t)r * n, model_witnessed(model, r), n);
        verdict.is_bad = tensor < n;
        verdict.conflict = (struct digest_conflict){tensor, r, comm->rank};
    }
    return verdict;
}

/* Every rank tells what it has found, so that all fail, and for the same reason. */
static int agree(const struct verdict *mine, const struct group *group, struct backend *be,
                 const struct tensor_spec *tensors, struct error *err)
{
    int rc = 0;
    struct verdict all[RANKS_MAX];
    TRY(share_bytes(group, be, mine, all, sizeof *mine, err));
    for (int r = 0; r < group->comm->size && !rc; r++) {
        const struct digest_conflict *found = &all[r].conflict;
        if (!all[r].is_bad) continue;
        rc = error_set(err, ERR_FORMAT,
                       "tensor %s is not the same on ranks %d and %d: one of their copies of the "
                       "model is damaged or of another version; compare the files of both (for "
                       "example with sha256sum), and start all ranks with equal ones",
                       tensors[found->tensor].name, found->rank, found->other);
    }
out:
    return rc;
}

int copies_check(const struct copies *copies, const struct group *group,
                 const struct checkpoint *ck, struct backend *be, const struct model *model,
                 uint64_t *fingerprint, struct error *err)
{
    int rc = 0;
    size_t n;
    const struct comm *comm = group->comm;
    const struct tensor_spec *tensors = checkpoint_tensors(ck, &n);
    struct part_digest *tables = NULL;
    TRY(mem_array(&tables, (size_t)comm->size * n, sizeof *tables, err));
    TRY(share_bytes(group, be, model_digests(model), tables, n * sizeof *tables, err));
    const struct verdict verdict = judge(copies, tables, n, comm, model);
    TRY(agree(&verdict, group, be, tensors, err));
    *fingerprint = digest_fingerprint(ck, tables, comm->size);
out:
    free(tables);
    return rc;
}
