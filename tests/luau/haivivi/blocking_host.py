"""A minimal host of `__builtin`: each function is a Python function that blocks until it returns."""

import http.client
import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyluau


class BlockingHost:
    """Runs scripts whose calls block, one after the other; there is nothing to suspend."""

    def __init__(self, libraries: list[Path], env: Mapping[str, str]) -> None:
        self.libraries = libraries
        self.kvs: dict[str, Any] = {}
        self.logged: list[str] = []
        self.state = pyluau.State()
        self.modules: dict[str, Any] = {}
        self.state.define(
            "__builtin",
            {
                "http": send_request,
                "json_encode": encode_json,
                "json_decode": decode_json,
                "kvs_get": self.kvs.get,
                "kvs_set": self.kvs.__setitem__,
                "kvs_del": self.remove,
                "log": self.log,
                "env": env.get,
                "time": time.time,
                "parse_time": parse_time,
            },
        )
        self.state.define("require", self.require)

    def remove(self, key: str) -> None:
        self.kvs.pop(key, None)

    def log(self, *values: object) -> None:
        self.logged.append("\t".join(map(str, values)))

    def require(self, name: str) -> Any:
        if name not in self.modules:
            self.modules[name] = self.load(name).call(convert=False)
        return self.modules[name]

    def load(self, name: str) -> Any:
        for file in (place / end for place in self.libraries for end in (f"{name}.luau", f"{name}/init.luau")):
            if file.is_file():
                return self.state.load(self.state.compile(file.read_text("utf-8"), chunkname=f"={name}"), f"={name}")
        raise LookupError(f"no module {name!r} in {self.libraries}")

    def run(self, source: str, *arguments: Any) -> Any:
        return self.state.eval(source, *arguments)

    def close(self) -> None:
        self.modules.clear()
        self.state.close()


def send_request(wanted: dict[str, Any]) -> dict[str, Any]:
    address: str = wanted["url"]
    url = urlsplit(address)
    connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=30)
    try:
        target = url.path + (f"?{url.query}" if url.query else "")
        body = wanted.get("body")
        connection.request(wanted.get("method", "GET"), target, body and body.encode(), wanted.get("headers") or {})
        response = connection.getresponse()
        return {"status": response.status, "headers": dict(response.headers), "body": response.read().decode()}
    except OSError as error:
        return {"status": 0, "err": str(error)}
    finally:
        connection.close()


def encode_json(value: Any) -> tuple[str | None, str | None]:
    try:
        return json.dumps(value, ensure_ascii=False), None
    except TypeError as error:
        return None, str(error)


def decode_json(text: str) -> tuple[Any, str | None]:
    try:
        return json.loads(text), None
    except ValueError as error:
        return None, str(error)


def parse_time(text: str) -> float | None:
    try:
        read = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()
