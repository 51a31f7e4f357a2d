"""Reads and writes files of tensors as Hugging Face folders have them: the length of the header in
8 bytes, the header in JSON, then the bytes of the tensors."""
import json
import struct


def read_header(path):
    """(header as a dict, place of the data in the file)"""
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        return json.loads(file.read(length)), 8 + length


def read_parts(path):
    """(header as a dict, data)"""
    header, start = read_header(path)
    with open(path, "rb") as file:
        file.seek(start)
        return header, file.read()


def read_tensors(path):
    """{name: (dtype, shape, bytes)}"""
    header, data = read_parts(path)
    return {name: (entry["dtype"], entry["shape"], data[slice(*entry["data_offsets"])])
            for name, entry in header.items() if name != "__metadata__"}


def write_parts(path, header, data, length=None):
    """header: a dict or bytes; length: what the file says of it."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(raw) if length is None else length) + raw + data)


def write_tensors(path, tensors, metadata=None):
    """tensors: {name: (dtype, shape, bytes)}, written in this order."""
    header, at = {} if metadata is None else {"__metadata__": metadata}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
    raw = json.dumps(header).encode()
    raw += b" " * (-len(raw) % 8)
    write_parts(path, raw, b"".join(data for _, _, data in tensors.values()))
