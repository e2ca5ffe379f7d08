"""The package on the database POINTSMAN_TEST_STORE, which the name server at POINTSMAN_TEST_API shares."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from pointsman import Cell, Changed, Database, Invalid, PointsmanError, Refused, Region, Unreachable, connect_db
from pointsman.direct import DirectDatabase

NAME = "py.example.com"


@pytest.fixture
def db() -> Iterator[DirectDatabase]:
    with DirectDatabase(os.environ["POINTSMAN_TEST_STORE"]) as db:
        yield db


@pytest.fixture
def server() -> Iterator[Database]:
    with connect_db(os.environ["POINTSMAN_TEST_API"]) as server:
        yield server


def serves(server: Database, generation: int) -> None:
    """Waits until the name server has what was published: a moment later than the tables say."""
    until = time.monotonic() + 30
    while server.status().generation < generation:
        assert time.monotonic() < until


@contextmanager
def spoilt(db: DirectDatabase) -> Iterator[None]:
    """Tables that no name server can serve, by somebody else's policy."""
    with db._change():
        db._install("www.example.org", {"192.0.2.1": {}}, {})
    try:
        yield
    finally:
        with db._change():
            db._run("DELETE FROM policy WHERE id = %s", db._policy_id("www.example.org"))


def write_partition(db: DirectDatabase, name: str, text: str) -> int:
    """Makes a partition as another program would; returns the first generation that has it."""
    with db._change() as change:
        db._run(f"INSERT INTO {db._quote}partition{db._quote} (name, text) VALUES (%s, %s)", name, text)
    return db._published(change[0])


def lose(db: DirectDatabase) -> None:
    """Ends the connection from the side of the database."""
    is_postgres = db._quote == '"'
    mine = db._all("SELECT pg_backend_pid()" if is_postgres else "SELECT connection_id()")[0][0]
    with DirectDatabase(os.environ["POINTSMAN_TEST_STORE"]) as other:
        other._run("SELECT pg_terminate_backend(%s)" if is_postgres else "KILL %s", mine)


def test_the_five_calls(db: DirectDatabase, server: Database) -> None:
    first, second = db.add_region(), db.add_region("from-python")
    assert second > first > 0
    europe = db.find_ip_region("10.1.2.3")
    assert europe > 0 and db.find_ip_region("192.0.2.1") == 0
    generation = db.update_prob(NAME, {"192.0.2.1": {0: Cell(1.0, 60), europe: Cell(0.5, 5), second: Cell(1.0)}})
    assert generation == db.status().generation
    serves(server, generation)
    why = server.explain(NAME, "10.1.2.3")
    assert (why.region, why.ttl) == ("europe", 5)
    db.remove_region("from-python")
    serves(server, db.status().generation)
    assert set(db.rows(NAME)["192.0.2.1"]) == set(server.rows(NAME)["192.0.2.1"]) == {0, "europe"}
    db.remove_region(europe)
    serves(server, db.status().generation)
    assert db.find_ip_region("10.1.2.3") == server.find_ip_region("10.1.2.3") == 0
    with pytest.raises(Refused) as refused:
        db.remove_region(first + 1000)
    assert refused.value.status == 404


def test_servers_may_be_names(db: DirectDatabase, server: Database) -> None:
    cells: dict[Region, Cell] = {0: Cell(1.0, 60)}
    rows = {"WWW.cdn.example.": cells, "www.other.example.": cells}
    serves(server, db.update_prob("alias.example.com", rows))
    assert list(db.rows("alias.example.com")) == list(server.rows("alias.example.com")) == [name.lower() for name in rows]
    with pytest.raises(Refused, match="addresses and names"):
        db.update_prob("alias.example.com", {**rows, "192.0.2.1": cells})


