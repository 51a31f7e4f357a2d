#!/usr/bin/env python3
# ctest: labels=quick,slow libs=rpc timeout=60
"""Our server as another gRPC implementation sees it."""
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
import skips

try:
    import grpc
except ImportError:
    own = Path("/usr/bin/python3")  # Debian's, which has the package; PATH may lead to another
    if own.exists() and Path(sys.executable) != own:
        os.execv(own, [str(own), *sys.argv])
    skips.lacks("Python's grpcio", "python3-grpcio")

LIMIT = 64 << 20
OPTIONS = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1),
           ("grpc.enable_http_proxy", 0)]


def expect_status(wanted, text, call):
    try:
        call()
    except grpc.RpcError as e:
        assert e.code() == wanted, (e.code(), e.details())
        assert text in e.details(), e.details()
    else:
        raise AssertionError(f"{wanted} did not come")


def check(channel):
    def unary(name, **kw):
        return lambda data: channel.unary_unary(name)(data, timeout=20, **kw)

    echo = unary("/test.Test/Echo")
    assert echo(b"hello") == b"hello"
    assert echo(bytes(LIMIT)) == bytes(LIMIT)
    counted = list(channel.unary_stream("/test.Test/Count")(b"", timeout=20))
    assert [int.from_bytes(m, "little") for m in counted] == list(range(1000))
    pings = [b"%d" % i for i in range(300)]
    assert list(channel.stream_stream("/test.Test/Ping")(iter(pings), timeout=20)) == pings
    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(echo, pings)) == pings

    code = grpc.StatusCode
    expect_status(code.UNIMPLEMENTED, "/no.Such/Method", lambda: unary("/no.Such/Method")(b""))
    expect_status(code.RESOURCE_EXHAUSTED, "larger than max", lambda: echo(bytes(LIMIT + 1)))
    expect_status(code.INVALID_ARGUMENT, "67108865 bytes", lambda: unary("/test.Test/TooLong")(b""))
    expect_status(code.INVALID_ARGUMENT, "without a message",
                  lambda: channel.stream_unary("/test.Test/Echo")(iter([]), timeout=20))
    expect_status(code.NOT_FOUND, "as you wish", lambda: unary("/test.Test/Fail")(b"\x06"))
    expect_status(code.DEADLINE_EXCEEDED, "",
                  lambda: channel.unary_unary("/test.Test/Silent")(b"", timeout=0.2))
    squeezed = unary("/test.Test/Echo", compression=grpc.Compression.Gzip)
    expect_status(code.UNIMPLEMENTED, "gzip", lambda: squeezed(bytes(1 << 20)))

    health = unary("/grpc.health.v1.Health/Check")
    assert health(b"") == b"\x08\x01"
    expect_status(code.NOT_FOUND, "x.Y", lambda: health(b"\x0a\x03x.Y"))
    watch = channel.unary_stream("/grpc.health.v1.Health/Watch")(b"", timeout=20)
    assert next(watch) == b"\x08\x01"
    watch.cancel()
    assert echo(b"still there") == b"still there"


def main():
    server = subprocess.Popen([Path(sys.argv[1]) / "tests/test_rpc"], text=True,
                              env={**os.environ, "OUTRIDER_TEST_SERVE": "1"},
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        address = server.stdout.readline().strip()
        while ":" not in address or " " in address:  # libcheck's own first line
            assert server.poll() is None, "the server did not start"
            address = server.stdout.readline().strip()
        with grpc.insecure_channel(address, options=OPTIONS) as channel:
            check(channel)
        server.stdin.close()
        assert server.wait(timeout=20) == 0
    finally:
        server.kill()


main()
