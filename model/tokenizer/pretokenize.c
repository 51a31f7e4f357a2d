/* The pre-tokenizer: a chain of stages, each of which cuts the pieces of the one before. A piece
 * goes through the whole chain before the next one is cut, so one buffer for each stage is
 * enough. */
#include "model/tokenizer/pretokenize.h"

#include <string.h>
#include <utf8proc.h>

static int run_stage(const struct split_run *run, int index, struct text text, unsigned piece,
                     struct error *err);

/* Cuts of one stage: matches and what lies between them come in, pieces go to the next stage. */
struct cutter {
    const struct split_run *run;
    int next_stage;
    enum split_behavior behavior;
    struct text text;
    unsigned piece;
    size_t begin, end; /* the piece that may still grow */
    bool pending, last_was_match;
};

static int emit(const struct cutter *cut, size_t begin, size_t end, struct error *err)
{
    struct text part = {cut->text.data + begin, end - begin};
    if (!part.len) return 0;
    return run_stage(cut->run, cut->next_stage, part, begin ? 0 : cut->piece, err);
}

static int emit_pending(struct cutter *cut, struct error *err)
{
    if (!cut->pending) return 0;
    cut->pending = false;
    return emit(cut, cut->begin, cut->end, err);
}

/* True if this part joins the piece before it. */
static bool joins(const struct cutter *cut, bool is_match)
{
    switch (cut->behavior) {
    case SPLIT_CONTIGUOUS:
        return is_match == cut->last_was_match;
    case SPLIT_MERGED_WITH_PREVIOUS:
        return is_match && !cut->last_was_match;
    case SPLIT_MERGED_WITH_NEXT:
        return !is_match && cut->last_was_match;
    default:
        return false;
    }
}

static int take_part(struct cutter *cut, size_t begin, size_t end, bool is_match, struct error *err)
{
    if (cut->behavior == SPLIT_ISOLATED) return emit(cut, begin, end, err);
    if (cut->behavior == SPLIT_REMOVED) return is_match ? 0 : emit(cut, begin, end, err);
    bool join = joins(cut, is_match) && cut->pending;
    cut->last_was_match = is_match;
    if (!join) {
        int rc = emit_pending(cut, err);
        if (rc) return rc;
        cut->begin = begin;
        cut->pending = true;
    }
    cut->end = end;
    return 0;
}

/* Matches of the stage's pattern. */
static int cut_by_pattern(const struct split_run *run, int index, struct text text, unsigned piece,
                          struct error *err)
{
    const struct splitter *stage = &run->stages[index];
    struct cutter cut = {.run = run,
                         .next_stage = index + 1,
                         .behavior = stage->behavior,
                         .text = text,
                         .piece = piece};
    struct pattern_scan scan = {.pattern = &stage->pattern, .matcher = run->matcher, .text = text};
    size_t done = 0, begin, end;
    int found, rc = 0;
    while ((found = pattern_next(&scan, &begin, &end, err)) == 1) {
        if (begin > done) rc = take_part(&cut, done, begin, stage->invert, err);
        if (!rc) rc = take_part(&cut, begin, end, !stage->invert, err);
        if (rc) return rc;
        done = end;
    }
    if (found < 0) return found;
    if (done < text.len) rc = take_part(&cut, done, text.len, stage->invert, err);
    return rc ? rc : emit_pending(&cut, err);
}

static bool is_numeric(int32_t c)
{
    utf8proc_category_t category = utf8proc_category(c);
    return category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL ||
           category == UTF8PROC_CATEGORY_NO;
}

static int cut_digits(const struct split_run *run, int index, struct text text, unsigned piece,
                      struct error *err)
{
    struct cutter cut = {.run = run,
                         .next_stage = index + 1,
                         .behavior = run->stages[index].behavior,
                         .text = text,
                         .piece = piece};
    size_t done = 0, used;
    int rc = 0;
    for (size_t at = 0; at < text.len; at += used) {
        if (!is_numeric(text_char(text.data + at, &used))) continue;
        if (at > done) rc = take_part(&cut, done, at, false, err);
        if (!rc) rc = take_part(&cut, at, at + used, true, err);
        if (rc) return rc;
        done = at + used;
    }
    if (done < text.len) rc = take_part(&cut, done, text.len, false, err);
    return rc ? rc : emit_pending(&cut, err);
}

static int run_byte_level(const struct split_run *run, int index, struct text text, unsigned piece,
                          struct error *err)
{
    const struct splitter *stage = &run->stages[index];
    if (stage->add_prefix_space && text.data[0] != ' ' && !(piece & PIECE_CONTINUES)) {
        struct text_buf *buf = &run->bufs[index];
        buf->len = 0;
        int rc = text_buf_append(buf, " ", 1, err);
        if (!rc) rc = text_buf_append(buf, text.data, text.len, err);
        if (rc) return rc;
        text = (struct text){buf->data, buf->len};
    }
    if (!stage->pattern.code) return run_stage(run, index + 1, text, piece, err);
    return cut_by_pattern(run, index, text, piece, err);
}

/* Blanks become the replacement; one is put in front when the scheme says so. */
static int replace_blanks(const struct splitter *stage, struct text text, unsigned piece,
                          struct text_buf *buf, struct error *err)
{
    size_t mark_len = strlen(stage->replacement);
    bool marked = text.data[0] == ' ' ||
                  (text.len >= mark_len && memcmp(text.data, stage->replacement, mark_len) == 0);
    bool wanted = stage->prepend == PREPEND_ALWAYS ||
                  (stage->prepend == PREPEND_FIRST && (piece & PIECE_FIRST));
    int rc = 0;
    buf->len = 0;
    if (wanted && !marked && !(piece & PIECE_CONTINUES)) {
        rc = text_buf_append(buf, stage->replacement, mark_len, err);
    }
    for (size_t at = 0; !rc && at < text.len;) {
        const char *blank = memchr(text.data + at, ' ', text.len - at);
        size_t len = blank ? (size_t)(blank - text.data) - at : text.len - at;
        rc = text_buf_append(buf, text.data + at, len, err);
        if (!rc && blank) rc = text_buf_append(buf, stage->replacement, mark_len, err);
        at += len + (blank != NULL);
    }
    return rc;
}

static int run_metaspace(const struct split_run *run, int index, struct text text, unsigned piece,
                         struct error *err)
{
    const struct splitter *stage = &run->stages[index];
    struct text_buf *buf = &run->bufs[index];
    int rc = replace_blanks(stage, text, piece, buf, err);
    if (rc) return rc;
    struct text replaced = {buf->data, buf->len};
    if (!stage->pattern.code) return run_stage(run, index + 1, replaced, piece, err);
    return cut_by_pattern(run, index, replaced, piece, err);
}

static int run_stage(const struct split_run *run, int index, struct text text, unsigned piece,
                     struct error *err)
{
    if (!text.len) return 0;
    if (index == run->n_stages) return run->take_word(run->arg, text, err);
    switch (run->stages[index].kind) {
    case SPLITTER_BYTE_LEVEL:
        return run_byte_level(run, index, text, piece, err);
    case SPLITTER_METASPACE:
        return run_metaspace(run, index, text, piece, err);
    case SPLITTER_DIGITS:
        return cut_digits(run, index, text, piece, err);
    default:
        return cut_by_pattern(run, index, text, piece, err);
    }
}

int splitter_run(const struct split_run *run, struct text text, unsigned piece, struct error *err)
{
    return run_stage(run, 0, text, piece, err);
}
