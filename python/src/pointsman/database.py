"""The calls of the MyXDNS paper (section 3.2), and what goes with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from ipaddress import IPv4Address, IPv6Address, ip_address
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote
from uuid import uuid4

from pointsman.shapes import DEFAULT, Cell, Explanation, Region, Rows, Status, target_of
from pointsman.transport import Changed, Invalid, Refused, Transport

UPDATE_TRIES = 5
"""How often rows that were not read are installed anew where somebody else changes the policy meanwhile."""


def connect_db(url: str = "http://127.0.0.1:8053", token: str | None = None) -> Database:
    """Connects to a name server's API, or to the database that name servers share (the paper's Connect_DB).

    For the latter, `url` is that of their store: `postgres://USER@HOST/DATABASE` (needs psycopg) or
    `mysql://USER@HOST/DATABASE` (needs PyMySQL).
    """
    if url.split("://")[0] in ("postgres", "postgresql", "mysql", "mariadb"):
        from pointsman.direct import DirectDatabase

        return DirectDatabase(url)
    return Database(Transport(url, token))


class Database:
    """What a name server holds. Every change is durable when its call returns, and served by all of its workers, unless
    one of them takes more than five seconds."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection."""
        self._transport.close()

    def add_region(self, name: str | None = None) -> int:
        """Defines a region and returns its number, which no other will ever have (Add_Region).

        The paper's regions have no names; without one, a name is made up.
        """
        name = name if name is not None else f"region-{uuid4().hex[:12]}"
        return int(self._transport.call("POST", "/v1/regions", {"name": name}).shape["id"])

    def remove_region(self, region: Region) -> None:
        """Removes a region with its rows; its clients become unclassified (Remove_Region)."""
        number = region if isinstance(region, int) else self._numbers().get(region)
        if number is None:
            raise Refused(404, f"there is no region {region}", ())
        self._transport.call("DELETE", f"/v1/regions/{number}")

    def find_ip_region(self, address: str, partition: str = "default") -> int:
        """Returns the number of the region that an address is in, 0 for none (Find_IP_Region)."""
        wanted = quote(str(parse_address(address)), safe="")
        path = f"/v1/partitions/{quote(partition, safe='')}/lookup?address={wanted}"
        return int(self._transport.call("GET", path).shape["id"])

    def update_prob(self, name: str, rows: Mapping[str, Mapping[Region, Cell]]) -> int:
        """Installs a routing policy for a name and returns the first generation that has it (Update_Prob).

        `rows[server][region]` are the paper's (P, TTL) pairs; region 0 is its default (D, TTL). A server is an address,
        or all of them are names with the final dot: then the policy's are aliases. A policy that is there
        keeps its other names, its partition, how many servers it answers and their probes, also where somebody else
        changes those at the same time; without a policy, one is made. With `Rows` that were read, `Changed` is raised
        where somebody else was quicker.
        """
        names = self._names(rows)
        read = rows.tag if isinstance(rows, Rows) else None
        tries = UPDATE_TRIES
        while True:
            policy, tag = self._policy_or_new(name)
            policy = {**policy, "servers": _servers(policy, rows, names)}
            try:
                seen = tag if read is None else read
                answer = self._transport.call("PUT", _path(name), policy, seen, if_absent=seen is None)
                return int(answer.shape["generation"])
            except Changed:
                tries -= 1
                if read is not None or tries == 0:
                    raise

    def rows(self, name: str) -> Rows:
        """Returns the rows that serve a name."""
        policy, tag = self._policy(name)
        rows = Rows()
        for server in policy["servers"]:
            cells: dict[Region, Cell] = {DEFAULT: Cell(**server.get("default", {}))}
            cells.update((region, Cell(**cell)) for region, cell in server.get("regions", {}).items())
            rows[target_of(server)] = cells
        rows.tag = tag
        return rows

    @contextmanager
    def changing(self, name: str) -> Iterator[Rows]:
        """Gives the rows that serve a name, and installs what they are at the end of the block.

        Where the block raises, nothing is installed: what serves goes on. Where somebody else changed the policy
        meanwhile, `Changed` is raised, and theirs stands.
        """
        rows = self.rows(name)
        before = {server: dict(cells) for server, cells in rows.items()}
        yield rows
        # In their order, too: some policies answer their servers in it.
        if list(rows.items()) != list(before.items()):
            self.update_prob(name, rows)

    def status(self) -> Status:
        """Returns how the name server is doing."""
        shape = self._transport.call("GET", "/v1/status").shape
        return Status(shape["version"], shape["uptime_seconds"], shape["generation"], shape)

    def explain(self, name: str, client: str, qtype: str = "A") -> Explanation:
        """Returns why a client is sent where it is; `qtype` is A or AAAA."""
        body = {"name": name, "client": str(parse_address(client)), "type": qtype}
        return Explanation.read(self._transport.call("POST", "/v1/explain", body).shape)

    def _policy(self, name: str) -> tuple[dict[str, Any], str | None]:
        answer = self._transport.call("GET", _path(name))
        return answer.shape, answer.tag

    def _policy_or_new(self, name: str) -> tuple[dict[str, Any], str | None]:
        """The policy of a name with its tag; one without servers or tag where there is none."""
        try:
            return self._policy(name)
        except Refused as refused:
            if refused.status != 404:
                raise
            return {"names": [name], "servers": []}, None

    def _numbers(self) -> dict[str, int]:
        """The numbers of regions by name."""
        return {region["name"]: region["id"] for region in self._transport.call("GET", "/v1/regions").shape}

    def _names(self, rows: Mapping[str, Mapping[Region, Cell]]) -> dict[Region, str]:
        """The names of regions by number, where numbers are used."""
        if not any(isinstance(region, int) and region != DEFAULT for cells in rows.values() for region in cells):
            return {}
        return {number: name for name, number in self._numbers().items()}


def parse_address(text: str) -> IPv4Address | IPv6Address:
    """Reads an address; raises `Invalid` where it is none."""
    try:
        return ip_address(text)
    except ValueError as cause:
        raise Invalid(str(cause)) from cause


def parse_server(text: str) -> str:
    """Reads a server, an address or a name with the final dot, into its canonical form; raises `Invalid` where it is none."""
    return text.lower() if text.endswith(".") else str(parse_address(text))


def _path(name: str) -> str:
    return "/v1/policies/" + ("=2E" if name == "." else quote(name, safe=""))


def _servers(
    policy: dict[str, Any], rows: Mapping[str, Mapping[Region, Cell]], names: Mapping[Region, str]
) -> list[dict[str, Any]]:
    """The servers of `rows`; what else the policy says of one stays."""
    present = {target_of(server): server for server in policy["servers"]}
    return [
        {
            **present.get(parse_server(server), {}),
            "cname" if server.endswith(".") else "address": server,
            "default": _cell(cells.get(DEFAULT, Cell())),
            "regions": {
                _name(names, region): _cell(cell) for region, cell in cells.items() if region != DEFAULT
            },
        }
        for server, cells in rows.items()
    ]


def _name(names: Mapping[Region, str], region: Region) -> str:
    """The name of a region. A number that is none's is refused here: another region may have it for its name."""
    if isinstance(region, int) and region not in names:
        raise Refused(422, f"there is no region {region}", ())
    return names.get(region, str(region))


def _cell(cell: Cell) -> dict[str, float | int]:
    pairs = {"probability": cell.probability, "ttl": cell.ttl}
    return {key: value for key, value in pairs.items() if value is not None}
