"""The same calls on the database that name servers share, without a name server between.

What is changed is in the tables first; a name server validates it and publishes it. The tables are documented in
docs/reference/shared-store.md.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from importlib import import_module
from ipaddress import IPv4Network, IPv6Network, ip_network
from math import isfinite
from typing import Any
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit
from uuid import uuid4

from pointsman.database import Database, parse_address, parse_server
from pointsman.shapes import DEFAULT, Cell, Explanation, Region, Rows, Status
from pointsman.transport import ANSWER_WAIT, Changed, Invalid, PointsmanError, Refused, Unreachable

PUBLISHED_WAIT = 10.0
"""How long a change may take from the tables to the first name server that serves it, in seconds."""

LOOK_INTERVAL = 0.005
"""How often it is looked whether a change is published, in seconds."""

REGION_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
"""The names that a region can have, as the API has it: others could not stand in a partition."""


class DirectDatabase(Database):
    """The tables that name servers share. A change returns when one of them has published it;
    each serves it within milliseconds of that."""

    def __init__(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            given: dict[str, Any] = {"host": parts.hostname, "user": unquote(parts.username or "") or None}
            given |= {"password": unquote(parts.password) if parts.password else None, "port": parts.port}
        except ValueError as cause:
            raise Invalid(f"this is no URL of a database: {cause}") from cause
        given = {key: value for key, value in given.items() if value is not None}
        self._connection: Any = None
        self._open = self._opener(parts, given)
        self._connect()

    def _opener(self, parts: SplitResult, given: dict[str, Any]) -> Callable[[], Any]:
        """What opens a connection, by the driver of the URL's database."""
        name = unquote(parts.path.strip("/"))
        is_postgres = parts.scheme in ("postgres", "postgresql")
        options = {key: values[-1] for key, values in parse_qs(parts.query).items()}
        if options and not is_postgres:
            raise Invalid(f"options of MariaDB's URL are not understood here: {parts.query}")
        try:
            self._driver = import_module("psycopg" if is_postgres else "pymysql")
        except ModuleNotFoundError as cause:
            extra = "postgres" if is_postgres else "mysql"
            raise PointsmanError(f"{cause.name} is needed for this: pip install 'pointsman[{extra}]'") from cause
        self._place, self._quote = parts.hostname, '"' if is_postgres else "`"
        wait = int(ANSWER_WAIT)
        named: dict[str, Any] = {"connect_timeout": wait}
        if is_postgres:
            named |= {"dbname": name, "tcp_user_timeout": wait * 1000}
        else:
            # What comes of a lock the database tells itself, first.
            named |= {"database": name, "charset": "utf8mb4", "read_timeout": wait + 2, "write_timeout": wait}
        return lambda: self._driver.connect(**{**named, **given, **options})

    def close(self) -> None:
        """Closes the connection."""
        with suppress(self._driver.Error):
            self._connection.close()

    def add_region(self, name: str | None = None) -> int:
        """Defines a region and returns its number, which no other will ever have (Add_Region)."""
        name = name if name is not None else f"region-{uuid4().hex[:12]}"
        if not REGION_NAME.fullmatch(name):
            expected = "at most 63 letters, digits, '-', '_' or '.', a letter or digit first"
            raise Invalid(f"{name!r} is no name for a region; expected {expected}")
        with self._change() as change:
            number = int(self._all("SELECT coalesce(max(id), 0) + 1 FROM region")[0][0])
            self._run("INSERT INTO region (id, name) VALUES (%s, %s)", number, name)
        # Its number stays taken: somebody may have seen it.
        self._published_or(change[0], lambda: self._take_out(number))
        return number

    def remove_region(self, region: Region) -> None:
        """Removes a region with its rows; its clients become unclassified (Remove_Region)."""
        partition = f"{self._quote}partition{self._quote}"
        with self._change() as change:
            numbers = {number: name for name, number in self._numbers().items()}
            number = region if isinstance(region, int) else self._numbers().get(region, DEFAULT)
            if number not in numbers:
                raise Refused(404, f"there is no region {region}", ())
            columns = "policy_id, address, region_id, probability, ttl"
            cells = self._all(f"SELECT {columns} FROM policy_row WHERE region_id = %s", number)
            self._run("DELETE FROM policy_row WHERE region_id = %s", number)
            self._take_out(number)
            texts = [(name, text, _without(text, numbers[number])) for name, text in self._partitions()]
            texts = [(name, text, without) for name, text, without in texts if without != text]
            replace = f"UPDATE {partition} SET text = %s WHERE name = %s AND text = %s"
            for name, text, without in texts:
                self._run(replace, without, name, text)

        def put_back() -> None:
            self._run("UPDATE region SET removed_in = NULL WHERE id = %s", number)
            for cell in cells:
                self._run(f"INSERT INTO policy_row ({columns}) VALUES (%s, %s, %s, %s, %s)", *cell)
            for name, text, without in texts:
                self._run(replace, text, name, without)

        self._published_or(change[0], put_back)

    def find_ip_region(self, address: str, partition: str = "default") -> int:
        """Returns the number of the region that an address is in, 0 for none (Find_IP_Region)."""
        wanted, best, found = parse_address(address), -1, DEFAULT
        with self._reading():
            texts = dict(self._partitions(partition))
            numbers = self._numbers()
        if partition not in texts:
            if partition == "default":
                return DEFAULT
            raise Refused(404, f"there is no partition {partition}", ())
        for prefix, region in filter(None, map(_entry, texts[partition].split("\n"))):
            try:
                network = _network(prefix)
            except ValueError as cause:
                raise PointsmanError(f"the partition {partition} cannot be read: {cause}") from cause
            if network.version == wanted.version and network.prefixlen > best and wanted in network:
                best, found = network.prefixlen, numbers.get(region, DEFAULT)
        return found

    def update_prob(self, name: str, rows: Mapping[str, Mapping[Region, Cell]]) -> int:
        """Installs a routing policy for a name and returns the first generation that has it (Update_Prob).

        As over the API. Where no name server can serve it, what there was is put back, unless somebody else has changed
        it since, and `Refused` is raised.
        """
        for cells in rows.values():
            for cell in cells.values():
                if not _is_number(cell.probability, int, float):
                    raise Invalid(f"the probability {cell.probability!r} is no number")
                if not _is_number(cell.ttl, int):
                    raise Invalid(f"the TTL {cell.ttl!r} is no whole number")
        with self._change() as change:
            before, probes = self._stored(name), self._probes(name)
            if isinstance(rows, Rows) and rows.tag is not None and rows.tag != _tag(before):
                raise Changed(412, "it has changed meanwhile; get it again", ())
            self._install(name, rows, probes)
            installed = _tag(self._stored(name))

        def put_back() -> None:
            if _tag(self._stored(name)) != installed:
                return
            if before is None:
                self._run("DELETE FROM policy WHERE id = %s", self._policy_id(name))
            else:
                self._install(name, before, probes)

        return self._published_or(change[0], put_back)

    def rows(self, name: str) -> Rows:
        """Returns the rows of a name as the tables have them."""
        with self._reading():
            rows = self._stored(name)
        if rows is None:
            raise Refused(404, f"there is no policy {name}", ())
        rows.tag = _tag(rows)
        return rows

    def status(self) -> Status:
        """A database has no version and no uptime: its current generation alone."""
        with self._reading():
            generation = int(self._all("SELECT coalesce(max(number), 0) FROM generation")[0][0])
        return Status("", 0, generation, {"generation": generation})

    def explain(self, name: str, client: str, qtype: str = "A") -> Explanation:
        """Only a name server decides: ask one, over its API."""
        raise PointsmanError("the database does not decide: ask a name server, by the URL of its API")

    def _install(
        self, name: str, rows: Mapping[str, Mapping[Region, Cell]], probes: Mapping[str, str | None]
    ) -> None:
        numbers = self._numbers()
        policy = self._policy_id(name)
        if policy is None:
            columns = f"answers, when_all_down, {self._quote}partition{self._quote}"
            made = f"INSERT INTO policy ({columns}) VALUES (1, 'answer', 'default') RETURNING id"
            policy = int(self._all(made)[0][0])
            self._run("INSERT INTO policy_name (policy_id, position, name) VALUES (%s, 0, %s)", policy, _absolute(name))
        self._run("DELETE FROM policy_server WHERE policy_id = %s", policy)
        for position, (server, cells) in enumerate(rows.items()):
            address = parse_server(server)
            cell = cells.get(DEFAULT, Cell())
            text = "INSERT INTO policy_server (policy_id, position, address, probe, probability, ttl) VALUES (%s, %s, %s, %s, %s, %s)"
            self._run(text, policy, position, address, probes.get(address), cell.probability, cell.ttl)
            for region, cell in cells.items():
                number = region if isinstance(region, int) else numbers.get(region)
                if number is None:
                    raise Refused(422, f"there is no region {region!r}", ())
                if number != DEFAULT:
                    text = "INSERT INTO policy_row (policy_id, address, region_id, probability, ttl) VALUES (%s, %s, %s, %s, %s)"
                    self._run(text, policy, address, number, cell.probability, cell.ttl)

    def _stored(self, name: str) -> Rows | None:
        policy = self._policy_id(name)
        if policy is None:
            return None
        rows = Rows()
        text = "SELECT address, probability, ttl FROM policy_server WHERE policy_id = %s ORDER BY position"
        for address, probability, ttl in self._all(text, policy):
            rows[address] = {DEFAULT: Cell(probability, ttl)}
        text = (
            "SELECT c.address, r.name, c.probability, c.ttl FROM policy_row c JOIN region r ON r.id = c.region_id "
            "WHERE c.policy_id = %s ORDER BY r.id"
        )
        for address, region, probability, ttl in self._all(text, policy):
            rows[address][region] = Cell(probability, ttl)
        return rows

    def _probes(self, name: str) -> dict[str, str | None]:
        """The names of a policy's probes by server."""
        text = "SELECT address, probe FROM policy_server WHERE policy_id = %s"
        return dict(self._all(text, self._policy_id(name)))

    def _partitions(self, name: str | None = None) -> Sequence[tuple[str, str]]:
        """The names and texts of all partitions, or of one."""
        text = f"SELECT name, text FROM {self._quote}partition{self._quote} WHERE name = coalesce(%s, name)"
        return self._all(text, name)

    def _take_out(self, region: int) -> None:
        gone = "UPDATE region SET removed_in = (SELECT coalesce(max(number), 0) + 1 FROM generation) WHERE id = %s"
        self._run(gone, region)

    def _policy_id(self, name: str) -> int | None:
        found = self._all("SELECT policy_id FROM policy_name WHERE name = %s AND position = 0", _absolute(name))
        return int(found[0][0]) if found else None

    def _numbers(self) -> dict[str, int]:
        return {name: int(number) for name, number in self._all("SELECT name, id FROM region WHERE removed_in IS NULL")}

    def _published(self, change: int) -> int:
        """Waits until a change is published; returns the first generation that has it."""
        until = time.monotonic() + PUBLISHED_WAIT
        while time.monotonic() < until:
            with self._reading():
                found = self._all("SELECT min(number) FROM generation WHERE changes >= %s", change)[0][0]
                if found is not None:
                    return int(found)
                refused = self._all("SELECT what FROM refusal WHERE changes >= %s ORDER BY changes LIMIT 1", change)
            if refused:
                raise Refused(422, f"no name server can serve it: {refused[0][0]}", ())
            time.sleep(LOOK_INTERVAL)
        raise Unreachable("the change is in the tables, and no name server has published it yet")

    def _published_or(self, change: int, put_back: Callable[[], None]) -> int:
        """As `_published`; what no name server can serve is put back."""
        try:
            return self._published(change)
        except Refused:
            with self._change():
                put_back()
            raise

    @contextmanager
    def _change(self) -> Iterator[list[int]]:
        """A transaction that nobody else changes anything in; afterwards, the number of its last change is in the list."""
        number: list[int] = []
        try:
            self._begin("SELECT changes FROM writer FOR UPDATE")
            yield number
            number.append(int(self._all("SELECT changes FROM writer")[0][0]))
            self._connection.commit()
        except self._driver.Error as cause:
            if self._is_lost():
                raise Unreachable(f"the database was lost; of the change nothing is known: {cause}") from cause
            self._roll_back()
            if _is_locked(cause):
                raise Unreachable(f"somebody else keeps the tables locked: {cause}") from cause
            raise Refused(422, f"the tables refuse it: {cause}", ()) from cause
        except BaseException:
            self._roll_back()
            raise

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            self._begin("SELECT 1")
            yield
        except self._driver.Error as cause:
            raise Unreachable(f"the database was lost: {cause}") from cause
        finally:
            self._roll_back()

    def _begin(self, text: str) -> None:
        """The first statement of a transaction; where the connection was lost before it, on a new one.

        Only the first is ever repeated: behind it, nobody knows what has been done.
        """
        try:
            self._all(text)
        except self._driver.Error:
            if not self._is_lost():
                raise
            self._connect()
            self._all(text)

    def _connect(self) -> None:
        try:
            self._connection = self._open()
            is_postgres, wait = self._quote == '"', int(ANSWER_WAIT)
            self._run(f"SET lock_timeout = '{wait}s'" if is_postgres else f"SET innodb_lock_wait_timeout = {wait}")
            # What is set in a transaction that is rolled back is set no more.
            self._connection.commit()
        except self._driver.Error as cause:
            raise Unreachable(f"the database at {self._place} cannot be reached: {cause}") from cause

    def _is_lost(self) -> bool:
        connection = self._connection
        return bool(connection.closed) if hasattr(connection, "closed") else not connection.open

    def _roll_back(self) -> None:
        """Ends a transaction; with a lost connection it has ended."""
        with suppress(self._driver.Error):
            self._connection.rollback()

    def _all(self, text: str, *values: Any) -> Sequence[Any]:
        with self._connection.cursor() as cursor:
            cursor.execute(text, values)
            found: Sequence[Any] = cursor.fetchall()
            return found

    def _run(self, text: str, *values: Any) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(text, values)


