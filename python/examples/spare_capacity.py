"""Sends each region's clients to the servers in proportion to what they have to spare, every ten seconds."""

import sys
import time
from urllib.request import urlopen

from pointsman import Cell, PointsmanError, connect_db

api, name, loads, interval = sys.argv[1:]  # such as http://127.0.0.1:8053 www.example.com http://{}/load 10
with connect_db(api) as db:
    while True:
        try:
            with db.changing(name) as rows:
                for server, cells in rows.items():
                    try:
                        load = round(100 * float(urlopen(loads.format(server), timeout=2).read())) / 100  # not NaN
                        for region in cells:
                            cells[region] = Cell(probability=max(0.0, 1.0 - load), ttl=30)
                    except (OSError, ValueError, OverflowError) as cause:
                        print(f"{server} keeps its shares: {cause}", file=sys.stderr)
        except PointsmanError as cause:
            print(f"{name} keeps its rows: {cause}", file=sys.stderr)
        time.sleep(float(interval) or sys.exit())  # 0: once
