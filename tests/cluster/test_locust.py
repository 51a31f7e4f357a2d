#!/usr/bin/env python3
# ctest: labels=full libs=base beside=yes timeout=120
"""locust, unmodified, against the HTTP door: twenty users of both of its clients complete, chat,
read streams and leave them. Nothing fails, the coordinator's figures are those of locust, and
nothing of the users is left over."""
import json
import os
import re
import subprocess
import sys
import unittest
import urllib.request

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
import pypi

BUILD = sys.argv[1]
pypi.enter(BUILD)

from cluster import Cluster, wait_until

USERS = os.path.join(os.path.dirname(os.path.abspath(pypi.__file__)), "locust_users.py")
N_USERS = 20
SECONDS = 8
KINDS = ("complete", "chat", "stream", "vanish")


def run_locust(url):
    """Returns what locust counted, by the name of the request. A user who is in the middle of a
    request when the time is over finishes it, so that each request that was sent is counted."""
    done = subprocess.run(
        [sys.executable, "-m", "locust", "--headless", "--locustfile", USERS, "--host", url,
         "--users", str(N_USERS), "--spawn-rate", str(N_USERS), "--run-time", f"{SECONDS}s",
         "--stop-timeout", "30", "--json", "--only-summary"],
        capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise AssertionError(f"locust ended with {done.returncode}:\n{done.stderr}\n{done.stdout}")
    return {entry["name"]: entry for entry in json.loads(done.stdout)}


def metrics(url):
    """Values of the page, by name and labels."""
    with urllib.request.urlopen(url + "/metrics", timeout=10) as answer:
        page = answer.read().decode()
    return {name: float(value) for name, value in re.findall(r"^(\w.*) (\S+)$", page, re.M)}


def ends(page):
    """Requests by how they ended."""
    found = {}
    for name, value in page.items():
        match = re.fullmatch(r'outrider_job_ends_total\{.*end="([^"]+)".*\}', name)
        if match and value:
            found[match[1]] = value
    return found


def value(page, name):
    """Returns the value of a metric without labels of its own."""
    return next(v for full, v in page.items() if re.fullmatch(name + r"(\{.*\})?", full))


class Locust(unittest.TestCase):
    def test_users(self):
        with Cluster(BUILD, http=True) as cluster:
            counted = run_locust(cluster.url)
            wait_until(lambda: value(metrics(cluster.url), "outrider_num_requests_running") == 0
                       and value(metrics(cluster.url), "outrider_num_requests_waiting") == 0,
                       5, "no request is left")
            page = metrics(cluster.url)
        self.assertEqual(sorted(counted), sorted(KINDS))
        n = {kind: counted[kind]["num_requests"] for kind in KINDS}
        for kind in KINDS:
            self.assertEqual(counted[kind]["num_failures"], 0, counted[kind])
            self.assertGreaterEqual(n[kind], 3)
        self.assertGreaterEqual(sum(n.values()), N_USERS)
        ended = ends(page)
        self.assertEqual(sorted(ended), ["cancelled", "length"])
        self.assertEqual(sum(ended.values()), sum(n.values()))
        # A client that vanishes may be held up until the text is at its end.
        self.assertTrue(n["vanish"] / 2 < ended["cancelled"] <= n["vanish"], (ended, n))
        self.assertEqual(value(page, "outrider_kv_cache_usage_perc"), 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
