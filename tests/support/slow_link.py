"""A link between the coordinator and a rank on which every byte is some milliseconds under way, as
between two hosts: all sizes of a step cost more, so that guesses pay on every machine.

    link = SlowLink(listen="/tmp/x/link", rank="/tmp/x/w", delay_s=0.002)
"""
import queue
import socket
import threading
import time

CHUNK_BYTES = 1 << 20


def _carry(begin, end, delay_s):
    """Passes on what `begin` sends until one of the two is closed, then closes both."""
    pieces = queue.SimpleQueue()

    def deliver():
        while True:
            due, piece = pieces.get()
            if not piece:
                break
            time.sleep(max(0.0, due - time.monotonic()))
            try:
                end.sendall(piece)
            except OSError:
                break
        _shut(begin, end)

    threading.Thread(target=deliver, daemon=True).start()
    while True:
        try:
            piece = begin.recv(CHUNK_BYTES)
        except OSError:
            piece = b""
        pieces.put((time.monotonic() + delay_s, piece))
        if not piece:
            return


def _shut(*ends):
    for end in ends:
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it is closed already


class SlowLink:
    """listen, rank: paths of Unix sockets. A rank that is not there yet costs the caller his
    connection, as it would without the link."""

    def __init__(self, listen, rank, delay_s):
        self.rank, self.delay_s = rank, delay_s
        self.server = socket.socket(socket.AF_UNIX)
        self.server.bind(listen)
        self.server.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                caller, _ = self.server.accept()
            except OSError:
                return
            rank = socket.socket(socket.AF_UNIX)
            try:
                rank.connect(self.rank)
            except OSError:
                caller.close()
                continue
            for ends in ((caller, rank), (rank, caller)):
                threading.Thread(target=_carry, args=(*ends, self.delay_s), daemon=True).start()

    def close(self):
        """Takes no more callers; the connections end with their ends."""
        _shut(self.server)
        self.server.close()
