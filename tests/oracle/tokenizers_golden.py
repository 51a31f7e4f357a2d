#!/usr/bin/env python3
"""Writes tests/golden/tokenizers/ with Hugging Face's tokenizers library (pip install tokenizers).

NAME.json is a small tokenizer of each family, trained on the vocabulary of the shipped pair and on
samples of many scripts. NAME.golden.json holds the version of the library and what it makes of hard
texts, for one tokenizer or several:
  base       the tokenizer file, without .json
  patch      members that replace those of the base, for variants that need no file of their own
  cases      text, ids (with add_special_tokens), plain (without it), literal (without it, and
             special tokens in the text are text), decoded, skipped (decoded without special tokens)
  sequences  ids chosen at random, decoded and skipped; many are not valid UTF-8
Run: tests/oracle/tokenizers_golden.py (from the top of the source)."""

import json
import pathlib
import random

import tokenizers
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers,
                        processors, trainers)

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "tests/golden/tokenizers"
TALES = ROOT / "deploy/models/tales/target/tokenizer.json"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")

SAMPLES = [
    "The quick brown fox jumps over the lazy dog.", "Съешь же ещё этих мягких французских булок",
    "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία", "نص حكيم له سر قاطع وذو شأن عظيم", "דג סקרן שט בים מאוכזב",
    "ऋषियों को सताने वाले दुष्ट राक्षसों के राजा", "เป็นมนุษย์สุดประเสริฐเลิศคุณค่า",
    "我能吞下玻璃而不伤身体。", "いろはにほへと ちりぬるを カタカナ", "키스의 고유조건은 입술끼리", "\u1112\u1161\u11ab\u1100\u1173\u11af",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467 \U0001f44b\U0001f3fd "
    "\U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7 ☃️ 🙂",
]
TEXTS = SAMPLES + [
    "", " ", "  ", "a", " a", "  a", "   a  b ",
    "Once upon a time there was a king who had three daughters,",
    "caf\u00e9 cafe\u0301 \u212b A\u030a \u1e69 s\u0323\u0307 s\u0307\u0323",
    "q\u0307\u0323\u0301 \u0301start", "a" + "\u0301\u0323" * 20 + "b",
    "\uac01\u1100\u1161\u11a8\uac00\u11a8", "\ufb01 \u2460 \u00bd \uff21 \u3392 \ufdfa",
    "tab\tand\t\ttabs", "line\nline\n\nline\n\n\n  line", "crlf\r\nline\r\n\r\n  x", "\n", "\n\n",
    " \n ", "\r", " \t \n \r\n x", "trailing   ", "trailing\n   ", "x     y",
    "x \u00a0 y\u2003\u2003z\u3000w", "nel\u0085next\u2028ls\u2029ps",
    "a\u180eb \u180e c\u180e\u180e", "\ufeffbom \ufeff mid", "\ufffd\ufffd",
    "\ufdd0\uffff\U0001ffff\U0010ffff", "nul\0nul\0\0", "\x01\x02\x1b[0m\x7f\x80\x9f",
    "1 12 123 1234 12345 123456 1234567", "3.14159 1,000,000 ٣٤٥ १२३ Ⅷ ² ½", "x1y22z333",
    "I'm you're he's we've she'll they'd don't", "I'M YOU'RE HE'S WE'VE SHE'LL THEY'D DON'T",
    "I'\u017f 'S's '\u017ft \u2019s", "<|endoftext|>", "a<|endoftext|>b",
    " <|endoftext|> <|endoftext|>", "<|endoftext|", "<|im_start|>user\nhi<|im_end|>\n", "<s>",
    "</s>", "a <s> b</s>", "<unk> x", "<0x41><0x0A>", "<|begin_of_text|>hello<|eot_id|>",
    "x <mask> y  <mask>  z<mask>", "x <rs>   y<rs>", "cat concat cats cat. (cat) cat\u0301 cat_",
    "<tool_call>{\"a\": 1}</tool_call>", "\u212bngstrom A\u030angstrom Ångstrom", "▁", "▁▁a ▁b",
    " ▁", "a▁b", "Ġ Ċ Ā ł", "snake_case camelCase kebab-case", "http://example.com/a?b=c&d=%20#e",
    "int main(void) { return a[i] ^ ~b; }", "!!!???...---", "«quoted» “quoted” ‘q’",
    "€100 $5 £3 ¥7", "∑∫√ ≤≥ →←", "Zażółć gęślą jaźń", "Tiếng Việt có dấu", "ÀÉÎÕÜ ßẞ ıİ",
    "𝕳𝖊𝖑𝖑𝖔 𐍈𐌰", "mixedКириллицаand中文と日本語", "\u200b\u200c\u200d\u2060",
    "\ud7ff\ue000\uf8ff \U0010fffd", "e" * 300, "ab" * 200, "she sells " * 40,
    "\u0645\u064f\u062d\u064e\u0645\u0651\u064e\u062f", "क्षत्रिय ज्ञ", "กำ ำ",
    "".join(random.Random(4).choices("aeinorsthld", k=700)),
    "".join(random.Random(5).choices("hesaltoрто我", k=333)),
    "\U0001f468\U0001f3ff\u200d\U0001f4bb\U0001f3f4\U000e0067\U000e0062\U000e007f",
    "\U0001f1e6" * 5, "☃" * 7, "\u2603\u2604x\u2605 \u2606",
]