def test_what_cannot_be_served_is_put_back(db: DirectDatabase, server: Database) -> None:
    before = db.update_prob("back.example.com", {"192.0.2.1": {0: Cell(1.0, 60)}})
    with pytest.raises(Refused, match="in none of our zones"):
        db.update_prob("www.example.org", {"192.0.2.1": {0: Cell(1.0)}})
    with pytest.raises(Refused, match="probability_is_finite_and_from_0"):
        db.update_prob("back.example.com", {"192.0.2.1": {0: Cell(-1.0)}})
    serves(server, db.status().generation)
    assert db.rows("back.example.com") == server.rows("back.example.com")
    with pytest.raises(Refused):
        db.rows("www.example.org")
    # What was put back is served, and nothing stands in the way of the next change.
    assert db.update_prob("back.example.com", {"192.0.2.2": {0: Cell(1.0)}}) > before


def test_who_was_quicker_wins(db: DirectDatabase, server: Database) -> None:
    serves(server, db.update_prob("race.example.com", {"192.0.2.1": {0: Cell(1.0, 60)}}))
    with pytest.raises(Changed), db.changing("race.example.com") as rows:
        server.update_prob("race.example.com", {"192.0.2.1": {0: Cell(1.0, 61)}})
        rows["192.0.2.1"] = {0: Cell(1.0, 62)}
    assert db.rows("race.example.com")["192.0.2.1"][0].ttl == 61
    with pytest.raises(PointsmanError):
        db.explain("race.example.com", "10.1.2.3")


