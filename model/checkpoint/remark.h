/* Oddities of a checkpoint that are noticed when it is opened and are no error. */
#pragma once

enum checkpoint_remark {
    CHECKPOINT_UNKNOWN_KEYS, /* config.json has keys that nobody knows */
    CHECKPOINT_OWN_HEAD,     /* the head is not the embedding, though config.json says so */
    CHECKPOINT_STRAY_FILES,  /* weights that lie in the folder and are not read */
    CHECKPOINT_LONG_ROPE,    /* which factors of a rotation hold */
    CHECKPOINT_TEXT_PART,    /* parts of the model are not read */
    CHECKPOINT_INDEX_SIZE,   /* the index says another size than the tensors have */
    CHECKPOINT_ACTIVATIONS,  /* config.json quantizes activations, which is not done here */
    CHECKPOINT_PLACES,       /* config.json announces another number of heads than there are */
    CHECKPOINT_REMARKS
};
