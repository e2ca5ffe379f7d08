"""HTTP, and why a call did not do what it was made for. Nothing else here knows the HTTP library."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import httpx2

from pointsman.shapes import Fault

ANSWER_WAIT = 30.0
"""How long an answer may take, in seconds: a change waits up to five for the slowest worker."""


class PointsmanError(Exception):
    """A call that did not do what it was made for; but for `Unreachable`, what serves is as it was."""


class Unreachable(PointsmanError):
    """Nobody answers; of a change that was asked for, nothing is known."""


class Refused(PointsmanError):
    """The name server refused; `faults` lists everything that is wrong with what was sent."""

    def __init__(self, status: int, what: str, faults: tuple[Fault, ...]) -> None:
        super().__init__("\n".join([what, *map(str, faults)]))
        self.status = status
        self.what = what
        self.faults = faults


class Invalid(Refused, ValueError):
    """What was given cannot be what it should: refused here (422), before anything was sent."""

    def __init__(self, what: str) -> None:
        super().__init__(422, what, ())


class Changed(Refused):
    """Somebody else changed it since it was read (412)."""


@dataclass(frozen=True)
class Answer:
    """What came back: the JSON, and its tag."""

    shape: Any
    tag: str | None


class Transport:
    """A client of the API at `url`."""

    def __init__(self, url: str, token: str | None) -> None:
        if token and not (token.isascii() and token.isprintable()):
            raise Invalid("the token has characters that no header can have")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            self._client = httpx2.Client(base_url=url, headers=headers, timeout=ANSWER_WAIT, trust_env=False)
        except httpx2.InvalidURL as cause:
            raise Invalid(f"{url!r} is no URL: {cause}") from cause

    def close(self) -> None:
        """Closes the connection."""
        self._client.close()

    def call(self, method: str, path: str, body: Any = None, if_match: str | None = None, if_absent: bool = False) -> Answer:
        """Makes a call; raises `Unreachable`, `Changed` or `Refused`, and `Invalid` for what is no JSON."""
        headers = {"If-Match": f'"{if_match}"'} if if_match is not None else {}
        if if_absent:
            headers["If-None-Match"] = "*"
        content = None
        if body is not None:
            try:
                # NaN and the infinities are none of JSON's numbers.
                content = json.dumps(body, allow_nan=False).encode()
            except (TypeError, ValueError) as cause:
                raise Invalid(str(cause)) from cause
            headers["Content-Type"] = "application/json"
        try:
            response = self._client.request(method, path, content=content, headers=headers)
        except httpx2.HTTPError as cause:
            raise Unreachable(f"the API at {self._client.base_url} cannot be reached: {cause}") from cause
        try:
            shape = response.json()
        except ValueError:
            shape = None
        if shape is None or not (response.is_success or isinstance(shape, dict)):
            shape = {"what": f"this is not an answer of Pointsman's API: {response.text[:200]!r}"}
            raise _refusal(response.status_code, shape)
        if not response.is_success:
            raise _refusal(response.status_code, shape)
        tag = response.headers.get("ETag")
        return Answer(shape, tag.strip('"') if tag else None)


def _refusal(status: int, problem: Any) -> Refused:
    keys = ("source", "what", "expected", "line", "column")
    faults = tuple(Fault(**{key: fault[key] for key in keys if key in fault}) for fault in problem.get("faults", ()))
    kind = Changed if status == 412 else Refused
    expected = f"; expected {problem['expected']}" if problem.get("expected") else ""
    return kind(status, problem.get("what", "it was refused") + expected, faults)
