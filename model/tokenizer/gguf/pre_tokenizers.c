/* The table of tokenizer.ggml.pre. llama.cpp gives the names; the patterns are those of the models'
 * own tokenizer.json, where these are known: llama.cpp writes some of them for an engine that lacks
 * Unicode's classes, and leaves normal forms out. */
#include "model/tokenizer/gguf/pre_tokenizers.h"

#include <stdio.h>

#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define PUNCTUATION "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
#define LINES       "|\\s*[\\r\\n]+"
#define BLANKS      "|\\s+(?!\\S)|\\s+"
#define LETTERS     "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define GPT2        "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+" BLANKS
#define QWEN2       CONTRACTION "|" LETTERS "|\\p{N}" PUNCTUATION LINES BLANKS
#define NOT_LOWER   "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define NOT_UPPER   "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define NO_LETTER   "[^\\r\\n\\p{L}\\p{N}]?"
/* Words that end where a capital begins, with what may follow them. */
#define CASED(end) \
    NO_LETTER NOT_LOWER "*" NOT_UPPER "+" end "|" NO_LETTER NOT_LOWER "+" NOT_UPPER "*" end
#define CASED_PUNCTUATION "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*"
#define CJK               "[一-龥぀-ゟ゠-ヿ]+"
#define ASCII_PUNCTUATION "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~]"
#define DEEPSEEK \
    ASCII_PUNCTUATION "[A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+"
/* Letters that have two cases. */
#define DEEPSEEK_LETTERS                                                                     \
    "[A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}\\x{1c4}-" \
    "\\x{293}\\x{295}-\\x{2af}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}\\x{37f}"    \
    "\\x{386}\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}\\x{3a3}-\\x{3f5}\\x{3f7}-\\x{481}"   \
    "\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}\\x{13a0}-\\x{13f5}\\x{13f8}-"     \
    "\\x{13fd}\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}"  \
    "\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}\\x{1f48}-" \
    "\\x{1f4d}\\x{1f50}-\\x{1f57}\\x{1f59}\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}\\x{1f80}-"   \
    "\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}\\x{1fd0}-"  \
    "\\x{1fd3}\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{1fec}\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{1ffc}"  \
    "\\x{2102}\\x{2107}\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}\\x{2124}\\x{2126}"    \
    "\\x{2128}\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}\\x{2139}\\x{213c}-\\x{213f}\\x{2145}-"  \
    "\\x{2149}\\x{214e}\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}\\x{2ceb}-"   \
    "\\x{2cee}\\x{2cf2}\\x{2cf3}\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}"   \
    "\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}\\x{fb00}-\\x{fb06}\\x{fb13}-" \
    "\\x{fb17}\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}\\x{104b0}-"        \
    "\\x{104d3}\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}\\x{118a0}-"   \
    "\\x{118df}\\x{1e900}-\\x{1e943}]"

static const char *const gpt2[PRE_TOKENIZER_STAGES] = {GPT2};
static const char *const digit_gpt2[PRE_TOKENIZER_STAGES] = {"\\p{N}", GPT2};
static const char *const llama3[PRE_TOKENIZER_STAGES] = {
    CONTRACTION "|" LETTERS "|\\p{N}{1,3}" PUNCTUATION LINES BLANKS};
static const char *const qwen2[PRE_TOKENIZER_STAGES] = {QWEN2};
static const char *const qwen35[PRE_TOKENIZER_STAGES] = {
    CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}"
                "| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" LINES BLANKS};
static const char *const gpt4o[PRE_TOKENIZER_STAGES] = {
    CASED(CONTRACTION "?") "|\\p{N}{1,3}" CASED_PUNCTUATION LINES BLANKS};
static const char *const tekken[PRE_TOKENIZER_STAGES] = {
    CASED("") "|\\p{N}" CASED_PUNCTUATION LINES BLANKS};
static const char *const deepseek3[PRE_TOKENIZER_STAGES] = {"\\p{N}{1,3}", CJK,
                                                            DEEPSEEK "[\\r\\n]*" LINES BLANKS};
