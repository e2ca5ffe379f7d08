"""The package against a name server at POINTSMAN_TEST_API whose partition `default` has 10.0.0.0/8 in europe.

Its configuration has a probe `web`.
"""

import os
from collections.abc import Iterator
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any, cast

import pytest

from pointsman import Cell, Changed, Database, Invalid, PointsmanError, Refused, Region, Rows, Unreachable, connect_db

NAME = "py.example.com"


@pytest.fixture
def db() -> Iterator[Database]:
    with connect_db(os.environ["POINTSMAN_TEST_API"]) as db:
        yield db


@pytest.fixture
def rows(db: Database) -> Rows:
    first: dict[Region, Cell] = {0: Cell(1.0, 60), "europe": Cell(0.25, 30)}
    db.update_prob(NAME, {"192.0.2.1": first, "192.0.2.2": {0: Cell(0.0), "europe": Cell(0.75, 20)}})
    return db.rows(NAME)


def test_the_five_calls(db: Database) -> None:
    first, second = db.add_region(), db.add_region("from-python")
    assert second > first > 0
    europe = db.find_ip_region("10.1.2.3")
    assert europe > 0 and db.find_ip_region("192.0.2.1") == 0
    before = db.status().generation
    generation = db.update_prob("five.example.com", {"192.0.2.1": {0: Cell(1), europe: Cell(1, 5), second: Cell(1)}})
    assert generation == db.status().generation == before + 1
    assert set(db.rows("five.example.com")["192.0.2.1"]) == {0, "europe", "from-python"}
    # A region takes its rows with it.
    db.remove_region("from-python")
    assert set(db.rows("five.example.com")["192.0.2.1"]) == {0, "europe"}
    db.remove_region(first)
    with pytest.raises(Refused) as refused:
        db.remove_region(first)
    assert refused.value.status == 404
    with pytest.raises(Refused) as refused:
        db.remove_region("nowhere")
    assert refused.value.status == 404


def test_rows_are_read_as_they_were_written(db: Database, rows: Rows) -> None:
    assert rows == {
        "192.0.2.1": {0: Cell(1.0, 60), "europe": Cell(0.25, 30)},
        "192.0.2.2": {0: Cell(0.0), "europe": Cell(0.75, 20)},
    }
    why = db.explain(NAME, "10.1.2.3")
    assert why.region == "europe" and why.probabilities == pytest.approx({"192.0.2.1": 0.25, "192.0.2.2": 0.75}, 1e-6)
    assert [server.ttl for server in why.row] == [30, 20]
    assert db.status().all["counts"]["policies"] >= 1


def test_an_algorithm_that_raises_leaves_what_serves(db: Database, rows: Rows) -> None:
    generation = db.status().generation
    with pytest.raises(ZeroDivisionError), db.changing(NAME) as changed:
        changed["192.0.2.1"]["europe"] = Cell(0.0)
        changed["192.0.2.2"]["europe"] = Cell(1 / 0)
    assert db.rows(NAME) == rows and db.status().generation == generation
    with db.changing(NAME):
        pass
    assert db.status().generation == generation, "nothing changed, nothing is installed"


def test_what_is_absurd_is_refused_whole(db: Database, rows: Rows) -> None:
    for absurd in (float("nan"), float("inf"), cast("float", Decimal("0.5"))):
        with pytest.raises(ValueError), db.changing(NAME) as changed:
            changed["192.0.2.1"]["europe"] = Cell(absurd)
    with pytest.raises(Refused) as refused, db.changing(NAME) as changed:
        changed["192.0.2.1"]["europe"] = Cell(-1.0)
        changed["192.0.2.2"]["atlantis"] = Cell(1.0)
    assert refused.value.status == 422
    assert "-1" in str(refused.value), str(refused.value)
    with pytest.raises(Refused) as refused, db.changing(NAME) as changed:
        changed["192.0.2.2"]["atlantis"] = Cell(1.0)
    assert refused.value.faults and "atlantis" in str(refused.value)
    assert db.rows(NAME) == rows
    with pytest.raises(Invalid):
        db.find_ip_region("nowhere")
    with pytest.raises(Invalid):
        db.explain(NAME, "nowhere")


def test_a_change_keeps_probes(db: Database, rows: Rows) -> None:
    policy = db._policy(NAME)[0]
    addresses = ("192.0.2.1", "2001:db8::1")
    policy["servers"] = [{"address": address, "probe": "web"} for address in addresses]
    db._transport.call("PUT", f"/v1/policies/{NAME}", policy)
    with db.changing(NAME) as changed:
        changed["192.0.2.1"]["europe"] = Cell(0.5)
        changed["2001:DB8:0::1"] = changed.pop("2001:db8::1")
        changed["192.0.2.3"] = {0: Cell(1.0)}
    probes = [(server["address"], server.get("probe")) for server in db._policy(NAME)[0]["servers"]]
    assert probes == [("192.0.2.1", "web"), ("2001:db8::1", "web"), ("192.0.2.3", None)]


