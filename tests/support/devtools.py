"""A browser without a screen, driven as its own developer tools drive it (the DevTools protocol).

    with Browser() as browser:                          # Missing: no chromium on this machine
        page = browser.open("http://127.0.0.1:8000/")
        page.click("#generate")
        page.wait("document.querySelectorAll('.token').length > 10", "there are tokens")

Messages go through a pipe, one JSON object with a NUL after it each. What the page asks of the
network, what it says on the console and what the browser refuses it is kept. One thread.
"""
import base64
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time

from cluster import bound

FLAGS = ["--headless=new", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu",
         "--disable-dev-shm-usage", "--disable-extensions", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--no-default-browser-check",
         "--hide-scrollbars", "--mute-audio", "--password-store=basic"]
CALL_SECONDS = 30
WAIT_SECONDS = 15
KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, "Space": 32, "End": 35, "Home": 36, "ArrowLeft": 37,
        "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
TEXTS = {"Enter": "\r", "Space": " "}
MODIFIERS = {"Alt": 1, "Control": 2, "Meta": 4, "Shift": 8}


class Missing(Exception):
    """There is no chromium on this machine."""


class DevToolsError(Exception):
    """The browser did not do what it was asked in time; the text says what."""


def high_pipe():
    """A pipe whose ends have numbers above those that the browser wants."""
    ends = os.pipe()
    high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends]
    for end in ends:
        os.close(end)
    return high


class Browser:
    """arguments: more for the command line."""

    def __init__(self, *arguments):
        program = shutil.which("chromium")
        if not program:
            raise Missing("chromium is not installed (deploy/packages install test)")
        self.folder = tempfile.mkdtemp(prefix="outrider-browser-")
        self.number = 0
        self.pages = {}
        self.rest = b""
        # Root has no sandbox to put a browser in.
        own = ["--no-sandbox"] if os.geteuid() == 0 else []
        self._start([program, *FLAGS, *own, f"--user-data-dir={self.folder}", *arguments])

    def _start(self, command):
        to_read, self.to = high_pipe()
        self.come_from, to_write = high_pipe()
        with open(os.path.join(self.folder, "log"), "wb") as log:
            self.process = subprocess.Popen(
                ["bash", "-c", f'exec "$@" 3<&{to_read} 4>&{to_write}', "bash", *command],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                pass_fds=(to_read, to_write), env={**os.environ, "HOME": self.folder})
        os.close(to_read)
        os.close(to_write)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Ends the browser and all that it has started."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait(bound(CALL_SECONDS))
        os.close(self.to)
        os.close(self.come_from)
        shutil.rmtree(self.folder, ignore_errors=True)

    # ---- messages ----

    def call(self, method, session=None, **params):
        """The result of a method; events that come meanwhile go to their pages."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + bound(CALL_SECONDS)
        while True:
            answer = self._receive(end, method)
            if answer.get("id") == message["id"]:
                break
        if "error" in answer:
            raise DevToolsError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def _receive(self, end, what):
        while b"\0" not in self.rest:
            left = end - time.monotonic()
            if left < 0 or not select.select([self.come_from], [], [], left)[0]:
                raise DevToolsError(f"waited {CALL_SECONDS} s in vain for an answer to {what}")
            data = os.read(self.come_from, 1 << 20)
            if not data:
                raise DevToolsError(f"the browser has ended with status {self.process.wait()}")
            self.rest += data
        first, _, self.rest = self.rest.partition(b"\0")
        message = json.loads(first)
        page = self.pages.get(message.get("sessionId"))
        if page and "method" in message:
            page.take(message["method"], message["params"])
        return message

    def open(self, url, *, width=1280, height=900):
        """A page with a profile of its own, once it has been loaded."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)
        session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        page = Page(self, session["sessionId"], context)
        self.pages[page.session] = page
        page.begin(width, height)
        page.go(url)
        return page


