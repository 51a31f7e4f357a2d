"""Load on servers of language models, from one thread: the same closed loop of requests, over gRPC
to a coordinator of ours or over HTTP to a server with OpenAI's /v1/completions.

    result = run_slice(HttpServer("127.0.0.1", 8080), requests, n_clients=8)

A prompt is a list of token ids, so that every server reads the same number of tokens; all requests
are greedy and ignore the end of sequence. The number of tokens comes from the server's own count at
the end, and a request whose counts are not what was asked for fails, because a server that stops
early would look fast. Of most messages only the time is noted, and of ours the bytes are kept if
the texts are wanted, because the generator runs on the machine that it measures; `generator_ratio`
says how much of a core it took.
"""
import asyncio
import json
import time
from dataclasses import dataclass, field as data_field

from rpc_python import OPTIONS, SERVICE, field, fields, grpc, packed, varint

REQUEST_TIMEOUT_S = 600
BODY_BYTES_MAX = 1 << 26


class LoadError(Exception):
    """One sentence about a request or a server."""


@dataclass
class Request:
    prompt: list  # token ids
    n_tokens: int


@dataclass
class Answer:
    """Keeps what is known of a request that was answered. Times are those of time.perf_counter."""
    begin: float = 0
    first: float = 0
    last: float = 0
    n_first: int = 0  # tokens of the first message
    n_prompt: int = 0
    n_tokens: int = 0
    request: Request = None
    replies: list = data_field(default_factory=list)  # if texts are kept: messages with tokens

    def token_ids(self):
        """The text, of a Coordinator that keeps texts."""
        return [token for reply in self.replies
                for ids in fields(fields(reply)[1][0]).get(1, []) for token in packed(ids)]

    def first_token_s(self):
        return self.first - self.begin

    def token_s(self):
        """Mean time of a token after those of the first message."""
        return (self.last - self.first) / max(1, self.n_tokens - self.n_first)


@dataclass
class Slice:
    """The answers to the requests of a slice, and what they took together."""
    duration_s: float
    generator_ratio: float
    answers: list = data_field(default_factory=list)

    def tokens_per_second(self):
        return sum(answer.n_tokens for answer in self.answers) / self.duration_s


# ---- ours ----

class Coordinator:
    """Our side: Generate of a coordinator. k < 0 leaves the number of guesses to it. keeps_texts:
    the answers know their token ids."""

    def __init__(self, address, k, keeps_texts=False):
        self.address, self.keeps_texts = address, keeps_texts
        self.speculation = field(5, field(1, k)) if k >= 0 else b""
        self.channel = self.stream = None

    def vocabulary(self):
        with grpc.insecure_channel(self.address, options=OPTIONS) as channel:
            description = channel.unary_unary(SERVICE + "Describe")(b"", timeout=30)
        return fields(description)[9][0]

    async def open(self):
        self.channel = grpc.aio.insecure_channel(self.address, options=OPTIONS)
        self.stream = self.channel.unary_stream(SERVICE + "Generate")

    async def close(self):
        await self.channel.close()

    def encode(self, request):
        ids = field(1, b"".join(map(varint, request.prompt)))
        greedy = field(4, field(1, 0.0))
        return (field(2, ids) + field(3, request.n_tokens) + greedy + self.speculation +
                field(7, 1))

    async def send(self, request, answer):
        summary = None
        message = self.encode(request)
        answer.begin = time.perf_counter()
        async for reply in self.stream(message, timeout=REQUEST_TIMEOUT_S):
            if reply[0] >> 3 == 1:
                answer.last = time.perf_counter()
                if self.keeps_texts:
                    answer.replies.append(reply)
                if not answer.first:
                    answer.first = answer.last
                    answer.n_first = count_ids(reply)
            else:
                summary = fields(fields(reply)[2][0])
        if summary is None:
            raise LoadError(f"{self.address} ended an answer without a summary")
        answer.n_prompt, answer.n_tokens = summary[3][0], summary[4][0]


def count_ids(reply):
    """The number of tokens of a message: its ids are packed varints."""
    ids = fields(fields(reply)[1][0]).get(1, [b""])[0]
    return sum(byte < 0x80 for byte in ids)


# ---- servers with OpenAI's completions ----