def test_what_others_changed_since_is_not_put_back(
    db: DirectDatabase, server: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.update_prob("since.example.com", {"192.0.2.1": {0: Cell(1.0, 60)}})

    def refused(change: int) -> int:
        monkeypatch.undo()
        with DirectDatabase(os.environ["POINTSMAN_TEST_STORE"]) as other:
            other.update_prob("since.example.com", {"192.0.2.3": {0: Cell(1.0, 60)}})
        raise Refused(422, "no name server can serve it", ())

    monkeypatch.setattr(db, "_published", refused)
    with pytest.raises(Refused):
        db.update_prob("since.example.com", {"192.0.2.2": {0: Cell(1.0, 60)}})
    assert list(db.rows("since.example.com")) == ["192.0.2.3"]


def test_probes_are_put_back_too(db: DirectDatabase, server: Database) -> None:
    db.update_prob("probed.example.com", {"192.0.2.1": {0: Cell(1.0)}, "192.0.2.2": {0: Cell(1.0)}})
    with db._change() as change:
        db._run("UPDATE policy_server SET probe = 'web' WHERE policy_id = %s", db._policy_id("probed.example.com"))
    db._published(change[0])
    with spoilt(db):
        with pytest.raises(Refused):
            db.update_prob("probed.example.com", {"192.0.2.3": {0: Cell(1.0)}})
        assert db._probes("probed.example.com") == {"192.0.2.1": "web", "192.0.2.2": "web"}


def test_regions_are_put_back_too(db: DirectDatabase, server: Database) -> None:
    region = db.add_region("asia")
    text = "prefix,region\n10.2.0.0/16,asia\n"
    write_partition(db, "of-asia", text)
    db.update_prob("asia.example.com", {"192.0.2.1": {0: Cell(1.0), "asia": Cell(0.5, 5)}})
    before = db.rows("asia.example.com")
    with spoilt(db):
        with pytest.raises(Refused):
            db.add_region("never")
        with pytest.raises(Refused):
            db.remove_region("asia")
        regions = db._numbers()
        assert "never" not in regions and regions["asia"] == region
        assert db.rows("asia.example.com") == before
        assert db._partitions("of-asia")[0][1] == text
    assert db.add_region("never") > region + 1
    db.remove_region("never")


def test_regions_have_names_that_the_api_takes(db: DirectDatabase, server: Database) -> None:
    for name in ("x\ny", "a,b", "-", "?", " lead", "", "trail\n", "\u00e9", "a" * 64):
        for either in (db, server):
            with pytest.raises(Refused) as refused:
                either.add_region(name)
            assert refused.value.status == 422, name
    db.remove_region(db.add_region("A1_.-" + "a" * 58))


def test_a_partition_is_read_as_the_name_server_does(db: DirectDatabase, server: Database) -> None:
    region = db.add_region("region")
    text = "\ufeff# ours\x0cnot a line\r\nPrefix, Region\r\n@region,192.0.2.1,1\n 10.3.0.0/16 , region\n10.3.4.0/24,-\n"
    text += "::ffff:10.4.0.0/112,region\n::/0,-\n"
    serves(server, write_partition(db, "written", text))
    for address in ("10.3.1.1", "10.3.4.1", "192.0.2.1", "10.4.1.1", "::ffff:10.4.1.1"):
        assert db.find_ip_region(address, "written") == server.find_ip_region(address, "written")
    assert db.find_ip_region("10.3.1.1", "written") == db.find_ip_region("10.4.1.1", "written") == region
    db.remove_region("region")
    assert db.find_ip_region("10.3.1.1", "written") == 0


def test_what_is_nonsense_is_an_error_of_ours(db: DirectDatabase) -> None:
    with db._change():
        db._run(f"INSERT INTO {db._quote}partition{db._quote} (name, text) VALUES ('bad', '10.0.0.1/8,-')")
    with pytest.raises(PointsmanError, match="the partition bad"):
        db.find_ip_region("10.1.2.3", "bad")
    with db._change():
        db._run(f"DELETE FROM {db._quote}partition{db._quote} WHERE name = 'bad'")
    with pytest.raises(PointsmanError):
        db.find_ip_region("nowhere")
    with pytest.raises(PointsmanError):
        db.update_prob(NAME, {"nowhere": {0: Cell(1.0)}})
    absurd: tuple[Any, ...] = (Cell(float("nan")), Cell(float("inf")))
    # What a type checker would have told.
    unlike: tuple[Any, ...] = (("1",), (True,), (1, 1.5), (1, "60"), (1, True))
    for cell in absurd + tuple(Cell(*given) for given in unlike):
        with pytest.raises(Invalid):
            db.update_prob(NAME, {"192.0.2.1": {0: cell}})


def test_who_only_reordered_was_quicker_too(db: DirectDatabase, server: Database) -> None:
    cells: dict[Region, Cell] = {0: Cell(1.0, 60)}
    serves(server, db.update_prob("order.example.com", {"192.0.2.1": cells, "192.0.2.2": cells}))
    with pytest.raises(Changed), db.changing("order.example.com") as rows:
        with server.changing("order.example.com") as theirs:
            theirs["192.0.2.1"] = theirs.pop("192.0.2.1")
        rows["192.0.2.1"] = {0: Cell(1.0, 62)}
    assert list(db.rows("order.example.com")) == ["192.0.2.2", "192.0.2.1"]


def test_who_holds_the_tables_is_not_waited_for_long(db: DirectDatabase) -> None:
    is_postgres = db._quote == '"'
    shown = db._all("SHOW lock_timeout" if is_postgres else "SELECT @@innodb_lock_wait_timeout")[0][0]
    assert str(shown).removesuffix("s") == "30"
    db._run("SET lock_timeout = '1ms'" if is_postgres else "SET innodb_lock_wait_timeout = 0")
    db._connection.commit()
    with DirectDatabase(os.environ["POINTSMAN_TEST_STORE"]) as other, other._change():
        with pytest.raises(Unreachable, match="somebody else"):
            db.update_prob(NAME, {"192.0.2.1": {0: Cell(1.0, 60)}})
    db.update_prob(NAME, {"192.0.2.1": {0: Cell(1.0, 60)}})


def test_a_lost_connection_is_made_again(db: DirectDatabase) -> None:
    lose(db)
    generation = db.status().generation
    lose(db)
    assert db.update_prob("lost.example.com", {"192.0.2.1": {0: Cell(1.0, 60)}}) > generation
    # Behind the first statement nothing is done twice.
    with pytest.raises(Unreachable), db._change():
        lose(db)
        db._run("DELETE FROM policy WHERE id = %s", db._policy_id("lost.example.com"))
    assert db.rows("lost.example.com")["192.0.2.1"][0].ttl == 60