def test_servers_may_be_names(db: Database) -> None:
    name = "alias.example.com"
    db.update_prob(name, {"WWW.cdn.example.": {0: Cell(1.0, 60)}, "www.other.example.": {0: Cell(0.0), "europe": Cell(1.0)}})
    assert list(db.rows(name)) == ["www.cdn.example.", "www.other.example."]
    with db.changing(name) as changed:
        changed["www.other.example."][0] = Cell(1.0)
    assert db._policy(name)[0]["servers"][1]["cname"] == "www.other.example."
    row = db.explain(name, "192.0.2.1").row
    assert [(server.address, server.probability) for server in row] == [("www.cdn.example.", 0.5), ("www.other.example.", 0.5)]
    with pytest.raises(Refused, match="addresses and names"), db.changing(name) as changed:
        changed["192.0.2.1"] = {0: Cell(1.0)}


def test_the_order_of_servers_is_a_change_too(db: Database, rows: Rows) -> None:
    with db.changing(NAME) as changed:
        changed["192.0.2.1"] = changed.pop("192.0.2.1")
    assert list(db.rows(NAME)) == ["192.0.2.2", "192.0.2.1"]


def test_whoever_was_quicker_stands(db: Database, rows: Rows) -> None:
    with pytest.raises(Changed), db.changing(NAME) as mine:
        mine["192.0.2.1"][0] = Cell(0.5)
        with db.changing(NAME) as theirs:
            theirs["192.0.2.1"][0] = Cell(0.125)
    assert db.rows(NAME)["192.0.2.1"][0] == Cell(0.125)


def test_what_others_change_beside_the_rows_stays(
    db: Database, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = db._policy

    def overtaken(name: str) -> tuple[dict[str, Any], str | None]:
        monkeypatch.undo()
        policy, tag = read(name)
        db._transport.call("PUT", f"/v1/policies/{NAME}", {**policy, "answers": 2})
        return policy, tag

    monkeypatch.setattr(db, "_policy", overtaken)
    cells: dict[Region, Cell] = {0: Cell(0.5, 60)}
    db.update_prob(NAME, {"192.0.2.1": cells, "192.0.2.2": cells})
    assert db._policy(NAME)[0]["answers"] == 2
    assert db.rows(NAME) == {"192.0.2.1": cells, "192.0.2.2": cells}


def test_what_another_made_meanwhile_is_kept(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "made.example.com"
    read = db._policy_or_new

    def overtaken(name: str) -> tuple[dict[str, Any], str | None]:
        monkeypatch.undo()
        policy, tag = read(name)
        server = {"address": "192.0.2.9", "default": {"probability": 1.0, "ttl": 60}}
        db._transport.call("PUT", f"/v1/policies/{name}", {**policy, "answers": 2, "servers": [server]})
        return policy, tag

    monkeypatch.setattr(db, "_policy_or_new", overtaken)
    cells: dict[Region, Cell] = {0: Cell(0.5, 60)}
    db.update_prob(name, {"192.0.2.1": cells, "192.0.2.2": cells})
    assert db._policy(name)[0]["answers"] == 2
    assert db.rows(name) == {"192.0.2.1": cells, "192.0.2.2": cells}


def test_who_is_no_name_server_is_told_apart() -> None:
    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(502)
            self.end_headers()
            self.wfile.write(b'["bad gateway"]')

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Other) as other:
        thread = Thread(target=other.handle_request)
        thread.start()
        with connect_db(f"http://127.0.0.1:{other.server_port}") as db, pytest.raises(Refused, match="bad gateway"):
            db.status()
        thread.join()


def test_nobody_there() -> None:
    with connect_db("http://127.0.0.1:9") as db, pytest.raises(Unreachable):
        db.status()


def test_what_is_nonsense_is_an_error_of_ours(db: Database) -> None:
    for call in (
        lambda: connect_db("http://127.0.0.1:9", "t\u00f6ken"),
        lambda: connect_db("http://[::1"),
        lambda: connect_db("postgres://127.0.0.1:port/store"),
        lambda: connect_db("mysql://127.0.0.1/store?ssl=1"),
        lambda: db.find_ip_region("nowhere"),
        lambda: db.update_prob(NAME, {"nowhere": {0: Cell(1.0)}}),
    ):
        with pytest.raises(PointsmanError):
            call()