static const char *const deepseek_llm[PRE_TOKENIZER_STAGES] = {
    "[\\r\\n]", "\\s?" DEEPSEEK_LETTERS "+", "\\s?[!-/:-~！-／：-～‘-‟　-。]+",
    "\\s+$",    "[一-龥ࠀ-一가-퟿]+",  "\\p{N}+"};
static const char *const deepseek_coder[PRE_TOKENIZER_STAGES] = {
    "[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", "[一-龥ࠀ-一가-퟿]+", "\\p{N}"};
static const char *const spark[PRE_TOKENIZER_STAGES] = {"\\p{N}{1,3}", CJK,
                                                        DEEPSEEK "|[\\r\\n]" BLANKS, "\\p{N}"};
static const char *const youtu[PRE_TOKENIZER_STAGES] = {
    "[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|" CJK,
    CASED(CONTRACTION "?") "|\\p{N}" CASED_PUNCTUATION LINES BLANKS};
static const char *const falcon[PRE_TOKENIZER_STAGES] = {"[\\p{P}\\$\\+<=>\\^~\\|`]+", GPT2,
                                                         "[0-9][0-9][0-9]"};
static const char *const by_default[PRE_TOKENIZER_STAGES] = {"[\\p{P}\\$\\+<=>\\^~\\|]+", GPT2,
                                                             "\\p{N}+", "[0-9][0-9][0-9]"};
static const char *const bloom[PRE_TOKENIZER_STAGES] = {" ?[^(\\s|.,!?…。，、।۔،)]+"};
static const char *const viking[PRE_TOKENIZER_STAGES] = {" ?[^(\\s|.,!?…。，、।۔،)]+", "\\p{N}"};
static const char *const jais2[PRE_TOKENIZER_STAGES] = {
    CONTRACTION "|" LETTERS "|\\p{N}{1,3}" PUNCTUATION LINES
                "|\\s{512}(?!\\S)|\\s{256}(?!\\S)|\\s{128}(?!\\S)"
                "|\\s{64}(?!\\S)|\\s{32}(?!\\S)|\\s{16}(?!\\S)|\\s{8}(?!\\S)"
                "|\\s{4}(?!\\S)|\\s{1,2}(?!\\S)|\\s{1}"};
static const char *const minicpm5[PRE_TOKENIZER_STAGES] = {
    "\\p{N}{1,3}", CONTRACTION "|" LETTERS "|\\p{N}+" PUNCTUATION LINES BLANKS};
static const char *const bailing[PRE_TOKENIZER_STAGES] = {
    "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}"
    "| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]" BLANKS};
static const char *const seed_coder[PRE_TOKENIZER_STAGES] = {
    CONTRACTION "|" LETTERS "|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+" LINES BLANKS};
static const char *const ufakzeka[PRE_TOKENIZER_STAGES] = {LETTERS
                                                           "|\\p{N}" PUNCTUATION LINES BLANKS};
static const char *const laguna[PRE_TOKENIZER_STAGES] = {"[^\\n]+|[\\n]+", QWEN2};
static const char *const exaone_moe[PRE_TOKENIZER_STAGES] = {
    CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|\\p{N}"
                "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|\\s*[\\r\\n]" BLANKS};

