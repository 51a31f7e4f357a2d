#!/usr/bin/env python3
"""Writes tests/golden/gguf_tokenizers/: small GGUF files, texts, and the ids that other programs
give them (pip install transformers tokenizers gguf sentencepiece numpy; no torch).

    python tests/oracle/gguf_tokenizers_golden.py [FILE.gguf of Gemma 3]

  bpe.gguf       a byte-level vocabulary without tokenizer.ggml.pre; its merges go across words, so
                 that every cut of a pattern shows
  spm.gguf       a SentencePiece vocabulary with a blank before a text (Llama 2, Phi 3)
  gemma.gguf     one without, with runs of blanks and of lines that are user defined
  texts.json     versions; `texts`, about 1,000; `ids`, the lists of NAME.ids
  NAME.ids       for each text the number of its ids plus 1, and the ids, as LEB128; 0: those of
                 gpt-2.ids. Special tokens of the text are these tokens; none are put around it.
The ids are those of transformers' tokenizer of the GGUF file, with what the models' own tokenizers
have besides: a normal form (Qwen 2), whole words (Llama 3, Tekken). deepseek-v3 and smollm, whose
patterns transformers' reader of GGUF lacks, are put together of tokenizers' components as in these
models' tokenizer.json. gemma3.ids is made only where Gemma's file is named."""
import json
import pathlib
import random
import sys
import tempfile

import gguf
import sentencepiece
import tokenizers
import transformers
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import tokenizers_golden

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "tests/golden/gguf_tokenizers"
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
N_TEXTS = 1000
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<｜end▁of▁sentence｜>"]
USER = ["<think>", "</think>"]
WORDS = (
    "Hello world the quick brown fox I'm don't WE'LL they've it'S 'Re camelCase "
    "HTTPServer XMLHttpRequest iPhone McDonald's ÉcoleNormale naïve façade Straße "
    "ΑΒΓαβγ привет Мир ПриветМир हिन्दी ज्ञ ไทย ภาษา العربية עברית 漢字 日本語 ひらがな "
    "カタカナ 한국어 中文字符 你好，世界！ 𝕳ello 🙂 👩‍👩‍👧 🇩🇪 ☃️ e\u0301 cafe\u0301 A\u030a "
    "s\u0323\u0307 ſ 'ſ ﬁ ½ ² Ⅷ ① ٣٤٥ १२३ 1 12 123 1234 12345 1234567890 3.14159 "
    "1,000 0x1F 2026-11-27 €100 $5 def f(x): return { } [ ] ( ) == != <= >= && || "
    "-> => :: // /* */ # @ % ^ ~ ` \\ | ... !? --- ___ snake_case kebab-case a/b/c "
    "http://x.y/z?q=1&r=2 <tag> </tag> &amp; \"q\" «x» “q” ‘s’ \u2019s – — … "
    "\u00a0 \u2003 \u3000 \u200b \u200d \ufeff \u0085 \u2028 ▁ ▁▁ a▁b Ġ Ċ \x00 "
    "\x7f <|im_start|> <|im_end|> <|endoftext|> <｜end▁of▁sentence｜> <think> "
    "</think> <|im_en <0x0A> <s> </s> <unk> <bos> <start_of_turn> <table> "
    "`<end_of_turn>`").split(" ")
BLANKS = ["", " ", " ", " ", "  ", "   ", "     ", "\n", "\n\n", " \n", "\n ", "\n\n\n  ", "\t",
          "\t\t", "\r\n", "\r\n\r\n", " \t ", "  \n", "    ", "        ", " " * 17, "\u00a0 "]


def texts():
    rng = random.Random(7)
    made = list(tokenizers_golden.TEXTS)
    while len(made) < N_TEXTS:
        made.append("".join(rng.choice(BLANKS) + rng.choice(WORDS)
                            for _ in range(rng.randint(1, 5))) + rng.choice(BLANKS))
    return made


