"""Many jobs of the service Generation at once, from one process: requests as bytes, answers as
Python objects, and what Describe says about the load.

    with Client(cluster.address) as client:
        answers = run_jobs([client], [job(ids=[5, 6], max_tokens=8, temperature=0)], 7)
        answers[0].texts[0].ids
"""
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from cluster import bound
from rpc_python import Caller, field, fields, grpc, packed, varint

STRATEGIES = {"planned": 1, "fixed": 2, "heuristic": 3, "threshold": 4}
PRIORITIES = {"normal": 0, "high": 1, "low": 2}
ENDS = ("none", "stop", "length", "answered", "cancelled", "deadline", "refused", "failed",
        "unavailable", "slow_reader", "shutdown")
CALL_SECONDS = 120


def fixed64(number, value):
    return varint(number << 3 | 1) + struct.pack("<Q", value)


def token_ids(number, ids):
    return field(number, field(1, b"".join(varint(i & (1 << 64) - 1) for i in ids)))


def _sampling(temperature, top_k, top_p, min_p, seed):
    out = b""
    if temperature is not None:
        out += field(1, float(temperature))
    if top_k:
        out += field(2, top_k)
    if top_p is not None:
        out += field(3, float(top_p))
    if min_p:
        out += field(4, float(min_p))
    return out + (fixed64(5, seed) if seed is not None else b"")


def _speculation(n_draft, rule, show_drafts, strategy, threshold):
    out = field(1, n_draft) if n_draft is not None else b""
    if rule:
        out += field(2, rule)
    if show_drafts:
        out += field(4, 1)
    if strategy:
        out += field(5, STRATEGIES[strategy])
    return out + (field(6, float(threshold)) if threshold is not None else b"")


def _edits(logprobs=None, echo=False, min_tokens=0, repetition=None, presence=0, frequency=0,
           biases=(), bans=(), stop_ids=()):
    """Fields that change p, and that say what is told of it. biases: {id: change}; bans: lists of
    ids."""
    out = field(10, logprobs) if logprobs is not None else b""
    out += field(11, 1) if echo else b""
    out += field(12, min_tokens) if min_tokens else b""
    out += field(13, float(repetition)) if repetition is not None else b""
    out += field(14, float(presence)) if presence else b""
    out += field(15, float(frequency)) if frequency else b""
    out += b"".join(field(16, field(1, i) + field(2, float(biases[i]))) for i in biases)
    out += b"".join(token_ids(17, ids) for ids in bans)
    return out + (field(18, b"".join(varint(i) for i in stop_ids)) if stop_ids else b"")


def job(ids=None, text=None, max_tokens=0, temperature=None, top_k=0, top_p=None, min_p=0,
        seed=None, n_draft=None, rule="", show_drafts=False, strategy="", threshold=None, stop=(),
        ignore_eos=False, n=1, priority="", user="", timeout_ms=0, **edits):
    """A GenerateRequest; a name that is left out has the service's default. edits: see _edits."""
    out = token_ids(2, ids) if ids is not None else field(1, text)
    out += field(3, max_tokens)
    out += field(4, _sampling(temperature, top_k, top_p, min_p, seed))
    out += field(5, _speculation(n_draft, rule, show_drafts, strategy, threshold))
    out += b"".join(field(6, one) for one in stop)
    out += field(7, int(ignore_eos))
    out += field(9, n) if n != 1 else b""
    out += field(19, PRIORITIES[priority]) if priority else b""
    out += field(20, user) if user else b""
    return out + (field(21, timeout_ms) if timeout_ms else b"") + _edits(**edits)


def score_job(ids, top_n=0):
    """A ScoreRequest."""
    return token_ids(2, ids) + field(3, top_n)


def _one(message, number, default):
    return message.get(number, [default])[0]


def _int32s(data):
    return [i - (1 << 64) if i >> 63 else i for i in packed(data)]


COUNTERS = {1: "rounds", 2: "drafted", 3: "accepted", 4: "rejections",
            25: "target_reused", 26: "draft_reused", 27: "preemptions", 30: "found",
            31: "found_accepted", 32: "siblings", 33: "siblings_accepted",
            34: "staged", 35: "appended", 36: "appended_accepted"}


def _alternatives(parts):
    found = [fields(part) for part in parts]
    return [(_one(one, 1, 0), _one(one, 3, bytes(4))) for one in found]


def _logprob(message):
    """Log-probabilities keep their bits."""
    return _one(message, 1, bytes(4)), _alternatives(message.get(2, []))


class Text:
    """One of a job's n texts."""

    def __init__(self):
        self.ids, self.text = [], ""
        self.logprobs = []  # bits of each token's, and of its alternatives
        self.finish = self.stop_match = None
        self.arrivals = []  # time and number of tokens of each message
        self.counters = {}

    def add(self, tokens):
        ids = _int32s(_one(tokens, 1, b""))
        self.ids += ids
        self.text += _one(tokens, 2, b"").decode()
        self.logprobs += [_logprob(fields(one)) for one in tokens.get(8, [])]
        self.arrivals.append((time.monotonic(), len(ids)))

    def end(self, summary):
        self.finish = _one(summary, 1, b"").decode()
        self.stop_match = _one(summary, 2, b"").decode()
        counters = fields(_one(summary, 5, b""))
        self.counters = {name: _one(counters, number, 0) for number, name in COUNTERS.items()}

    def words(self):
        """The parts that must be the same however the text came about."""
        return self.ids, self.text, self.finish, self.stop_match, self.logprobs


