-- Servers that are names: a policy's names may be aliases. Where an address stands a name may, which is longer.

ALTER TABLE policy_row RENAME TO policy_row_before;
ALTER TABLE policy_server RENAME TO policy_server_before;
ALTER TABLE server RENAME TO server_before;
ALTER TABLE health RENAME TO health_before;

-- A policy's servers, in order, each with its entry of the default column.
CREATE TABLE policy_server (
    policy_id   INTEGER NOT NULL REFERENCES policy (id) ON DELETE CASCADE,
    position    INTEGER NOT NULL,
    address     TEXT    NOT NULL, -- or a name, which ends with a dot: then all servers of the policy are names
    probability REAL,    -- from 0, any scale; NULL = not given
    ttl         INTEGER, -- seconds; NULL = not given
    probe       TEXT,    -- the name of one of the configuration's; NULL = not probed
    PRIMARY KEY (policy_id, address),
    UNIQUE (policy_id, position),
    CONSTRAINT policy_server_position_is_from_0 CHECK (position >= 0),
    CONSTRAINT policy_server_address_is_lower_case
        CHECK (address = lower(address) AND length(address) BETWEEN 1 AND 1024),
    CONSTRAINT policy_server_probability_is_finite_and_from_0
        CHECK (probability >= 0 AND probability <= 1.7976931348623157e308),
    CONSTRAINT policy_server_ttl_is_from_0_to_2147483647 CHECK (ttl BETWEEN 0 AND 2147483647),
    CONSTRAINT policy_server_probe_has_1_to_63_characters CHECK (length(probe) BETWEEN 1 AND 63)
) STRICT, WITHOUT ROWID;

-- One cell of the matrix: a server's entry for one region.
CREATE TABLE policy_row (
    policy_id   INTEGER NOT NULL,
    address     TEXT    NOT NULL,
    region_id   INTEGER NOT NULL REFERENCES region (id),
    probability REAL,    -- from 0, any scale; NULL = not given
    ttl         INTEGER, -- seconds; NULL = not given
    PRIMARY KEY (policy_id, address, region_id),
    FOREIGN KEY (policy_id, address) REFERENCES policy_server (policy_id, address) ON DELETE CASCADE,
    CONSTRAINT policy_row_probability_is_finite_and_from_0
        CHECK (probability >= 0 AND probability <= 1.7976931348623157e308),
    CONSTRAINT policy_row_ttl_is_from_0_to_2147483647 CHECK (ttl BETWEEN 0 AND 2147483647)
) STRICT, WITHOUT ROWID;

-- What an operator set. A server without a row was never set, which means up.
CREATE TABLE server (
    address TEXT    NOT NULL PRIMARY KEY, -- or a name
    up      INTEGER NOT NULL, -- 1 = may be drawn, 0 = never drawn
    CONSTRAINT server_address_is_lower_case
        CHECK (address = lower(address) AND length(address) BETWEEN 1 AND 1024),
    CONSTRAINT server_up_is_0_or_1 CHECK (up IN (0, 1))
) STRICT;

-- What probes last held of servers, for the first answers after a start. No generation's business.
CREATE TABLE health (
    server  TEXT    NOT NULL, -- an address or a name
    probe   TEXT    NOT NULL,
    failing INTEGER NOT NULL, -- 1 = not drawn, 0 = drawn
    since   INTEGER NOT NULL, -- Unix time of the change, in seconds
    PRIMARY KEY (server, probe),
    CONSTRAINT health_server_is_lower_case CHECK (server = lower(server) AND length(server) BETWEEN 1 AND 1024),
    CONSTRAINT health_failing_is_0_or_1 CHECK (failing IN (0, 1))
) STRICT, WITHOUT ROWID;

INSERT INTO policy_server (policy_id, position, address, probability, ttl, probe)
    SELECT policy_id, position, address, probability, ttl, probe FROM policy_server_before;
INSERT INTO policy_row (policy_id, address, region_id, probability, ttl)
    SELECT policy_id, address, region_id, probability, ttl FROM policy_row_before;
INSERT INTO server (address, up) SELECT address, up FROM server_before;
INSERT INTO health (server, probe, failing, since) SELECT server, probe, failing, since FROM health_before;

DROP TABLE policy_row_before;
DROP TABLE policy_server_before;
DROP TABLE server_before;
DROP TABLE health_before;