def corpus():
    rng = random.Random(8)
    words = [word for word in WORDS if word not in SPECIAL + USER]
    for _ in range(3000):
        yield "".join(rng.choice(words) + rng.choice(BLANKS) for _ in range(30))
    yield from tokenizers_golden.corpus()[:600]


def writer(path, architecture, model):
    made = gguf.GGUFWriter(path, architecture)
    made.add_tokenizer_model(model)
    return made


def finish(made):
    made.write_header_to_file()
    made.write_kv_data_to_file()
    made.write_ti_data_to_file()
    made.close()


def make_bpe(path, pre=None):
    """Trained without cutting words, so that merges go across everything that a pattern cuts."""
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"[^\n ]{1,12} ?[^ \n]{0,4}\s*"), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=1000, show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    data = json.loads(tok.to_str())["model"]
    tokens = sorted(data["vocab"], key=data["vocab"].get)
    # Words that are tokens without merges that reach them show ignore_merges.
    tokens += ["ĠquickĠbrown", "McDonald", "Ġbrownies", "1234567", "ĠHello"]
    merges = [" ".join(pair) for pair in data["merges"] if "".join(pair) != "ĠHello"]
    tokens = list(dict.fromkeys(tokens))
    made = writer(path, "llama", "gpt2")
    if pre:
        made.add_tokenizer_pre(pre)
    made.add_token_list(tokens + SPECIAL + USER)
    made.add_token_types([NORMAL] * len(tokens) + [CONTROL] * len(SPECIAL) +
                         [USER_DEFINED] * len(USER))
    made.add_token_merges(merges)
    made.add_bos_token_id(len(tokens))
    made.add_eos_token_id(len(tokens) + 2)
    finish(made)


def make_spm(path, architecture, blank, user, **pieces):
    with tempfile.TemporaryDirectory() as folder:
        lines = pathlib.Path(folder, "corpus")
        lines.write_text("\n".join(line.replace("\n", " ").replace("\0", "")
                                   for line in corpus()), encoding="utf-8")
        sentencepiece.SentencePieceTrainer.train(
            input=str(lines), model_prefix=str(pathlib.Path(folder, "m")), model_type="bpe",
            vocab_size=1100, byte_fallback=True, add_dummy_prefix=blank,
            remove_extra_whitespaces=False, normalization_rule_name="identity",
            character_coverage=0.999, user_defined_symbols=list(user),
            control_symbols=["<start_of_turn>", "<end_of_turn>", "<mask>"], minloglevel=2,
            max_sentence_length=100000, **pieces)
        sp = sentencepiece.SentencePieceProcessor(str(pathlib.Path(folder, "m.model")))
    tokens, types = [], []
    for i in range(sp.get_piece_size()):
        token = sp.id_to_piece(i)
        kind = (UNKNOWN if sp.is_unknown(i) else CONTROL if sp.is_control(i) else
                BYTE if sp.is_byte(i) else USER_DEFINED if token in user else NORMAL)
        # As llama.cpp's converter writes them.
        tokens.append(token.replace("▁", " ") if kind == USER_DEFINED else token)
        types.append(kind)
    made = writer(path, architecture, "llama")
    made.add_tokenizer_pre("default")
    made.add_token_list(tokens)
    made.add_token_scores([sp.get_score(i) for i in range(len(tokens))])
    made.add_token_types(types)
    made.add_bos_token_id(1)
    made.add_eos_token_id(2)
    made.add_unk_token_id(0)
    made.add_add_space_prefix(blank)
    finish(made)
    return sp


def of_transformers(path):
    made = transformers.AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)
    return made.backend_tokenizer


def of_bpe(folder, name, *, whole_words=False, normalizer=None, splitter=None):
    path = pathlib.Path(folder, f"{name}.gguf")
    make_bpe(path, name)
    tok = of_transformers(path)
    tok.model.ignore_merges = whole_words
    if normalizer:
        tok.normalizer = normalizer
    if splitter:
        tok.pre_tokenizer = splitter
    return tok