def corpus():
    vocab = json.loads(TALES.read_text())["model"]["vocab"]
    words = [word.replace("Ġ", " ").replace("Ċ", "\n") for word in vocab if word.isprintable()]
    rng = random.Random(1)
    lines = ["".join(rng.choice(words) for _ in range(12)) for _ in range(3000)]
    return lines + SAMPLES * 20


def train(tok, size, special, **more):
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=special, show_progress=False,
                                  **more)
    tok.train_from_iterator(corpus(), trainer)
    return tok


def byte_level(size, special, pre, normalizer=None):
    tok = Tokenizer(models.BPE())
    if normalizer:
        tok.normalizer = normalizer
    tok.pre_tokenizer = pre
    tok.decoder = decoders.ByteLevel()
    return train(tok, size, special, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))


def gpt2():
    tok = byte_level(1000, ["<|endoftext|>"], pre_tokenizers.ByteLevel(add_prefix_space=False))
    tok.post_processor = processors.ByteLevel(trim_offsets=False)
    return tok


def llama3():
    pre = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok = byte_level(1000, [], pre)
    tok.add_special_tokens(["<|begin_of_text|>", "<|eot_id|>"])
    begin = tok.token_to_id("<|begin_of_text|>")
    tok.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A $B",
                                      special_tokens=[("<|begin_of_text|>", begin)])])
    # ignore_merges shows only where a word is a token that its merges do not reach.
    data = json.loads(tok.to_str())
    data["model"]["ignore_merges"] = True
    data["model"]["merges"] = [m for i, m in enumerate(data["model"]["merges"]) if i % 7 != 3]
    have = set(data["model"]["vocab"])
    reach = {a + b for a, b in data["model"]["merges"]}
    data["model"]["merges"] = [m for m in data["model"]["merges"] if m[0] in have and m[1] in have]
    assert any(len(word) > 2 and word not in reach for word in have)
    return Tokenizer.from_str(json.dumps(data))


def qwen2():
    pre = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(QWEN2), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok = byte_level(1000, [], pre, normalizers.NFC())
    tok.post_processor = processors.ByteLevel(trim_offsets=False)
    tok.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>",
                            AddedToken("<mask>", lstrip=True), AddedToken("<rs>", rstrip=True)])
    tok.add_tokens([AddedToken("<tool_call>", normalized=False),
                    AddedToken("</tool_call>", normalized=False),
                    AddedToken("cat", single_word=True),
                    AddedToken("A\u030angstrom", normalized=True)])
    return tok


def template(tok):
    ids = [(name, tok.token_to_id(name)) for name in ("<s>", "</s>")]
    return processors.TemplateProcessing(single="<s> $A </s>", pair="<s> $A <s> $B",
                                         special_tokens=ids)


