# SPDX-License-Identifier: BSD-3-Clause
"""A headless Chromium, spoken to by its DevTools protocol over a pair of pipes."""
import base64
import json
import os
import select
import shutil
import subprocess
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
LIMIT_S = 60


def find():
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page; what it complains of and what it asks for is kept."""

    def __init__(self, program, folder):
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()
        options = ["--headless", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage", "--remote-debugging-pipe",
                   f"--user-data-dir={folder}/profile", "about:blank"]
        if os.geteuid() == 0:  # which its sandbox refuses
            options.insert(0, "--no-sandbox")
        # it reads from 3 and writes to 4
        words = f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser}'
        with open(os.path.join(folder, "log"), "wb") as log:
            self._process = subprocess.Popen(["bash", "-c", words, program, *options], stdin=subprocess.DEVNULL,
                                             stdout=log, stderr=log, pass_fds=(to_browser, from_browser),
                                             env={**os.environ, "HOME": folder}, start_new_session=True)
        os.close(to_browser)
        os.close(from_browser)
        self._pending, self._last, self._session = b"", 0, None
        self.complaints, self.asked_for, self._events = [], [], []
        target = next(info for info in self.call("Target.getTargets")["targetInfos"] if info["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def _message(self):
        end = time.monotonic() + LIMIT_S
        while b"\0" not in self._pending:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self._in], [], [], left)[0]:
                raise TimeoutError("Chromium does not answer")
            got = os.read(self._in, 1 << 20)
            if not got:
                raise ConnectionError("Chromium has ended")
            self._pending += got
        text, _, self._pending = self._pending.partition(b"\0")
        return json.loads(text)

    def _take(self, message):
        method, params = message.get("method"), message.get("params", {})
        self._events.append(method)
        if method == "Runtime.exceptionThrown" or method == "Log.entryAdded":
            self.complaints.append(json.dumps(params))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.complaints.append(json.dumps(params["args"]))
        elif method == "Network.requestWillBeSent":
            self.asked_for.append(params["request"]["url"])

    def call(self, method, **params):
        self._last += 1
        message = {"id": self._last, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._message()
            if answer.get("id") == self._last:
                assert "error" not in answer, f"{method}: {answer.get('error')}"
                return answer["result"]
            self._take(answer)

    def open(self, path):
        """A page, alone: what is kept is of this one."""
        for kept in (self._events, self.complaints, self.asked_for):
            kept.clear()
        self.call("Page.navigate", url=f"file://{path}")
        while "Page.loadEventFired" not in self._events:
            self._take(self._message())

    def look(self, scheme="light", media="screen", width=1200):
        """As the reader has it."""
        self.call("Emulation.setEmulatedMedia", media=media,
                  features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)

    def ask(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"]["value"]

    def pdf(self):
        return base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"])

    def close(self):
        os.close(self._out)  # at which it ends
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._in)
