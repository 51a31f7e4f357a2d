"""A terminal for a program under test, which keeps all that was written to it.

    with Terminal() as terminal:
        status = subprocess.run(command, stdout=terminal.side).returncode
        shown = terminal.shown()

The other side stays open until the text was read: Linux may say that it is closed before it has
handed over the last bytes.
"""
import os
import pty
import threading

END = b"\x04\x00end of what was written"


class Terminal:
    def __enter__(self):
        self.main, self.side = pty.openpty()
        self.read = b""
        self.reader = threading.Thread(target=self.read_to_the_end)
        self.reader.start()
        return self

    def read_to_the_end(self):
        while not self.read.endswith(END):
            self.read += os.read(self.main, 65536)

    def shown(self):
        """Returns what a terminal shows of all that was written so far, as text. Once."""
        os.write(self.side, END)
        self.reader.join()
        return self.read[:-len(END)].decode("utf-8").replace("\r\n", "\n")

    def __exit__(self, *_):
        if self.reader.is_alive():
            self.shown()
        os.close(self.side)
        os.close(self.main)