def sentencepiece(size, fallback, fuse):
    tok = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=fuse, byte_fallback=fallback))
    tok.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    bytes_ = ["<0x%02X>" % i for i in range(256)] if fallback else []
    codes = [*range(33, 127), *range(0x430, 0x450), *range(0x3b1, 0x3ca), 0xe9, 0x2581]
    alphabet = [chr(c) for c in codes]
    train(tok, size, ["<unk>", "<s>", "</s>"] + bytes_, initial_alphabet=alphabet,
          limit_alphabet=len(alphabet))
    data = json.loads(tok.to_str())
    data["added_tokens"] = data["added_tokens"][:3]
    return Tokenizer.from_str(json.dumps(data))


def llama2():
    tok = sentencepiece(1200, True, True)
    tok.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tok.pre_tokenizer = None
    tok.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(),
                                     decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tok.post_processor = template(tok)
    return tok


def metaspace():
    tok = sentencepiece(900, False, True)
    tok.decoder = decoders.Metaspace(prepend_scheme="first")
    tok.post_processor = template(tok)
    return tok


def repeats():
    """Merges that compete for the same letters: the ids show in which order they are done."""
    merges = [["a", "a"], ["aa", "aa"], ["a", "b"], ["aaaa", "aa"], ["b", "aa"], ["aaaa", "aaaa"],
              ["ab", "ab"],
              ["aa", "ab"], ["b", "b"], ["baa", "bb"], ["a", "aa"]]
    words = ["a", "b"] + ["".join(pair) for pair in merges]
    return {"added_tokens": [], "post_processor": None,
            "model": {"type": "BPE",
                      "vocab": {word: i for i, word in enumerate(dict.fromkeys(words))},
                      "merges": merges}}


def repeated_texts():
    rng = random.Random(6)
    yield from ("a" * n for n in (1, 2, 3, 5, 7, 11, 15, 47, 48, 49, 50, 63, 100, 257))
    lengths = (10, 20, 40, 48, 49, 60, 80, 120, 200, 500)
    yield from ("".join(rng.choices("aaab", k=n)) for n in lengths * 4)


def component(part):
    return json.loads(part.__getstate__())


def variants():
    """(name, base, patch): every other component that is understood, on a base it can work with."""
    byte = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    chain = lambda *parts: {"pre_tokenizer": component(pre_tokenizers.Sequence([*parts, byte]))}
    for behavior in ("isolated", "removed", "contiguous", "merged_with_previous",
                     "merged_with_next"):
        for invert in (False, True):
            name = "split_%s%s" % (behavior, "_invert" if invert else "")
            yield name, "gpt2", chain(pre_tokenizers.Split(Regex(r"[aeiou]|\d"), behavior, invert))
    yield "split_string", "gpt2", chain(pre_tokenizers.Split(" ", "merged_with_next"))
    yield "split_empty", "gpt2", chain(pre_tokenizers.Split(Regex("x*"), "isolated"))
    yield "split_words", "gpt2", chain(pre_tokenizers.Split(Regex(r"\w+|\W"), "isolated"))
    scripts = Regex(r"\p{Han}+|[\p{Hiragana}]+|\S+")
    yield "split_script", "gpt2", chain(pre_tokenizers.Split(scripts, "isolated"))
    yield "digits", "gpt2", chain(pre_tokenizers.Digits(False))
    yield "digits_each", "gpt2", chain(pre_tokenizers.Digits(True))
    yield "prefix_space", "gpt2", {
        "pre_tokenizer": component(pre_tokenizers.ByteLevel(add_prefix_space=True))}
    for form in ("NFD", "NFKC", "NFKD"):
        yield form.lower(), "gpt2", {"normalizer": {"type": form}}
    yield "replace_regex", "gpt2", {"normalizer": component(normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "),
         normalizers.Replace("e", "")]))}
    yield "metaspace_always", "metaspace", {
        "pre_tokenizer": component(pre_tokenizers.Metaspace(prepend_scheme="always")),
        "decoder": component(decoders.Metaspace(prepend_scheme="always"))}
    yield "metaspace_never", "metaspace", {
        "pre_tokenizer": component(pre_tokenizers.Metaspace(prepend_scheme="never", split=False)),
        "decoder": component(decoders.Metaspace(prepend_scheme="never"))}
    yield "no_decoder", "metaspace", {"decoder": None}
    yield "strip_ends", "llama2", {"decoder": component(decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
         decoders.Strip("e", 2, 2)]))}


