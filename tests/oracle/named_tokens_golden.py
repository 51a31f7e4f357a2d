#!/usr/bin/env python3
"""Writes tests/golden/tokenizers/named.golden.json: the ids that transformers' AutoTokenizer gives
where special tokens stand in other files than tokenizer.json (pip install transformers; no torch).

  version    of transformers and tokenizers
  base       the tokenizer file, without .json, whose vocabulary gets the tokens of `vocab` besides
  vocab      text to id
  texts      what is encoded
  folders    one for each way of naming tokens:
    name     what is tried
    added    entries of added_tokens in tokenizer.json, besides its own
    files    the files beside tokenizer.json, by name
    ids      of each text, without the tokens around it
    skipped  these ids as text again, without special tokens
Run: tests/oracle/named_tokens_golden.py (from the top of the source)."""
import json
import pathlib
import tempfile

import tokenizers
import transformers

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests/golden/tokenizers"
BASE = "gpt2"
VOCAB = {"<|im_start|>": 1000, "<|im_end|>": 1001, "<|fim|>": 1002, "[MASK]": 1003, "<pad>": 1004,
         "<tool>": 1005}
TEXTS = ["<|im_start|>user\nhi<|im_end|>\n", "<|im_end|>", "a<|fim|>b", "x <|fim|>  y", "[MASK] x",
         " [MASK] ", "x<pad><pad>", "<tool>a</tool>", "<|endoftext|>a", "<new> <|im_en", "a<new>b",
         "<|im_end|><|im_start|>", "cat<|im_end|>cats <tool>s"]
ANY = {"lstrip": False, "rstrip": False, "normalized": False, "single_word": False}


def token(text, **more):
    return {"content": text, **ANY, **more}


def saved(text, **more):
    """As transformers 4 saves a token in tokenizer_config.json."""
    return token(text, __type="AddedToken", **more)