class Answer:
    """The answer to one job: its texts or scores, and how the call ended."""

    def __init__(self):
        self.texts, self.scores = {}, []
        self.status, self.details = "OK", ""
        self.began = time.monotonic()
        self.ended = None

    def add_reply(self, data):
        message = fields(data)
        for part in message.get(1, []):
            tokens = fields(part)
            self.texts.setdefault(_one(tokens, 7, 0), Text()).add(tokens)
        for part in message.get(3, []):
            self.add_scores(part)
        for part in message.get(2, []):
            summary = fields(part)
            self.texts.setdefault(_one(summary, 16, 0), Text()).end(summary)

    def add_scores(self, data):
        for part in fields(data).get(1, []):
            token = fields(part)
            self.scores.append((_one(token, 1, 0), _one(token, 3, bytes(4)),
                                _alternatives(token.get(5, []))))

    def words(self):
        """The parts that must be the same, whatever else was served at the time."""
        texts = {index: text.words() for index, text in sorted(self.texts.items())}
        return self.status, texts, self.scores

    def total(self, name):
        return sum(text.counters.get(name, 0) for text in self.texts.values())

    def seconds(self):
        return self.ended - self.began


class Call:
    """A job in flight; `answer` grows while read() runs."""

    def __init__(self, stream, add):
        self.stream = stream
        self.answer = Answer()
        self.add = {"reply": self.answer.add_reply, "scores": self.answer.add_scores}[add]

    def read_one(self):
        """False: the answer has ended."""
        try:
            self.add(next(self.stream))
            return True
        except StopIteration:
            pass
        except grpc.RpcError as failure:
            self.answer.status = failure.code().name
            self.answer.details = failure.details()
        self.answer.ended = time.monotonic()
        return False

    def read(self):
        while self.read_one():
            pass
        return self.answer

    def cancel(self):
        self.stream.cancel()


class Client(Caller):
    """A connection of its own; options are those of a gRPC channel."""

    def __init__(self, address, options=()):
        own = [("grpc.use_local_subchannel_pool", 1)]
        super().__init__(address, options=own + list(options))

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.close()

    def begin(self, message, timeout=CALL_SECONDS, method="Generate"):
        add = "scores" if method == "Score" else "reply"
        return Call(self.stream(method, message, timeout), add)

    def ask(self, message, timeout=CALL_SECONDS, method="Generate"):
        return self.begin(message, timeout, method).read()

    def submit(self, message, key=""):
        """The id of the stored job."""
        return fields(self.unary("Submit", field(1, message) + field(2, key)))[1][0].decode()

    def watch(self, name, from_token=0, timeout=CALL_SECONDS):
        return Call(self.stream("Watch", field(1, name) + field(2, from_token), timeout), "reply")

    def load(self):
        return Load(self.unary("Describe", b""))


class Load:
    """Description.load."""

    def __init__(self, data):
        load = fields(_one(fields(data), 22, b""))
        self.sequences_max, self.running, self.waiting = (_one(load, i, 0) for i in (1, 2, 3))
        self.target_kv = self._blocks(load, 4)
        self.draft_kv = self._blocks(load, 5)
        self.reused, self.computed, self.preemptions, self.steps, self.draft_reused = (
            int.from_bytes(_one(load, i, b""), "little") for i in (6, 7, 8, 11, 13))
        self.ends = dict.fromkeys(ENDS, 0)
        for part in load.get(9, []):
            count = fields(part)
            self.ends[ENDS[_one(count, 1, 0)]] = int.from_bytes(_one(count, 2, b""), "little")

    @staticmethod
    def _blocks(load, number):
        """(in use, free, cached)"""
        blocks = fields(_one(load, number, b""))
        return tuple(_one(blocks, i, 0) for i in (1, 2, 3))

    def is_idle(self):
        return self.running == 0 and self.waiting == 0


class Reader(threading.Thread):
    """A job whose answer is read beside the test."""

    def __init__(self, client, message):
        super().__init__(daemon=True)
        self.call = client.begin(message)
        self.answer = self.call.answer
        self.start()

    def run(self):
        self.call.read()

    def n_tokens(self):
        return sum(len(text.ids) for text in list(self.answer.texts.values()))

    def end(self, timeout):
        """How the answer ended, which must be before the timeout is over."""
        self.join(bound(timeout))
        if self.is_alive():
            raise AssertionError(f"a job still runs after {timeout:g} s")
        return self.answer.status


def run_jobs(clients, jobs, concurrency):
    """The answers to jobs, at most so many at a time, over the clients in turn. A job is a message,
    or a pair of a method and its message."""
    def ask(numbered):
        number, one = numbered
        method, message = one if isinstance(one, tuple) else ("Generate", one)
        return clients[number % len(clients)].ask(message, method=method)

    with ThreadPoolExecutor(concurrency) as pool:
        return list(pool.map(ask, enumerate(jobs)))