class Page:
    """requests: URLs that were asked for. problems: what the console and the browser complain of.
    failures: status or words of each request without a good answer, as (url, what). sizes: bytes of
    each answer as they came over the network, with headers, as (url, bytes, when). painted: when
    something was first seen; both by the same clock, in seconds."""

    def __init__(self, browser, session, context):
        self.browser = browser
        self.session = session
        self.context = context
        self.requests, self.problems, self.failures = [], [], []
        self.urls = {}
        self.sizes = []
        self.painted = None
        self.is_loaded = False
        self.password = None
        self.answers = {}  # path -> (status, body) that is answered in place of the server's

    def call(self, method, **params):
        return self.browser.call(method, self.session, **params)

    def close(self):
        del self.browser.pages[self.session]
        self.browser.call("Target.disposeBrowserContext", browserContextId=self.context)

    def begin(self, width, height):
        for domain in ("Page", "Runtime", "Log", "Network", "Audits"):
            self.call(f"{domain}.enable")
        self.call("Page.setLifecycleEventsEnabled", enabled=True)
        self.resize(width, height)

    # ---- what happens ----

    def take(self, method, params):
        handler = getattr(self, "on_" + method.replace(".", "_"), None)
        if handler:
            handler(params)

    def on_Page_loadEventFired(self, _):
        self.is_loaded = True

    def on_Page_lifecycleEvent(self, params):
        if params["name"] == "firstContentfulPaint":
            self.painted = params["timestamp"]

    def on_Network_requestWillBeSent(self, params):
        self.requests.append(params["request"]["url"])
        self.urls[params["requestId"]] = params["request"]["url"]

    def on_Network_responseReceived(self, params):
        answer = params["response"]
        if answer["status"] >= 400:
            self.failures.append((answer["url"], answer["status"]))

    def on_Network_loadingFinished(self, params):
        self.sizes.append((self.urls.get(params["requestId"]), params["encodedDataLength"],
                           params["timestamp"]))

    def on_Network_loadingFailed(self, params):
        if not params.get("canceled"):
            self.failures.append((self.urls.get(params["requestId"]), params["errorText"]))

    def on_Runtime_exceptionThrown(self, params):
        details = params["exceptionDetails"]
        self.problems.append(details.get("exception", {}).get("description") or details["text"])

    def on_Runtime_consoleAPICalled(self, params):
        if params["type"] in ("error", "warning", "assert"):
            self.problems.append(json.dumps(params["args"]))

    def on_Log_entryAdded(self, params):
        entry = params["entry"]
        # Failures of the network are in failures.
        if entry["level"] in ("error", "warning") and entry["source"] != "network":
            self.problems.append(f"{entry['source']}: {entry['text']}")

    def on_Audits_issueAdded(self, params):
        self.problems.append(json.dumps(params["issue"]))

    # Answers cannot be waited for here, within the waiting for another one.
    def _send(self, method, **params):
        self.browser.number += 1
        os.write(self.browser.to, json.dumps({
            "id": self.browser.number, "method": method, "params": params,
            "sessionId": self.session}).encode() + b"\0")

    def on_Fetch_requestPaused(self, params):
        path = params["request"]["url"].split("/", 3)[-1]
        if path not in self.answers:
            self._send("Fetch.continueRequest", requestId=params["requestId"])
            return
        status, body = self.answers[path]
        self._send("Fetch.fulfillRequest", requestId=params["requestId"], responseCode=status,
                   responseHeaders=[{"name": "Content-Type", "value": "application/json"}],
                   body=base64.b64encode(body.encode()).decode())

    def on_Fetch_authRequired(self, params):
        user, password = self.password or ("", "")
        answer = {"response": "ProvideCredentials", "username": user, "password": password} \
            if self.password else {"response": "CancelAuth"}
        self.password = None  # a wrong one is not tried again and again
        self._send("Fetch.continueWithAuth", requestId=params["requestId"],
                   authChallengeResponse=answer)

    # ---- the network's side ----

    def log_in(self, user, password):
        """Enters this when the browser asks for a password; once."""
        self.password = (user, password)
        self.call("Fetch.enable", handleAuthRequests=True)

    def answer(self, path, status, body):
        """Answers a path with this from now on, as a proxy before the server would."""
        self.answers[path] = (status, body)
        self.call("Fetch.enable", patterns=[{"urlPattern": f"*/{path}"}])

    # ---- where the page is ----

    def go(self, url):
        self.is_loaded = False
        self.call("Page.navigate", url=url)
        end = time.monotonic() + bound(WAIT_SECONDS)
        while not self.is_loaded:
            if time.monotonic() > end:
                raise DevToolsError(f"{url} is not there after {WAIT_SECONDS} s")
            self.evaluate("1")

    def resize(self, width, height, *, is_phone=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=is_phone)

    def wish(self, **features):
        """Sets preferences of the user: wish(prefers_color_scheme="dark")."""
        self.call("Emulation.setEmulatedMedia", features=[
            {"name": name.replace("_", "-"), "value": value} for name, value in features.items()])

    def screenshot(self, path, *, whole=True):
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"],
                         "scale": 1}, "captureBeyondViewport": True} if whole else {}
        data = self.call("Page.captureScreenshot", format="png", **clip)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

    # ---- what is in it ----

    def evaluate(self, expression):
        """The value of an expression of JavaScript, waited for where it is a promise."""
        done = self.call("Runtime.evaluate", expression=expression, returnByValue=True,
                         awaitPromise=True)
        if "exceptionDetails" in done:
            details = done["exceptionDetails"]
            raise DevToolsError(f"{expression}: "
                                f"{details.get('exception', {}).get('description', details)}")
        return done["result"].get("value")

    def wait(self, expression, what, timeout=WAIT_SECONDS):
        """The first true value of the expression."""
        end = time.monotonic() + bound(timeout)
        while True:
            value = self.evaluate(expression)
            if value:
                return value
            if time.monotonic() > end:
                raise DevToolsError(f"waited {timeout} s in vain until {what}: {expression}")
            time.sleep(0.03)

    def text(self, selector):
        return self.evaluate(f"document.querySelector({json.dumps(selector)}).innerText")

    def is_shown(self, selector):
        return self.evaluate(
            f"document.querySelector({json.dumps(selector)})?.checkVisibility() ?? false")

    # ---- hands ----

    def _middle(self, selector):
        box = self.evaluate(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'nearest'}); const b = e.getClientRects()[0];"
            "return [b.x + b.width / 2, b.y + b.height / 2]; })()")
        return {"x": box[0], "y": box[1]}

    def hover(self, selector):
        self.call("Input.dispatchMouseEvent", type="mouseMoved", **self._middle(selector))

    def click(self, selector):
        at = self._middle(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **at)

    def press(self, name, *modifiers, times=1):
        """A key by its name, or a letter."""
        code = KEYS.get(name) or ord(name.upper())
        held = sum(MODIFIERS[modifier] for modifier in modifiers)
        text = TEXTS.get(name, name if len(name) == 1 else "") if not held & ~8 else ""
        value = " " if name == "Space" else name
        for _ in range(times):
            self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown",
                      key=value, code=name, windowsVirtualKeyCode=code, modifiers=held, text=text)
            self.call("Input.dispatchKeyEvent", type="keyUp", key=value, code=name,
                      windowsVirtualKeyCode=code, modifiers=held)

    def write(self, text):
        """Into what has the focus, in the place of what is selected."""
        self.call("Input.insertText", text=text)

    def fill(self, selector, text):
        """Replaces a field's content as a user would."""
        self.click(selector)
        self.evaluate(f"document.querySelector({json.dumps(selector)}).select()")
        if text:
            self.write(text)
        else:
            self.evaluate("document.execCommand('delete')")
