/* The token table: id to content, piece and flags, and content to id. */
#include "model/tokenizer/table.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/memory.h"

static const size_t max_table_bytes = (size_t)512 << 20; /* a decoder may make pieces longer */

int token_table_init(struct token_table *table, int n_ids, struct error *err)
{
    int rc = 0;
    size_t n = (size_t)n_ids;
    size_t n_slots = 16;
    while (n_slots < n * 2)
        n_slots *= 2;
    *table = (struct token_table){.n_ids = n_ids, .mask = n_slots - 1};
    TRY(mem_array(&table->content, n, sizeof *table->content, err));
    TRY(mem_array(&table->piece, n, sizeof *table->piece, err));
    TRY(mem_array(&table->flags, n, sizeof *table->flags, err));
    TRY(mem_array(&table->slots, n_slots, sizeof *table->slots, err));
    memset(table->slots, 0xff, n_slots * sizeof *table->slots);
out:
    if (rc) token_table_free(table);
    return rc;
}

void token_table_free(struct token_table *table)
{
    free(table->content);
    free(table->piece);
    free(table->flags);
    free(table->slots);
    text_buf_free(&table->bytes);
    *table = (struct token_table){0};
}

static struct text span_text(const struct token_table *table, struct token_span span)
{
    if (!span.len) return (struct text){"", 0};
    return (struct text){table->bytes.data + span.at, span.len};
}

struct text token_table_content(const struct token_table *table, int32_t id)
{
    return span_text(table, table->content[id]);
}

struct text token_table_piece(const struct token_table *table, int32_t id)
{
    return span_text(table, table->piece[id]);
}

/* The slot that holds this content, or the empty one where it belongs. */
static size_t find_slot(const struct token_table *table, const char *data, size_t len)
{
    size_t at = (size_t)XXH3_64bits(data, len) & table->mask;
    for (; table->slots[at] >= 0; at = (at + 1) & table->mask) {
        struct text other = token_table_content(table, table->slots[at]);
        if (other.len == len && memcmp(other.data, data, len) == 0) break;
    }
    return at;
}

int32_t token_table_find(const struct token_table *table, const char *data, size_t len,
                         unsigned flags)
{
    if (len > table->max_content) return -1;
    int32_t id = table->slots[find_slot(table, data, len)];
    return id >= 0 && (table->flags[id] & flags) == flags ? id : -1;
}

static int store_bytes(struct token_table *table, struct token_span *span, const char *data,
                       size_t len, struct error *err)
{
    if (len > max_table_bytes - table->bytes.len) {
        return error_set(err, ERR_FORMAT, "the token table holds more than %zu bytes",
                         max_table_bytes);
    }
    *span = (struct token_span){(uint32_t)table->bytes.len, (uint32_t)len};
    return text_buf_append(&table->bytes, data, len, err);
}

int token_table_add(struct token_table *table, int32_t id, struct text content, unsigned flags,
                    const char *origin, struct error *err)
{
    int shown = text_shown_length(content.data, content.len, 80);
    size_t slot = find_slot(table, content.data, content.len);
    int32_t other = table->slots[slot];
    if (other >= 0 && other != id) {
        return error_set(err, ERR_FORMAT, "%s: token \"%.*s\" has two ids, %d and %d", origin,
                         shown, content.data, (int)other, (int)id);
    }
    if (other < 0 && (table->flags[id] & TOKEN_PRESENT)) {
        return error_set(err, ERR_FORMAT, "%s: two tokens have id %d, one is \"%.*s\"", origin,
                         (int)id, shown, content.data);
    }
    table->flags[id] = (uint8_t)(table->flags[id] | flags | TOKEN_PRESENT);
    if (other == id) return 0;
    int rc = store_bytes(table, &table->content[id], content.data, content.len, err);
    if (rc) return rc;
    table->slots[slot] = id;
    if (content.len > table->max_content) table->max_content = content.len;
    return 0;
}

int token_table_set_piece(struct token_table *table, int32_t id, const char *data, size_t len,
                          struct error *err)
{
    struct text content = token_table_content(table, id);
    if (content.len == len && memcmp(content.data, data, len) == 0) {
        table->piece[id] = table->content[id];
        return 0;
    }
    return store_bytes(table, &table->piece[id], data, len, err);
}

static void store_le32(uint8_t out[4], uint32_t value)
{
    for (int i = 0; i < 4; i++)
        out[i] = (uint8_t)(value >> 8 * i);
}

/* Every hash is the seed of the next. */
uint64_t token_table_fingerprint(const struct token_table *table)
{
    uint64_t hash = 0;
    for (int id = 0; id < table->n_ids; id++) {
        if (!(table->flags[id] & TOKEN_PRESENT)) continue;
        struct text piece = token_table_piece(table, id);
        uint8_t head[9];
        store_le32(head, (uint32_t)id);
        store_le32(head + 4, (uint32_t)piece.len);
        head[8] = (table->flags[id] & TOKEN_SPECIAL) != 0;
        hash = XXH3_64bits_withSeed(head, sizeof head, hash);
        hash = XXH3_64bits_withSeed(piece.data, piece.len, hash);
    }
    return hash;
}

static bool is_its_own_code(int byte)
{
    return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

/* The 68 other bytes, in ascending order, are U+0100 and up. */
static int32_t byte_level_code(uint8_t byte)
{
    if (is_its_own_code(byte)) return byte;
    if (byte <= 0x20) return 0x100 + byte;
    if (byte < 0xad) return 0x121 + (byte - 0x7f); /* 7F..A0 */
    return 0x143;                                  /* AD */
}

size_t byte_level_char(uint8_t byte, char out[2])
{
    int32_t code = byte_level_code(byte);
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    out[0] = (char)(0xc0 | code >> 6);
    out[1] = (char)(0x80 | (code & 0x3f));
    return 2;
}

bool byte_level_decode(struct text content, char *out, size_t *out_len)
{
    *out_len = 0;
    for (size_t at = 0; at < content.len;) {
        size_t used;
        int32_t c = text_char(content.data + at, &used);
        int byte = -1;
        if (c < 0x100 && is_its_own_code(c)) byte = c;
        if (c >= 0x100 && c <= 0x120) byte = c - 0x100;
        if (c >= 0x121 && c <= 0x142) byte = c - 0x121 + 0x7f;
        if (c == 0x143) byte = 0xad;
        if (byte < 0) return false;
        out[(*out_len)++] = (char)byte;
        at += used;
    }
    return true;
}

static int hex_value(char digit)
{
    if (digit >= '0' && digit <= '9') return digit - '0';
    if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
    if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
    return -1;
}

int byte_token_value(struct text content)
{
    if (content.len != 6 || memcmp(content.data, "<0x", 3) != 0 || content.data[5] != '>')
        return -1;
    int high = hex_value(content.data[3]);
    int low = hex_value(content.data[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}
