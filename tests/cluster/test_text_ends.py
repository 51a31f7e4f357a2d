#!/usr/bin/env python3
# ctest: labels=full libs=client beside=yes timeout=120
"""The end of a text leaves with its last token, also where no other text is under way and the
engine has nothing to wake up for. Skipped (77) where grpcio is not installed."""
import os
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from rpc_python import Caller, field
from fault_util import FaultTest, World, main

TEXTS = 15
# An engine without work sleeps for 100 ms, and a text's end must not wait for that.
MOST_S = 0.05
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
        for name, speculation in (("K = 0", PLAIN), ("planned", PLANNED)):
            self.gap(speculation)
            gaps = [self.gap(speculation) for _ in range(TEXTS)]
            # The fastest quarter, because a busy machine holds up some.
            print(f"{name}: {1000 * statistics.median(gaps):.1f} ms at the median", file=sys.stderr)
            self.assertLess(sorted(gaps)[len(gaps) // 4], MOST_S)


if __name__ == "__main__":
    main()
