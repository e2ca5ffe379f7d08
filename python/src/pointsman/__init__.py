"""Decides where Pointsman's name servers send clients.

- `connect_db` begins; the calls of the MyXDNS paper are methods of what it returns.
- `direct` has the same calls on the database that name servers share.
- `shapes` has what goes in and out, `transport` the HTTP beneath.
"""

from pointsman.database import Database, connect_db
from pointsman.shapes import Cell, Explanation, Fault, Region, Rows, RowServer, Status
from pointsman.transport import Changed, Invalid, PointsmanError, Refused, Unreachable

__all__ = [
    "Cell",
    "Changed",
    "Database",
    "Explanation",
    "Fault",
    "Invalid",
    "PointsmanError",
    "Refused",
    "Region",
    "RowServer",
    "Rows",
    "Status",
    "Unreachable",
    "connect_db",
]
