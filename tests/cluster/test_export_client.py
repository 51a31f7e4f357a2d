#!/usr/bin/env python3
# ctest: labels=full libs=client beside=yes timeout=300
"""`outrider export` as a user runs it, and its files read by other code than ours: the safetensors
table and the tensors with Python's standard library, and with transformers where it is installed.
Usage: test_export_client.py BUILD_FOLDER [unittest options]"""
import importlib.util
import json
import os
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from cluster import SOURCE, TALES, bound

BUILD = sys.argv.pop(1) if len(sys.argv) > 1 else os.path.join(SOURCE, "build", "release")
TARGET = os.path.join(TALES, "target")
LARGE = "synthetic:llama-3.1-8b,seed=1"  # 16 GB: nobody waits for its end


def client(*args, **options):
    return subprocess.run([os.path.join(BUILD, "bin", "outrider"), *args], capture_output=True,
                          encoding="utf-8", timeout=120, **options)


def read_shard(path):
    """name -> (dtype, shape, bytes), by the published description of the format alone."""
    with open(path, "rb") as file:
        blob = file.read()
    (length,) = struct.unpack_from("<Q", blob)
    header = json.loads(blob[8:8 + length].decode("utf-8"))
    data = blob[8 + length:]
    assert (8 + length) % 8 == 0, "the data is not aligned"
    assert header.pop("__metadata__") == {"format": "pt"}
    tensors, end = {}, 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        first, last = entry["data_offsets"]
        count = 1
        for size in entry["shape"]:
            count *= size
        size = {"BF16": 2, "I32": 4, "I64": 8}[entry["dtype"]]
        assert first == end and last - first == size * count, f"{name}: {entry}"
        assert first % min(size, 8) == 0, f"{name} is not aligned"
        tensors[name] = (entry["dtype"], entry["shape"], data[first:last])
        end = last
    assert end == len(data), "bytes behind the last tensor"
    return tensors


def read_folder(folder):
    """All tensors; with an index, exactly those that it names, in the files that it names."""
    index_path = os.path.join(folder, "model.safetensors.index.json")
    if not os.path.exists(index_path):
        return read_shard(os.path.join(folder, "model.safetensors"))
    with open(index_path, encoding="utf-8") as file:
        index = json.load(file)
    tensors = {}
    for name in sorted(set(index["weight_map"].values())):
        for tensor, value in read_shard(os.path.join(folder, name)).items():
            assert index["weight_map"].pop(tensor) == name, tensor
            tensors[tensor] = value
    assert not index["weight_map"], f"not in any file: {index['weight_map']}"
    assert index["metadata"]["total_size"] == sum(len(data) for _, _, data in tensors.values())
    return tensors


def read_config(folder):
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        return json.load(file)


def bf16_numbers(data):
    return [struct.unpack("<f", b"\0\0" + data[i:i + 2])[0] for i in range(0, len(data), 2)]


def packed_integers(data, bits):
    """As compressed-tensors unpacks 32-bit words: lowest bits first, less 2^(bits - 1)."""
    words = struct.unpack(f"<{len(data) // 4}I", data)
    mask, offset = (1 << bits) - 1, 1 << (bits - 1)
    return [(word >> shift & mask) - offset for word in words for shift in range(0, 32, bits)]