def _is_number(value: object, *kinds: type) -> bool:
    """Whether this is nothing, or a number of these kinds; what is merely like one, such as `True`, the API refuses, too."""
    is_finite = not isinstance(value, float) or isfinite(value)
    return value is None or (isinstance(value, kinds) and not isinstance(value, bool) and is_finite)


def _is_locked(cause: Exception) -> bool:
    """Whether a statement ended since another transaction held what it needed for too long."""
    return getattr(cause, "sqlstate", None) == "55P03" or cause.args[:1] == (1205,)


def _absolute(name: str) -> str:
    name = name.lower()
    return name if name.endswith(".") else name + "."


def _tag(rows: Rows | None) -> str:
    """Stands for rows and for the order of their servers, in which some policies answer them."""
    return sha256(repr(rows).encode()).hexdigest()


def _entry(line: str) -> tuple[str, str] | None:
    """The prefix and the region of a line; `None` where it is a header, a comment, a rank or empty."""
    prefix, _, region = (part.strip() for part in line.removeprefix("\ufeff").partition(","))
    is_header = (prefix.lower(), region.lower()) == ("prefix", "region")
    return None if is_header or prefix[:1] in ("", "#", "@") else (prefix, region)


def _network(prefix: str) -> IPv4Network | IPv6Network:
    """Reads a prefix as the name server does: one of IPv4-mapped addresses is that of the IPv4 addresses."""
    network = ip_network(prefix)
    mapped = network.network_address.ipv4_mapped if isinstance(network, IPv6Network) else None
    return network if mapped is None or network.prefixlen < 96 else IPv4Network((mapped, network.prefixlen - 96))


def _without(text: str, region: str) -> str:
    """A partition's text in which a region's prefixes are unclassified, and its ranks are gone."""
    lines = []
    for line in text.split("\n"):
        prefix, entry = line.partition(",")[0], _entry(line)
        if prefix.strip() == f"@{region}":
            continue
        lines.append(f"{prefix},-" if entry and entry[1] == region else line)
    return "\n".join(lines)