def folders():
    """(name, added_tokens, files)"""
    config, names, added = "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"
    yield "nothing", [], {}
    yield "an empty config", [], {config: {}}
    yield "eos_token", [], {config: {"eos_token": "<|im_end|>"}}
    yield "all names", [], {config: {
        "bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "pad_token": "<pad>",
        "mask_token": "[MASK]", "unk_token": "<|endoftext|>", "sep_token": None}}
    yield "saved tokens", [], {config: {
        "eos_token": saved("<|im_end|>"), "mask_token": saved("[MASK]", lstrip=True),
        "pad_token": saved("<pad>", rstrip=True)}}
    yield "additional_special_tokens", [], {config: {
        "additional_special_tokens": ["<|im_start|>", "<|im_end|>", saved("<|fim|>", lstrip=True)]}}
    yield "extra_special_tokens, a list", [], {config: {
        "extra_special_tokens": ["<|im_start|>", "<|fim|>"]}}
    yield "extra_special_tokens, named", [], {config: {
        "extra_special_tokens": {"fim_token": "<|fim|>", "tool_token": "<tool>"}}}
    yield "both lists", [], {config: {
        "additional_special_tokens": ["<|im_start|>"], "extra_special_tokens": ["<|fim|>"]}}
    yield "a name of the model's own", [], {config: {"fim_token": "<|fim|>"}}
    yield "added_tokens_decoder", [], {config: {"added_tokens_decoder": {
        "1000": token("<|im_start|>", special=True), "1001": token("<|im_end|>", special=True),
        "1003": token("[MASK]", special=True, lstrip=True), "1005": token("<tool>"),
        "1002": token("<|fim|>", normalized=True)}}}
    yield "added_tokens_decoder with ids past the vocabulary", [], {config: {
        "added_tokens_decoder": {"1006": token("<new>", special=True)}}}
    yield "added_tokens_decoder and a name that is not in it", [], {config: {
        "eos_token": "<|im_end|>",
        "added_tokens_decoder": {"1000": token("<|im_start|>", special=True)}}}
    yield "added_tokens_decoder and a map that is then not read", [], {
        config: {"added_tokens_decoder": {"1000": token("<|im_start|>", special=True)}},
        names: {"eos_token": "<|im_end|>"}}
    yield "special_tokens_map", [], {names: {
        "eos_token": "<|im_end|>", "mask_token": token("[MASK]", lstrip=True)}}
    yield "special_tokens_map beside a config", [], {
        config: {"bos_token": "<|im_start|>", "eos_token": "<|fim|>"},
        names: {"eos_token": "<|im_end|>"}}
    yield "special_tokens_map with a list", [], {
        config: {}, names: {"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]}}
    yield "additional_special_tokens with flags", [], {config: {"additional_special_tokens": [
        saved("<|im_start|>", special=True), saved("<|fim|>", lstrip=True, special=True)]}}
    yield "added_tokens", [], {config: {}, added: {"<tool>": 1005, "<|fim|>": 1002}}
    yield "added_tokens past the vocabulary", [], {config: {}, added: {"<new>": 1006}}
    yield "added_tokens, one of them special", [], {
        config: {"eos_token": "<|im_end|>"}, added: {"<|im_end|>": 1001, "<tool>": 1005}}
    yield "added_tokens that are listed as special", [], {
        config: {"additional_special_tokens": ["<|fim|>"]},
        added: {"<|fim|>": 1002, "<tool>": 1005}}
    yield "added_tokens beside a decoder", [], {
        config: {"added_tokens_decoder": {"1000": token("<|im_start|>", special=True)}},
        added: {"<tool>": 1005}}
    yield "a named token that tokenizer.json has added as an ordinary one", [
        {"id": 1001, **token("<|im_end|>", special=False)}], {config: {"eos_token": "<|im_end|>"}}
    yield "a listed token that tokenizer.json has added as an ordinary one", [
        {"id": 1001, **token("<|im_end|>", special=False)}], {
            config: {"additional_special_tokens": ["<|im_end|>"]}}
    yield "a named token that is ordinary in the decoder", [], {config: {
        "eos_token": "<|im_end|>", "pad_token": "<pad>",
        "added_tokens_decoder": {"1001": token("<|im_end|>", special=False)}}}
    yield "a listed token that is ordinary in the decoder", [], {config: {
        "additional_special_tokens": ["<|im_end|>"],
        "added_tokens_decoder": {"1001": token("<|im_end|>", special=False)}}}
    yield "an ordinary token that the decoder has as special", [
        {"id": 1001, **token("<|im_end|>", special=False)}], {config: {
            "added_tokens_decoder": {"1001": token("<|im_end|>", special=True)}}}
    yield "a special token that the decoder has as an ordinary one", [
        {"id": 1001, **token("<|im_end|>", special=True)}], {config: {
            "added_tokens_decoder": {"1001": token("<|im_end|>", special=False)}}}
    yield "a name of the model's own in the map", [], {names: {"fim_token": "<|fim|>"}}
    yield "an empty decoder", [], {
        config: {"added_tokens_decoder": {}, "eos_token": "<|im_end|>"},
        names: {"bos_token": "<|im_start|>"}, added: {"<tool>": 1005}}
    yield "lists in both files", [], {
        config: {"additional_special_tokens": ["<|im_end|>"]},
        names: {"additional_special_tokens": ["<|fim|>"]}}
    yield "added_tokens and an extra list of the map", [], {
        config: {}, names: {"extra_special_tokens": ["<|fim|>", token("<pad>", rstrip=True)]},
        added: {"<tool>": 1005}}
    yield "a named token that tokenizer.json has added with spaces", [
        {"id": 1003, **token("[MASK]", special=True, lstrip=True)}], {
            config: {"mask_token": saved("[MASK]", rstrip=True)}}
    yield "a decoder that says otherwise than tokenizer.json", [
        {"id": 1003, **token("[MASK]", special=True)}], {config: {"added_tokens_decoder": {
            "1003": token("[MASK]", special=True, lstrip=True)}}}


def make_folder(folder, added, files):
    tokenizer = json.loads((GOLDEN / (BASE + ".json")).read_text())
    tokenizer["model"]["vocab"].update(VOCAB)
    tokenizer["added_tokens"] += added
    everything = {"tokenizer.json": tokenizer, "config.json": {"model_type": "llama"}, **files}
    config = everything.setdefault("tokenizer_config.json", {})
    # Otherwise a class of the family would make its own tokenizer from the vocabulary.
    everything["tokenizer_config.json"] = {**config, "tokenizer_class": "PreTrainedTokenizerFast"}
    for name, content in everything.items():
        (folder / name).write_text(json.dumps(content))


def look(name, added, files):
    with tempfile.TemporaryDirectory() as folder:
        make_folder(pathlib.Path(folder), added, files)
        tok = transformers.AutoTokenizer.from_pretrained(folder)
        ids = [tok.encode(text, add_special_tokens=False) for text in TEXTS]
        skipped = [tok.decode(line, skip_special_tokens=True, clean_up_tokenization_spaces=False)
                   for line in ids]
    return {"name": name, "added": added, "files": files, "ids": ids, "skipped": skipped}


def main():
    golden = {"version": f"{transformers.__version__}, {tokenizers.__version__}", "base": BASE,
              "vocab": VOCAB, "texts": TEXTS, "folders": [look(*folder) for folder in folders()]}
    text = json.dumps(golden, separators=(",", ":"))
    (GOLDEN / "named.golden.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
