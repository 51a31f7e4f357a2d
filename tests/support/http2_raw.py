"""HTTP/2 written by hand: calls that are made wrongly, or whose connection breaks."""
import struct


def frame(kind, flags, stream, payload):
    """A frame of HTTP/2."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def header(name, value):
    """A literal header field, not indexed, not compressed."""
    packed = b"\0"
    for text in (name.encode(), value.encode()):
        packed += (bytes([len(text)]) if len(text) < 127
                   else b"\x7f" + bytes([len(text) - 127])) + text
    return packed


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"")


def call(path, message, length=None):
    """The bytes of a gRPC call of path with one message that claims to be of that length."""
    fields = b"".join(header(*field) for field in (
        (":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "x"),
        ("te", "trailers"), ("content-type", "application/grpc")))
    body = b"\0" + struct.pack(">I", len(message) if length is None else length) + message
    return PREFACE + frame(1, 4, 1, fields) + frame(0, 1, 1, body)