def patched(base, patch):
    data = json.loads((OUT / (base + ".json")).read_text())
    data.update(patch)
    return Tokenizer.from_str(json.dumps(data))


def decode(tok, ids):
    try:
        return {"decoded": tok.decode(ids, skip_special_tokens=False),
                "skipped": tok.decode(ids, skip_special_tokens=True)}
    except BaseException as error:  # the library panics on some strips
        if "Panic" not in type(error).__name__:
            raise
        return {}


def case(tok, text):
    ids = tok.encode(text).ids
    plain = tok.encode(text, add_special_tokens=False).ids
    tok.encode_special_tokens = True
    literal = tok.encode(text, add_special_tokens=False).ids
    tok.encode_special_tokens = False
    result = {"text": text, "ids": ids}
    if plain != ids:
        result["plain"] = plain
    if literal != plain:
        result["literal"] = literal
    return result | decode(tok, ids)


HARD_BYTES = [
    "eda080", "edbfbf", "ee8080", "ed9fbf", "c0af", "c1bf", "e08080", "e09fbf", "e0a080",
    "f08f8080", "f0908080", "f48fbfbf", "f4908080", "f5808080", "ff", "80", "e298", "e29861",
    "e298e29883", "f09f98", "f09f9861", "f09fc3a9", "c3", "c3c3a9", "e2989883", "efbfbd",
    "61ffe29883ff62", "e29883ff", "20e298", "eda080edb080", "f09f9880f09f",
]


def hard_sequences(tok):
    """Byte tokens that are not UTF-8, or only just are, alone and before an ordinary token."""
    alphabet = dict(zip(sorted(pre_tokenizers.ByteLevel.alphabet()), range(256)))
    # Byte to token, in GPT-2's alphabet: printable bytes are themselves, the others U+0100 and up.
    names = {}
    others = iter(sorted(c for c in alphabet if ord(c) > 255))
    for byte in range(256):
        names[byte] = chr(byte) if chr(byte) in alphabet else next(others)
    fallback = tok.token_to_id("<0x00>") is not None
    for text in HARD_BYTES:
        ids = [tok.token_to_id("<0x%02X>" % b if fallback else names[b])
               for b in bytes.fromhex(text)]
        for more in ([], [tok.token_to_id("a")]):
            yield {"ids": ids + more} | decode(tok, ids + more)


def sequences(tok, n):
    if n > 10 and (tok.token_to_id("Ġ") or tok.token_to_id("<0x00>")):
        yield from hard_sequences(tok)
    rng = random.Random(2)
    vocab = sorted(tok.get_vocab().values())
    bytes_ = [id_ for word, id_ in tok.get_vocab().items()
              if len(word) == 1 or word.startswith("<0x")]
    for i in range(n):
        pool = sorted(bytes_) if i % 2 else vocab
        ids = [rng.choice(pool) for _ in range(rng.randint(1, 24))]
        yield {"ids": ids} | decode(tok, ids)


def golden(name, base, patch, tok, texts, n_sequences):
    return {"name": name, "base": base, "patch": patch,
            "cases": [case(tok, text) for text in texts],
            "sequences": list(sequences(tok, n_sequences))}


def write(name, entries):
    text = json.dumps({"version": tokenizers.__version__, "tokenizers": entries},
                      separators=(",", ":"))
    (OUT / (name + ".golden.json")).write_text(text + "\n")


def main():
    for make in (gpt2, llama3, qwen2, llama2, metaspace):
        tok = make()
        name = make.__name__
        text = json.dumps(json.loads(tok.to_str()), ensure_ascii=False, separators=(",", ":"))
        (OUT / (name + ".json")).write_text(text + "\n")
        write(name, [golden(name, name, {}, Tokenizer.from_str(text), TEXTS, 60)])
    write("tales", [golden("tales", "tales", {}, Tokenizer.from_file(str(TALES)), TEXTS, 60)])
    write("variants", [golden(name, base, patch, patched(base, patch), TEXTS[::2], 10)
                       for name, base, patch in variants()] +
          [golden("repeats", "gpt2", repeats(), patched("gpt2", repeats()), repeated_texts(), 0)])


if __name__ == "__main__":
    main()
