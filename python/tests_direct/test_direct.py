"""The package on the database POINTSMAN_TEST_STORE, which the name server at POINTSMAN_TEST_API shares."""

import os
import time
from collections.abc import Iterator

import pytest

from pointsman import Cell, Changed, Database, PointsmanError, Refused, connect_db

NAME = "py.example.com"


@pytest.fixture
def db() -> Iterator[Database]:
    with connect_db(os.environ["POINTSMAN_TEST_STORE"]) as db:
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


def test_the_five_calls(db: Database, server: Database) -> None:
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


def test_what_cannot_be_served_is_put_back(db: Database, server: Database) -> None:
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


def test_who_was_quicker_wins(db: Database, server: Database) -> None:
    serves(server, db.update_prob("race.example.com", {"192.0.2.1": {0: Cell(1.0, 60)}}))
    with pytest.raises(Changed), db.changing("race.example.com") as rows:
        server.update_prob("race.example.com", {"192.0.2.1": {0: Cell(1.0, 61)}})
        rows["192.0.2.1"] = {0: Cell(1.0, 62)}
    assert db.rows("race.example.com")["192.0.2.1"][0].ttl == 61
    with pytest.raises(PointsmanError):
        db.explain("race.example.com", "10.1.2.3")
