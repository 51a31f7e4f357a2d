"""A proxy between the coordinator and a rank that passes everything on, and keeps what each step
held: tests count steps and tokens with it, where a clock would say nothing on a busy machine. It
can also hold the replies back, so that something happens while a step is certainly in flight, and
spoil what belongs to one sequence.

    with SteppedWorld() as world:
        n = len(world.proxy.steps)
        ...
        fed = sum(step.n_tokens for step in world.proxy.steps[n:])
"""
import threading
import time
from concurrent import futures

from fault_util import World
from rpc_python import OPTIONS, field, fields, grpc, packed, varint

RUN = "/outrider.target.v1.Target/Run"
HELD_SECONDS = 600  # longer than any test holds the replies back
SERVER_THREADS = 8
FIRST_BLOCK, BLOCKS = 5, 6  # fields of a lane; a first block of 0 is left out


class Lane:
    """One sequence's share of a step."""

    def __init__(self, data):
        message = fields(data)
        self.slot, self.position = (message.get(i, [0])[0] for i in (1, 2))
        self.tokens = packed(message.get(3, [b""])[0])
        self.n_draft = message.get(4, [0])[0]
        self.n_rows = len(message.get(7, []))
        self.begins = FIRST_BLOCK not in message and BLOCKS in message  # its block table is new

    def end(self):
        """Committed tokens that the target has read after the step."""
        return self.position + len(self.tokens) - self.n_draft


class Step:
    def __init__(self, data):
        self.lanes = [Lane(lane) for lane in fields(data).get(2, [])]
        self.n_tokens = sum(len(lane.tokens) for lane in self.lanes)
        self.came = time.monotonic()

    def lane_of(self, slot):
        return next((lane for lane in self.lanes if lane.slot == slot), None)


class StepProxy(grpc.GenericRpcHandler):
    """Listens for the coordinator and calls the rank."""

    def __init__(self, listen, rank):
        self.steps = []  # those with lanes, in order
        self.pause_s = 0  # before each reply, so that a test sees steps of fast ranks go by
        self.n_spoilt = 0
        self._first_token = self._slot = self._no_token = self._row_error = None
        self._open = threading.Event()
        self._open.set()
        self.channel = grpc.insecure_channel(rank, options=OPTIONS)
        self.server = grpc.server(futures.ThreadPoolExecutor(SERVER_THREADS), handlers=[self],
                                  options=OPTIONS)
        if not self.server.add_insecure_port(listen):
            raise OSError(f"cannot listen at {listen}")
        self.server.start()

    def service(self, details):
        return grpc.stream_stream_rpc_method_handler(
            lambda requests, context: self._pass_on(details.method, requests, context))

    def _note(self, method, requests):
        for data in requests:
            if method == RUN:
                step = Step(data)
                if step.lanes:
                    self.steps.append(step)
                    data = self._spoil_request(data, step)
            yield data

    # ---- spoiling ----

    def mark(self, first_token):
        """The sequence whose prompt begins with this token is the one that is spoilt."""
        self._first_token = first_token

    def spoil_lanes(self, token):
        """Its lanes get a token more, which does not exist."""
        self._no_token = token

    def spoil_rows(self, error):
        """Its rows are replaced by this error."""
        self._row_error = error

    def _marked(self, step):
        """The index of its lane, or -1. Its slot is known from its first lane on."""
        for index, lane in enumerate(step.lanes):
            if lane.begins:
                is_it = lane.position == 0 and lane.tokens[0] == self._first_token
                if is_it or lane.slot == self._slot:
                    self._slot = lane.slot if is_it else None
            if lane.slot == self._slot:
                return index
        return -1

    def _spoil_request(self, data, step):
        marked = self._marked(step)
        if self._no_token is None or marked < 0 or step.lanes[marked].position == 0:
            return data
        self.n_spoilt += 1
        message = fields(data)
        lanes = message[2]
        lanes[marked] += field(3, varint(self._no_token))
        return varint(1 << 3 | 1) + message[1][0] + b"".join(field(2, lane) for lane in lanes)

    def _spoil_reply(self, data):
        step = self.steps[-1] if self.steps else None
        marked = self._marked(step) if step and self._row_error else -1
        if marked < 0 or step.lanes[marked].position == 0:
            return data
        begin = sum(lane.n_rows for lane in step.lanes[:marked])
        message = fields(data)
        rows = message.get(2, [])
        if len(rows) != sum(lane.n_rows for lane in step.lanes):
            return data  # further values of an earlier step
        self.n_spoilt += 1
        for row in range(begin, begin + step.lanes[marked].n_rows):
            rows[row] = field(2, self._row_error)
        return (varint(1 << 3 | 1) + message[1][0] + b"".join(field(2, row) for row in rows) +
                b"".join(field(3, timings) for timings in message.get(3, [])))

    def _pass_on(self, method, requests, context):
        call = self.channel.stream_stream(method)(self._note(method, requests))
        context.add_callback(call.cancel)
        try:
            for reply in call:
                self._open.wait(HELD_SECONDS)
                time.sleep(self.pause_s)
                yield self._spoil_reply(reply) if method == RUN else reply
        except grpc.RpcError as failure:
            context.abort(failure.code(), failure.details())

    def hold(self):
        """From now on no reply passes: the step that is in flight, or the next one, stays so."""
        self._open.clear()

    def release(self):
        self._open.set()

    def pass_one(self):
        """The reply that is held back passes, and the next one is held back again."""
        self._open.set()
        self._open.clear()

    def close(self):
        self.release()
        self.server.stop(0)
        self.channel.close()


class SteppedWorld(World):
    """A cluster of one rank behind a proxy."""

    def __init__(self, **options):
        super().__init__(**options)
        self.proxy = None

    def start_coordinator(self):
        if not self.proxy:
            listen = f"unix:{self.folder}/p"
            self.proxy = StepProxy(listen, self.worker_addresses[0])
            self.worker_addresses = [listen]
        super().start_coordinator()

    def stop(self):
        if self.proxy:
            self.proxy.close()
        return super().stop()
