#!/usr/bin/env python3
# ctest: labels=full libs=client beside=yes timeout=120
"""The end of a text leaves with its last token, also where no other text is under way and the
engine has nothing to wake up for. Skipped (77) where grpcio is not installed."""
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from rpc_python import Caller, field
from fault_util import FaultTest, World, main

TEXTS = 60
# An engine without work sleeps for so long, and a text's end must not wait for that.
SLEEP_S = 0.1
PLAIN, PLANNED = field(5, field(1, 0)), b""


class TextEnds(FaultTest):
    @classmethod
    def setUpClass(cls):
        cls.world = World()
        cls.addClassCleanup(cls.world.leave)
        cls.world.start()
        cls.caller = Caller(cls.world.address)
        cls.addClassCleanup(cls.caller.close)

    def gap(self, speculation):
        """The longest pause, in seconds, between two messages or before the end of the call."""
        request = field(1, "Once upon a time") + field(3, 8) + field(7, 1) + speculation
        times = []
        for _ in self.caller.stream("Generate", request):
            times.append(time.monotonic())
        times.append(time.monotonic())
        self.assertGreater(len(times), 2)
        return max(b - a for a, b in zip(times, times[1:]))

    def test_the_end_comes_with_the_last_token(self):
        """With a sleep no text is without a pause as long as that; a machine that is busy makes
        one in some texts."""
        for name, speculation in (("K = 0", PLAIN), ("planned", PLANNED)):
            with self.subTest(name):
                self.assertTrue(any(self.gap(speculation) < SLEEP_S for _ in range(TEXTS)),
                                f"a pause of {SLEEP_S:g} s in each of {TEXTS} texts")


if __name__ == "__main__":
    main()