class Export(unittest.TestCase):
    def setUp(self):
        self.work = tempfile.mkdtemp(prefix="outrider-export-")
        self.addCleanup(shutil.rmtree, self.work, ignore_errors=True)
        self.folder = os.path.join(self.work, "model")

    def export(self, model, *args):
        done = client("export", model, self.folder, "--json", *args)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr, "")
        return json.loads(done.stdout)

    def refuses(self, status, *words, args, **options):
        done = client("export", *args, **options)
        self.assertEqual(done.returncode, status, done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)

    def test_tales_tensors_are_the_source_s(self):
        said = self.export(TARGET)
        source, copy = read_folder(TARGET), read_folder(self.folder)
        self.assertEqual(source, copy)
        self.assertEqual(said["files"], 1)
        self.assertEqual(said["bytes"], sum(len(data) for _, _, data in copy.values()))
        self.assertTrue(said["tokenizer"])
        for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
            with open(os.path.join(TARGET, name), "rb") as a, \
                    open(os.path.join(self.folder, name), "rb") as b:
                self.assertEqual(a.read(), b.read(), name)
        source_config, config = read_config(TARGET), read_config(self.folder)
        for key in ("architectures", "model_type", "hidden_size", "intermediate_size", "vocab_size",
                    "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
                    "max_position_embeddings", "tie_word_embeddings", "hidden_act"):
            self.assertEqual(config[key], source_config.get(key, config[key]), key)
        self.assertEqual(config["torch_dtype"], "bfloat16")

    def test_synthetic_shapes_and_shards(self):
        said = self.export("synthetic:qwen2.5-0.5b,seed=2,layers=2,vocab=2000,agree=0.7",
                           "--shard-mb", "20")
        self.assertGreater(said["files"], 2)
        tensors = read_folder(self.folder)
        config = read_config(self.folder)
        self.assertEqual(len(tensors), 2 * 12 + 2)
        self.assertEqual(tensors["model.embed_tokens.weight"][1], [2000, 896])
        self.assertEqual(tensors["model.norm.weight"][1], [896])
        self.assertEqual(tensors["model.layers.1.self_attn.k_proj.bias"][1], [128])
        self.assertEqual(tensors["model.layers.1.mlp.down_proj.weight"][1], [896, 4864])
        self.assertNotIn("lm_head.weight", tensors)
        self.assertTrue(config["tie_word_embeddings"])
        self.assertIsNone(config["eos_token_id"])
        with open(os.path.join(self.folder, "tokenizer.json"), encoding="utf-8") as file:
            vocabulary = json.load(file)["model"]["vocab"]
        self.assertEqual(sorted(vocabulary.values()), list(range(2000)))
        self.assertEqual(vocabulary["A"], 65)
        self.assertEqual(vocabulary["\u0120"], 32)  # the blank of the GPT-2 alphabet

    def check_packed(self, source, stored, name, bits):
        """Integers times scales are the weights, to within the error of rounding to the nearest."""
        n_rows, n_cols = source[name][1]
        self.assertEqual(stored[name + "_packed"][:2], ("I32", [n_rows, n_cols * bits // 32]))
        self.assertEqual(stored[name + "_scale"][:2], ("BF16", [n_rows, n_cols // 32]))
        self.assertEqual(stored[name + "_shape"], ("I64", [2], struct.pack("<2q", n_rows, n_cols)))
        weights = bf16_numbers(source[name][2])
        scales = bf16_numbers(stored[name + "_scale"][2])
        integers = packed_integers(stored[name + "_packed"][2], bits)
        self.assertEqual(len(weights), len(integers))
        divisor, bound = {8: (127, 0.51), 4: (7.5, 0.54)}[bits]
        for group, scale in enumerate(scales):
            part = slice(32 * group, 32 * group + 32)
            self.assertLess(abs(max(map(abs, weights[part])) / divisor - scale), scale / 250)
            for w, q in zip(weights[part], integers[part]):
                self.assertLessEqual(abs(w - q * scale), bound * scale)

    def test_packed_tensors_are_the_source_s_rounded(self):
        source = read_folder(TARGET)
        for form, bits in (("int8", 8), ("int4", 4)):
            said = self.export(TARGET, "--weights", form)
            stored, config = read_folder(self.folder), read_config(self.folder)
            self.assertEqual(said["bytes"], sum(len(data) for _, _, data in stored.values()))
            quantization = config["quantization_config"]
            weights = quantization["config_groups"]["group_0"]["weights"]
            self.assertEqual((quantization["quant_method"], quantization["format"]),
                             ("compressed-tensors", "pack-quantized"))
            self.assertEqual((weights["num_bits"], weights["group_size"]), (bits, 32))
            packed = {name for name in source if name.endswith("_proj.weight")}
            self.assertEqual(set(stored), set(source) - packed |
                             {name + part for name in packed
                              for part in ("_packed", "_scale", "_shape")})
            for name in set(source) - packed:
                self.assertEqual(source[name], stored[name], name)
            for name in sorted(packed)[:8]:
                self.check_packed(source, stored, name, bits)
            shutil.rmtree(self.folder)

    def test_draft_is_the_beginning_of_its_target(self):
        name = "synthetic:tiny,layers=3,seed=2,agree=0.7"
        self.export(name)
        target = read_folder(self.folder)
        shutil.rmtree(self.folder)
        self.export(name + ",draft=1")
        draft = read_folder(self.folder)
        self.assertEqual(len(draft), 3 + 9)
        self.assertEqual({key: target[key] for key in draft}, draft)

    def test_refusals(self):
        self.export("synthetic:tiny,seed=1")
        before = sorted(os.listdir(self.folder))
        self.refuses(2, self.folder, "not empty", args=("synthetic:tiny,seed=2", self.folder))
        self.assertEqual(sorted(os.listdir(self.folder)), before)
        self.refuses(2, "MODEL is missing", args=())
        self.refuses(2, "DIR is missing", args=("synthetic:tiny,seed=1",))
        self.refuses(2, "too much", args=("synthetic:tiny,seed=1", "a", "b"))
        self.refuses(2, "--weights int5", args=("--weights", "int5", "synthetic:tiny,seed=1",
                                                self.folder + "2"))
        self.refuses(1, "slices of 16", args=("--weights", "int8", "synthetic:tiny,seed=1",
                                              self.folder + "2"))
        self.refuses(2, "no shape", args=("synthetic:none,seed=1", self.folder + "2"))
        self.refuses(1, "/nowhere", args=("/nowhere", self.folder + "2"))
        self.refuses(1, "cannot make the folder", "No such file",
                     args=("synthetic:tiny,seed=1", self.folder + "2/a"))
        self.assertFalse(os.path.exists(self.folder + "2"))

    def test_write_error_leaves_nothing(self):
        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (200000, 200000))

        self.refuses(1, "cannot write", "model.safetensors: File too large",
                     args=("synthetic:tiny,seed=1,layers=6", self.folder), preexec_fn=limit)
        self.assertFalse(os.path.exists(self.folder))

    @unittest.skipIf(os.geteuid() == 0, "root may write anywhere")
    def test_no_permission(self):
        os.mkdir(self.folder, 0o555)
        self.refuses(1, "Permission denied", args=("synthetic:tiny,seed=1", self.folder))

    def begin_large(self):
        """An export in the middle of its first file; None where the disk is too small for it."""
        process = subprocess.Popen(
            [os.path.join(BUILD, "bin", "outrider"), "export", LARGE, self.folder],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8")
        self.addCleanup(process.kill)
        end = time.monotonic() + bound(30)
        while not (os.path.isdir(self.folder) and os.listdir(self.folder)):
            if process.poll() is not None:
                self.assertIn("GB free", process.communicate()[1])
                self.skipTest("less than 16 GB are free")
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)
        return process

    def test_interrupt_leaves_nothing(self):
        process = self.begin_large()
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=bound(30))
        self.assertEqual(process.returncode, 130, errors)
        self.assertEqual(output, "")
        self.assertIn("interrupted", errors)
        self.assertFalse(os.path.exists(self.folder))

    def test_killed_export_is_no_model(self):
        process = self.begin_large()
        process.kill()
        process.communicate(timeout=bound(30))
        names = os.listdir(self.folder)
        self.assertTrue(names and all(name.endswith(".partial") for name in names), names)
        done = client("export", self.folder, self.folder + "2")
        self.assertEqual(done.returncode, 1)
        self.assertIn("config.json", done.stderr)

    @unittest.skipUnless(importlib.util.find_spec("transformers") and
                         importlib.util.find_spec("torch"), "needs transformers and torch")
    def test_transformers_reads_it(self):
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer
        for model in (TARGET, "synthetic:tiny,seed=1,agree=0.8"):
            self.export(model)
            loaded, info = AutoModelForCausalLM.from_pretrained(self.folder,
                                                                output_loading_info=True)
            self.assertFalse(info["missing_keys"] or info["unexpected_keys"], info)
            logits = loaded(torch.tensor([[65, 66, 67]])).logits
            self.assertTrue(bool(torch.isfinite(logits).all()))
            ids = AutoTokenizer.from_pretrained(self.folder)("A tale\n").input_ids
            if model is not TARGET:
                self.assertEqual(ids, list(b"A tale\n"))
            shutil.rmtree(self.folder)


if __name__ == "__main__":
    unittest.main()
