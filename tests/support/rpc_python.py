"""Raw calls of the service Generation through Python's gRPC, without any code of ours: messages are
written by hand, so that they may also be wrong. Importing this ends the test where grpcio is not
installed (skips.py)."""
import os
import struct
import sys
from pathlib import Path

import skips

try:
    import grpc
except ImportError:
    own = Path("/usr/bin/python3")  # Debian's, which has the package; PATH may lead to another
    if own.exists() and Path(sys.executable) != own:
        os.execv(own, [str(own), *sys.argv])
    skips.lacks("Python's grpcio", "python3-grpcio")

OPTIONS = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1),
           ("grpc.enable_http_proxy", 0)]
SERVICE = "/outrider.generation.v1.Generation/"


def varint(n):
    out = bytearray()
    while n > 0x7f:
        out.append(n & 0x7f | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def field(number, value):
    """One field: an int as varint, a float as 4 bytes, text and bytes with their length."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    if isinstance(value, str):
        value = value.encode()
    return varint(number << 3 | 2) + varint(len(value)) + value


def _read_varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7f) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def fields(data):
    """{number: [value, ...]} of a message: ints, and bytes for the rest."""
    found, at = {}, 0
    while at < len(data):
        key, at = _read_varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = _read_varint(data, at)
        else:
            size = {1: 8, 5: 4}.get(kind)
            if size is None:
                size, at = _read_varint(data, at)
            value, at = data[at:at + size], at + size
        found.setdefault(key >> 3, []).append(value)
    return found


def packed(data):
    """The ints of a packed field."""
    values, at = [], 0
    while at < len(data):
        value, at = _read_varint(data, at)
        values.append(value)
    return values


class Caller:
    """A connection to a coordinator. credentials: of TLS; key: an API key; options: further ones
    of the channel."""

    def __init__(self, address, credentials=None, key=None, options=()):
        options = OPTIONS + list(options)
        if credentials:
            self.channel = grpc.secure_channel(address, credentials, options=options)
        else:
            self.channel = grpc.insecure_channel(address, options=options)
        self.metadata = [("authorization", f"Bearer {key}")] if key is not None else None

    def close(self):
        self.channel.close()

    def unary(self, method, message, timeout=60):
        return self.channel.unary_unary(SERVICE + method)(message, timeout=timeout,
                                                          metadata=self.metadata)

    def stream(self, method, message, timeout=60):
        """The call; iterating it gives the messages."""
        return self.channel.unary_stream(SERVICE + method)(message, timeout=timeout,
                                                           metadata=self.metadata)

    def refusal(self, method, message, timeout=60):
        """(name of the status, sentence) of a call that must fail."""
        try:
            answer = list(self.stream(method, message, timeout))
        except grpc.RpcError as failure:
            return failure.code().name, failure.details()
        raise AssertionError(f"{method} was answered with {len(answer)} messages")
