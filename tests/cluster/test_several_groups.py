#!/usr/bin/env python3
# ctest: labels=full libs=base beside=yes cores=2 timeout=420
"""Several groups behind one coordinator: which one serves a text changes nothing of it, the loss of
one fails what ran there and nothing else, one that ends in order loses nothing at all, and one that
comes back under another address is found."""
import os
import sys
import time
import unittest
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
import parallel_cases
from cluster import TALES, Cluster, free_ports, is_sanitized, slowness, wait_until
from fleet import Fleet, Post

BUILD = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "build/release")
PATIENCE = 5 if is_sanitized(BUILD) else 1
N_CLIENTS = 16
DRAIN_SECONDS = round(60 * slowness())
PROMPTS = ["Once upon a time there was a king who", "In a dark wood there lived",
           "The old woman said to her", "A poor miller had three sons, and"]
# The portable kernels give the same bits at an eighth of the speed: texts take a while.
SLOW = ["--kernels", "plain", "--threads", "1"]


PLAIN = {"outrider": {"n_draft": 0}}  # so that texts run long enough to be seen running


def bodies(n_tokens, **more):
    """Requests of every kind that promises one text: greedy, coupled, and a fixed K with a seed."""
    kinds = [{}, {"temperature": 0.8, "seed": 7}, {"temperature": 1, "seed": 11}]
    return [{"prompt": PROMPTS[i % len(PROMPTS)] + " " * (i // 4), "max_tokens": n_tokens,
             "ignore_eos": True, **kinds[i % len(kinds)], **more} for i in range(N_CLIENTS)]


def answers(fleet, wanted):
    posts = [Post(fleet, **body) for body in wanted]
    for post in posts:
        post.join()
    return posts


class Groups(unittest.TestCase):
    def fleet(self, *ranks, **options):
        fleet = Fleet(BUILD, ranks, **options)
        self.addCleanup(fleet._leave, False)
        fleet.start(60 * PATIENCE)
        return fleet

    def reference(self, wanted):
        with Cluster(BUILD, http=True) as world:
            posts = answers(world, wanted)
        self.assertEqual([post.status for post in posts], [200] * len(posts))
        return [post.text for post in posts]

    def check_texts(self, posts, texts):
        self.assertEqual([post.status for post in posts], [200] * len(posts),
                         [post.text for post in posts if post.status != 200])
        self.assertEqual([post.text for post in posts], texts)

    def wait_running(self, fleet, least=1):
        """Until every group makes texts."""
        def look():
            running = fleet.metric("group_requests_running")
            return len(running) == len(fleet.groups) and min(running.values()) >= least
        wait_until(look, 20 * PATIENCE, "all groups make texts")

    def test_texts_do_not_depend_on_the_group(self):
        wanted = bodies(300)
        texts = self.reference(wanted)
        fleet = self.fleet(1, 2, worker_flags=SLOW)
        posts = [Post(fleet, **body) for body in wanted]
        self.wait_running(fleet)
        for post in posts:
            post.join()
        self.check_texts(posts, texts)
        self.check_texts(answers(fleet, wanted), texts)
        described = fleet.described()
        self.assertEqual(described["load"]["running"], 0)
        self.assertEqual([len(g["worker_addresses"]) for g in described["groups"]].count(2), 1)

    def lose(self, fleet, lost, wanted):
        """Kills the group while all groups make texts; returns the requests, which have ended."""
        before = fleet.described()["load"]["ends"]["unavailable"]
        posts = [Post(fleet, **body) for body in wanted] # 6 run, the others wait
        self.wait_running(fleet, 3)
        lost.kill(wait=False)
        began = time.monotonic()
        wait_until(lambda: not fleet.serves(lost), 5 * PATIENCE, "the loss is noticed")
        noticed = time.monotonic() - began
        self.assertTrue(fleet.is_serving())
        lost.program.wait(20)
        lost.start(place=1)
        lost.wait_ready(60 * PATIENCE)
        began = time.monotonic()
        wait_until(lambda: fleet.serves(lost), 10 * PATIENCE, "it is found at its new address")
        used = time.monotonic() - began
        print(f"T={lost.n_ranks}: noticed after {noticed:.2f} s at most, used again {used:.2f} s "
              "after it was ready")
        for post in posts:
            post.join()
        n_failed = sum(post.status != 200 for post in posts)
        ends = fleet.described()["load"]["ends"]
        self.assertEqual(ends["unavailable"] - before, n_failed)
        return posts

    def test_a_lost_group_costs_only_what_ran_there(self):
        wanted = bodies(200, **PLAIN)
        texts = self.reference(wanted)
        fleet = self.fleet(1, 2, worker_flags=SLOW, coordinator_flags=["--sequences", "3"])
        for lost in fleet.groups:
            posts = self.lose(fleet, lost, wanted)
            failed = [post for post in posts if post.status != 200]
            self.assertEqual({post.status for post in failed}, {503}, [p.text for p in failed])
            self.assertLessEqual(len(failed), 3)
            done = [i for i, post in enumerate(posts) if post.status == 200]
            self.check_texts([posts[i] for i in done], [texts[i] for i in done])
            self.assertEqual({p.status for p in answers(fleet, bodies(8))}, {200})

    def test_a_rolling_replacement_loses_nothing(self):
        wanted = bodies(200, **PLAIN)
        texts = self.reference(wanted)
        fleet = self.fleet(1, 2, worker_flags=SLOW + ["--drain-timeout", str(DRAIN_SECONDS)])
        for group in fleet.groups:
            posts = [Post(fleet, **body) for body in wanted]
            self.wait_running(fleet)
            group.terminate()
            group.program.wait((DRAIN_SECONDS + 5) * PATIENCE)
            self.assertTrue(fleet.is_serving())
            group.start(place=1)
            for post in posts:
                post.join()
            self.check_texts(posts, texts)
            wait_until(lambda g=group: fleet.serves(g), 60 * PATIENCE, "the new one serves")
        moved = fleet.logs()["coordinator.log"].count("target_leaving")
        self.assertEqual(moved, 2)

    def test_the_only_group_finishes_what_it_has(self):
        fleet = self.fleet(1, worker_flags=SLOW + ["--drain-timeout", str(DRAIN_SECONDS)])
        posts = [Post(fleet, **body) for body in bodies(400, **PLAIN)[:3]]
        posts.append(Post(fleet, prompt="Once", max_tokens=400, ignore_eos=True, n=3, **PLAIN))
        self.wait_running(fleet, 4)
        fleet.groups[0].terminate()
        wait_until(lambda: not fleet.is_serving(), 5 * PATIENCE, "nothing new is taken")
        late = Post(fleet, prompt="Once", max_tokens=4)
        for post in [*posts, late]:
            post.join()
        self.assertEqual([post.status for post in posts], [200] * 4)
        self.assertEqual(late.status, 503)
        self.assertEqual(fleet.groups[0].program.wait(10 * PATIENCE), 0)

    def test_the_end_of_everything_at_once_is_in_order(self):
        """A coordinator that drains does not send texts to and fro when its groups end as well."""
        wanted = bodies(400, **PLAIN)
        texts = self.reference(wanted)
        drain = ["--drain-timeout", str(DRAIN_SECONDS)]
        fleet = self.fleet(1, 1, worker_flags=SLOW + drain, coordinator_flags=drain)
        posts = [Post(fleet, **body) for body in wanted]
        self.wait_running(fleet)
        wait_until(lambda: sum(fleet.metric("group_requests_running").values()) == N_CLIENTS,
                   20 * PATIENCE, "all texts have begun")
        fleet.coordinator.process.terminate()
        for group in fleet.groups:
            group.terminate()
        for post in posts:
            post.join()
        self.check_texts(posts, texts)
        for program in (fleet.coordinator, *(group.program for group in fleet.groups)):
            self.assertEqual(program.wait((DRAIN_SECONDS + 5) * PATIENCE), 0)

    def test_a_group_of_another_model_waits_until_the_others_are_gone(self):
        fleet = self.fleet(1, 1)
        stranger = fleet.groups[1]
        stranger.terminate()
        stranger.program.wait(20 * PATIENCE)
        stranger.start(place=1, model=os.path.join(TALES, "draft"))
        wait_until(lambda: "others serve" in fleet.logs()["coordinator.log"], 30 * PATIENCE,
                   "the coordinator says why it is not used")
        self.assertFalse(fleet.serves(stranger))
        self.assertEqual({p.status for p in answers(fleet, bodies(8))}, {200})
        fleet.groups[0].terminate()
        wait_until(lambda: fleet.serves(stranger), 30 * PATIENCE, "it serves alone")

    def test_no_more_groups_than_were_asked_for(self):
        fleet = Fleet(BUILD, (1, 1), coordinator_flags=["--groups", "1"])
        self.addCleanup(fleet._leave, False)
        for group in fleet.groups:
            group.start()
        fleet.start_coordinator()
        fleet.wait_groups(1, 60 * PATIENCE)
        time.sleep(1)
        used = fleet.serving()
        self.assertEqual(len(used), 1)
        first = next(g for g in fleet.groups if g.addresses(0)[0] == used[0])
        second = next(g for g in fleet.groups if g is not first)
        first.kill()
        wait_until(lambda: fleet.serves(second), 20 * PATIENCE, "the other one takes its place")

    def test_names_and_pods(self):
        """dns:NAME:PORT and lws:PORT lead to a worker; --target may be given several times."""
        port = free_ports(1)
        for target, environment in (
                ([f"dns:localhost:{port}"], {}),
                (["unix:/tmp/outrider-nobody-is-here", f"lws:{port}"],
                 {"LWS_LEADER_ADDRESS": "localhost", "LWS_GROUP_SIZE": "1"})):
            with self.subTest(target):
                world = Cluster(BUILD, environment=environment)
                self.addCleanup(world._leave, False)
                world.listen = f"127.0.0.1:{port}"
                world.worker_addresses = target[:1]
                world.coordinator_flags = [x for word in target[1:] for x in ("--target", word)]
                world.start_coordinator()
                wait_until(lambda w=world: "target_unreachable" in w.logs()["coordinator.log"],
                           10 * PATIENCE, "nobody is there yet")
                world.start_workers()
                world.wait_serving(60 * PATIENCE)
                done = world.outrider("generate", "Once", "-n", "4")
                self.assertEqual(done.returncode, 0, done.stderr)
                world.stop()

    def test_live(self):
        fleet = self.fleet(1, 1)
        with urllib.request.urlopen(fleet.url + "/live", timeout=10) as answer:
            self.assertEqual(answer.status, 200)
        self.assertEqual(fleet.outrider("health", "--service", "live").stdout, "serving\n")


if __name__ == "__main__":
    parallel_cases.main(verbosity=2)
