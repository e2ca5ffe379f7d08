"""What goes in and out: rows, explanations, status, faults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

DEFAULT = 0
"""The region of clients that are in none: the default column."""

Region: TypeAlias = int | str
"""A region by its number or its name; 0 is the default column."""


@dataclass(frozen=True)
class Cell:
    """How probable a server is for the clients of a region, and for how long.

    Probabilities are from 0 on and of any scale: a row is normalised. Without one in a whole column, it is uniform.
    The TTL is in seconds; without one it is 360.
    """

    probability: float | None = None
    ttl: int | None = None


class Rows(dict[str, dict[Region, Cell]]):
    """A policy's matrix, `rows[server][region]`, with servers as addresses and regions as names or 0.

    `tag` stands for what was read: with it, only that is replaced.
    """

    tag: str | None = None


@dataclass(frozen=True)
class Fault:
    """What is wrong with something that was sent, and where."""

    source: str
    what: str
    expected: str = ""
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        place = "".join(f":{number}" for number in (self.line, self.column) if number is not None)
        expected = f"; expected {self.expected}" if self.expected else ""
        return f"{self.source}{place}: {self.what}{expected}"


@dataclass(frozen=True)
class RowServer:
    """A server in a row, an address or a name: its probability from 0 to 1 whether it is up or not, its TTL in seconds."""

    address: str
    probability: float
    ttl: int
    up: bool


@dataclass(frozen=True)
class Explanation:
    """Why a client is sent where it is; fields as in the API's document."""

    generation: int
    policy: str
    partition: str
    region: str | None
    id: int
    scope: int
    row: tuple[RowServer, ...]
    probabilities: Mapping[str, float]
    answer: tuple[str, ...]
    ttl: int
    why: str

    @staticmethod
    def read(shape: Mapping[str, Any]) -> Explanation:
        """Takes the API's answer; fields that are not known here are left out."""
        servers = (RowServer(target_of(s), s["probability"], s["ttl"], s["up"]) for s in shape["row"])
        return Explanation(
            generation=shape["generation"],
            policy=shape["policy"],
            partition=shape["partition"],
            region=shape["region"],
            id=shape["id"],
            scope=shape["scope"],
            row=tuple(servers),
            probabilities=dict(shape["probabilities"]),
            answer=tuple(shape["answer"]),
            ttl=shape["ttl"],
            why=shape["why"],
        )


@dataclass(frozen=True)
class Status:
    """How the name server is doing; `all` has everything that the API says."""

    version: str
    uptime_seconds: int
    generation: int
    all: Mapping[str, Any]


def target_of(server: Mapping[str, Any]) -> str:
    """Returns what a server is answered as: its address, or the name that it is."""
    return str(server.get("address") or server["cname"])