def bpe_tokenizers(folder):
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    isolated = lambda pattern: pre_tokenizers.Split(Regex(pattern), "isolated")
    deepseek = pre_tokenizers.Sequence([
        isolated(r"\p{N}{1,3}"), isolated("[一-龥぀-ゟ゠-ヿ]+"),
        isolated(r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?"
                 r"[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"), level])
    smollm = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    nfc = transformers.Qwen2Tokenizer().backend_tokenizer.normalizer
    assert isinstance(nfc, normalizers.NFC)
    yield "gpt-2", of_bpe(folder, "gpt-2")
    yield "llama-bpe", of_bpe(folder, "llama-bpe", whole_words=True)
    yield "qwen2", of_bpe(folder, "qwen2", normalizer=nfc)
    yield "gpt-4o", of_bpe(folder, "gpt-4o")
    yield "tekken", of_bpe(folder, "tekken", whole_words=True)
    yield "deepseek-v3", of_bpe(folder, "deepseek-v3", splitter=deepseek)
    yield "smollm", of_bpe(folder, "smollm", splitter=smollm)


def number(n):
    out = bytearray()
    while n >= 128:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes(out) + bytes([n])


def write_ids(name, ids, base):
    with open(OUT / f"{name}.ids", "wb") as file:
        for i, one in enumerate(ids):
            if base and one == base[i]:
                file.write(number(0))
            else:
                file.write(number(len(one) + 1) + b"".join(number(id_) for id_ in one))


def encode_all(tok, made, ids=None):
    """ids: in place of those that transformers gives."""
    return [[(ids or {}).get(id_, id_) for id_ in tok.encode(text, add_special_tokens=False).ids]
            for text in made]


def main():
    made, base, names = texts(), None, []
    make_bpe(OUT / "bpe.gguf")
    fields = gguf.GGUFReader(OUT / "bpe.gguf").fields
    place = {text: i for i, text in enumerate(fields["tokenizer.ggml.tokens"].contents())}
    with tempfile.TemporaryDirectory() as folder:
        for name, tok in bpe_tokenizers(folder):
            # transformers leaves out special tokens with characters that are not GPT-2's, and
            # would give them other ids than the file does.
            odd = SPECIAL[-1]
            tok.add_special_tokens([tokenizers.AddedToken(odd, normalized=False)])
            ids = encode_all(tok, made, {tok.token_to_id(odd): place[odd]})
            write_ids(name, ids, base)
            n_other = sum(one != other for one, other in zip(ids, base or ids))
            print(f"{name}: {n_other} texts differ from gpt-2")
            base = base or ids
            names.append(name)
    blanks = ["▁" * n for n in range(2, 20)]
    for name, architecture, blank, user, pieces in (
            ("spm", "phi3", True, ["<think>", "\t\t"], {}),
            ("gemma", "gemma3", False, ["\n", "\n\n", "<table>", *blanks],
             {"bos_piece": "<bos>", "eos_piece": "<eos>", "pad_id": 3, "pad_piece": "<pad>"})):
        path = OUT / f"{name}.gguf"
        sp = make_spm(path, architecture, blank, user, **pieces)
        ids = encode_all(of_transformers(path), made)
        own = [sp.encode(text) for text in made]
        print(f"{name}: {sum(one != other for one, other in zip(ids, own))} texts differ from "
              "SentencePiece's own, which reads no special tokens")
        write_ids(name, ids, None)
        names.append(name)
    if len(sys.argv) > 1:
        write_ids("gemma3", encode_all(of_transformers(pathlib.Path(sys.argv[1])), made), None)
    versions = {module.__name__: module.__version__
                for module in (tokenizers, transformers, sentencepiece)}
    (OUT / "texts.json").write_text(
        json.dumps({"version": versions, "ids": names, "texts": made}, separators=(",", ":"),
                   ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