class EventStream(asyncio.Protocol):
    """One POST whose answer is a stream of server-sent events, as HTTP/1.1 with or without chunks.
    on_events(list of data) is called for the events that came together."""

    def __init__(self, request, on_events):
        self.request, self.on_events = request, on_events
        self.buffer, self.body = bytearray(), bytearray()
        self.status, self.is_chunked, self.has_head = 0, False, False
        self.closed = asyncio.get_running_loop().create_future()

    def connection_made(self, transport):
        transport.write(self.request)

    def data_received(self, data):
        self.buffer += data
        try:
            if not self.has_head and not self.take_head():
                return
            self.take_body()
        except (ValueError, LoadError) as failure:
            self.fail(f"the answer makes no sense: {failure}")

    def take_head(self):
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            return False
        head = bytes(self.buffer[:end]).split(b"\r\n")
        del self.buffer[:end + 4]
        self.status = int(head[0].split()[1])
        self.is_chunked = any(line.lower().replace(b" ", b"") == b"transfer-encoding:chunked"
                              for line in head[1:])
        self.has_head = True
        return True

    def take_body(self):
        if not self.is_chunked:
            self.body += self.buffer
            self.buffer.clear()
        else:
            self.take_chunks()
        if len(self.body) > BODY_BYTES_MAX:
            raise LoadError(f"more than {BODY_BYTES_MAX} bytes without an event")
        if self.status == 200:
            self.take_events()

    def take_chunks(self):
        while (line_end := self.buffer.find(b"\r\n")) >= 0:
            size = int(bytes(self.buffer[:line_end]).partition(b";")[0], 16)
            if len(self.buffer) < line_end + 2 + size + 2:
                return
            self.body += self.buffer[line_end + 2:line_end + 2 + size]
            del self.buffer[:line_end + 2 + size + 2]

    def take_events(self):
        end = self.body.rfind(b"\n\n")
        if end < 0:
            return
        events = bytes(self.body[:end]).split(b"\n\n")
        del self.body[:end + 2]
        datas = [event[5:].strip() for event in events if event.startswith(b"data:")]
        if datas:
            self.on_events(datas)

    def fail(self, text):
        if not self.closed.done():
            self.closed.set_exception(LoadError(text))

    def connection_lost(self, exc):
        if self.closed.done():
            return
        if exc:
            self.fail(f"the connection broke: {exc}")
        elif self.status != 200:
            self.fail(f"status {self.status}: {bytes(self.body)[:300].decode('utf-8', 'replace')}")
        else:
            self.closed.set_result(None)


class HttpServer:
    """A server with OpenAI's /v1/completions, such as llama-server or vLLM. Fields that are not
    OpenAI's (ignore_eos) are those that these servers know."""

    def __init__(self, host, port, model="", path="/v1/completions"):
        self.host, self.port, self.model, self.path = host, port, model, path

    async def open(self):
        pass

    async def close(self):
        pass

    def encode(self, request):
        body = json.dumps({
            "model": self.model, "prompt": request.prompt, "max_tokens": request.n_tokens,
            "temperature": 0, "ignore_eos": True, "stream": True,
            "stream_options": {"include_usage": True}}).encode()
        return (f"POST {self.path} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
                "Accept: text/event-stream\r\nConnection: close\r\n\r\n").encode() + body

    async def send(self, request, answer):
        usage = {}

        def on_events(events):
            now = time.perf_counter()
            for event in events:
                if b'"usage":{' in event.replace(b" ", b""):
                    usage.update(json.loads(event)["usage"])
            if any(not event.startswith(b"[DONE]") and b'"text"' in event for event in events):
                answer.last = now
                answer.first, answer.n_first = answer.first or now, 1

        message = self.encode(request)
        answer.begin = time.perf_counter()
        transport, stream = await asyncio.get_running_loop().create_connection(
            lambda: EventStream(message, on_events), self.host, self.port)
        try:
            await asyncio.wait_for(stream.closed, REQUEST_TIMEOUT_S)
        finally:
            transport.close()
        if not usage:
            raise LoadError(f"{self.host}:{self.port} sends no usage at the end of a stream: it "
                            "must know stream_options.include_usage")
        answer.n_prompt, answer.n_tokens = usage["prompt_tokens"], usage["completion_tokens"]


# ---- a closed loop ----

def check(request, answer):
    asked, got = (len(request.prompt), request.n_tokens), (answer.n_prompt, answer.n_tokens)
    if asked != got:
        raise LoadError(f"a prompt of {asked[0]} tokens that asks for {asked[1]} was answered as "
                        f"one of {got[0]} with {got[1]}: both sides must do the same work")


async def client(server, waiting, answers):
    while waiting:
        request = waiting.pop()
        answer = Answer(request=request)
        try:
            await server.send(request, answer)
        except (OSError, asyncio.TimeoutError, grpc.RpcError) as failure:
            text = failure.details() if isinstance(failure, grpc.RpcError) else str(failure)
            raise LoadError(f"a request failed: {text or type(failure).__name__}") from None
        check(request, answer)
        answers.append(answer)


async def run_clients(server, requests, n_clients):
    waiting, answers = list(reversed(requests)), []
    await server.open()
    try:
        begin, begin_cpu = time.perf_counter(), time.process_time()
        async with asyncio.TaskGroup() as group:
            for _ in range(n_clients):
                group.create_task(client(server, waiting, answers))
        duration = time.perf_counter() - begin
        return Slice(duration, (time.process_time() - begin_cpu) / duration, answers)
    finally:
        await server.close()


def run_slice(server, requests, n_clients):
    """Sends all requests, n_clients of them at once, and returns the Slice. LoadError: the first
    thing that went wrong."""
    try:
        return asyncio.run(run_clients(server, requests, n_clients))
    except* LoadError as failures:
        found = failures.exceptions[0]
    raise found
