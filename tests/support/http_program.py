"""prog_http, of the build folder that is the first argument, and how it is asked."""
import http.client
import os
import signal
import socket
import subprocess
import sys
import time

from cluster import bound

PROGRAM = os.path.join(sys.argv[1], "tests", "prog_http")


class Server:
    """prog_http, ended with SIGTERM and checked for leaks."""

    def __init__(self, times="30", tls=(), host="127.0.0.1", prefix=()):
        self.process = subprocess.Popen([*prefix, PROGRAM, f"{host}:0", times, *tls],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.log = None
        self.address = self.process.stdout.readline().strip()
        if not self.address:
            raise AssertionError(self.process.communicate()[1])
        host, port = self.address.rsplit(":", 1)
        self.at = (host, int(port))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        if self.log is None:
            _, self.log = self.process.communicate(timeout=30)
        text = self.log
        if self.process.returncode:
            raise AssertionError(f"status {self.process.returncode}: {text}")

    def connect(self):
        return socket.create_connection(self.at, timeout=30)

    def get(self, path, body=None, headers={}):
        connection = http.client.HTTPConnection(*self.at, timeout=30)
        connection.request("POST" if body is not None else "GET", path, body=body, headers=headers,
                           encode_chunked="Transfer-Encoding" in headers)
        answer = connection.getresponse()
        result = answer.status, answer.read()
        connection.close()
        return result

    def send(self, text):
        """All that is answered to text, until the connection is closed or 2 s are silent."""
        with self.connect() as connection:
            connection.sendall(text)
            connection.settimeout(2)
            return read_some(connection)

    def stats(self):
        """Streams that run, clients that were seen to leave."""
        return tuple(map(int, self.get("/stats")[1].split()))

    def wait_for(self, what, within_s):
        end = time.monotonic() + bound(within_s)
        while not what(*self.stats()):
            if time.monotonic() > end:
                raise AssertionError(f"after {within_s} s: {self.stats()}")
            time.sleep(0.005)


def read_all(connection):
    parts = []
    while True:
        part = connection.recv(65536)
        if not part:
            return b"".join(parts)
        parts.append(part)


def read_some(connection):
    """Reads everything that comes, with b"<open>" at its end if the connection is not closed."""
    text = b""
    try:
        while True:
            part = connection.recv(65536)
            if not part:
                return text
            text += part
    except TimeoutError:
        return text + b"<open>"
