"""Sends each region's clients to the servers in proportion to what they have to spare, every ten seconds."""

import json
import sys
import time
import urllib.request

from pointsman import Cell, connect_db

api, name, loads, interval = sys.argv[1:]  # such as http://127.0.0.1:8053 www.example.com http://{}/load 10
with connect_db(api) as db:
    while True:
        with db.changing(name) as rows:
            for server, cells in rows.items():
                load = json.load(urllib.request.urlopen(loads.format(server), timeout=2))
                for region in cells:
                    cells[region] = Cell(probability=max(0.0, 1.0 - float(load)), ttl=30)
        if not float(interval):
            break
        time.sleep(float(interval))