static const struct pre_tokenizer table[] = {
    {"default", by_default, 0},
    {"llama-bpe", llama3, PRE_IGNORES_MERGES | PRE_ADDS_BOS},
    {"llama3", llama3, PRE_IGNORES_MERGES | PRE_ADDS_BOS},
    {"llama-v3", llama3, PRE_IGNORES_MERGES | PRE_ADDS_BOS},
    {"falcon3", llama3, PRE_IGNORES_MERGES | PRE_ADDS_BOS},
    {"falcon-h1", llama3, PRE_IGNORES_MERGES | PRE_ADDS_BOS},
    {"pixtral", llama3, PRE_IGNORES_MERGES | PRE_ADDS_BOS},
    {"midm-2.0", llama3, PRE_IGNORES_MERGES | PRE_ADDS_BOS},
    {"lfm2", llama3, PRE_IGNORES_MERGES | PRE_ADDS_BOS},
    {"dbrx", llama3, 0},
    {"smaug-bpe", llama3, 0},
    {"chatglm-bpe", llama3, 0},
    {"glm4", llama3, PRE_IGNORES_MERGES},
    {"glm5", llama3, PRE_IGNORES_MERGES},
    {"qwen2", qwen2, PRE_NFC},
    {"qwen35", qwen35, PRE_NFC},
    {"deepseek-r1-qwen", qwen2, 0},
    {"kormo", qwen2, 0},
    {"f2llmv2", qwen2, 0},
    {"megrez", qwen2, 0},
    {"stablelm2", qwen2, 0},
    {"hunyuan", qwen2, 0},
    {"solar-open", qwen2, 0},
    {"grok-2", qwen2, 0},
    {"gpt-4o", gpt4o, 0},
    {"llama4", gpt4o, 0},
    {"kanana2", gpt4o, 0},
    {"talkie", gpt4o, 0},
    {"minimax-m2", gpt4o, 0},
    {"tekken", tekken, PRE_IGNORES_MERGES | PRE_ADDS_BOS},
    {"deepseek-v3", deepseek3, 0},
    {"hunyuan-dense", deepseek3, 0},
    {"hy_v4", deepseek3, 0},
    {"joyai-llm", deepseek3, 0},
    {"deepseek-llm", deepseek_llm, 0},
    {"deepseek-coder", deepseek_coder, 0},
    {"spark2_5", spark, 0},
    {"gpt-2", gpt2, 0},
    {"phi-2", gpt2, 0},
    {"olmo", gpt2, 0},
    {"mpt", gpt2, 0},
    {"jais", gpt2, 0},
    {"gigachat", gpt2, 0},
    {"a.x-4.0", gpt2, 0},
    {"mellum", gpt2, 0},
    {"exaone4", gpt2, 0},
    {"trillion", gpt2, 0},
    {"granite-docling", gpt2, 0},
    {"smollm", digit_gpt2, 0},
    {"starcoder", digit_gpt2, 0},
    {"refact", digit_gpt2, 0},
    {"command-r", digit_gpt2, PRE_NFC},
    {"codeshell", digit_gpt2, 0},
    {"exaone", digit_gpt2, 0},
    {"minerva-7b", digit_gpt2, 0},
    {"mellum2", digit_gpt2, 0},
    {"exaone-moe", exaone_moe, 0},
    {"falcon", falcon, 0},
    {"bloom", bloom, 0},
    {"gpt3-finnish", bloom, 0},
    {"poro-chat", bloom, 0},
    {"viking", viking, 0},
    {"jais-2", jais2, 0},
    {"minicpm5", minicpm5, PRE_IGNORES_MERGES},
    {"youtu", youtu, PRE_IGNORES_MERGES},
    {"bailingmoe", bailing, 0},
    {"bailingmoe2", bailing, 0},
    {"llada-moe", bailing, 0},
    {"seed-coder", seed_coder, 0},
    {"ufakzeka", ufakzeka, 0},
    {"laguna", laguna, 0},
};

enum { N_NAMES = sizeof table / sizeof *table, NAME_BYTES = 24 };

const struct pre_tokenizer *pre_tokenizer_at(int i)
{
    return i < N_NAMES ? &table[i] : NULL;
}

int pre_tokenizer_find(const struct pre_tokenizer **pre, const struct gguf_text *name,
                       const char *origin, struct error *err)
{
    for (int i = 0; i < N_NAMES; i++) {
        if (!gguf_text_is(name, table[i].name)) continue;
        *pre = &table[i];
        return 0;
    }
    char names[160] = "";
    size_t at = 0;
    for (int i = 0; i < N_NAMES && at + NAME_BYTES < sizeof names; i++)
        at += (size_t)snprintf(names + at, sizeof names - at, "%s, ", table[i].name);
    return error_set(err, ERR_UNSUPPORTED,
                     "%.120s: tokenizer.ggml.pre \"%.*s\" is none of %sand the others that "
                     "docs/tokenizers.md lists; take a folder with the model's tokenizer.json",
                     origin, name->len < 40 ? (int)name->len : 40, name->data, names);
}
