-- Probes: which one each server of a policy is under, and what was last held of it.

ALTER TABLE policy_server ADD COLUMN probe TEXT -- the name of one of the configuration's; NULL = not probed
    CONSTRAINT policy_server_probe_has_1_to_63_characters CHECK (length(probe) BETWEEN 1 AND 63);

-- What probes last held of servers, for the first answers after a start. No generation's business.
CREATE TABLE health (
    server  TEXT    NOT NULL,
    probe   TEXT    NOT NULL,
    failing INTEGER NOT NULL, -- 1 = not drawn, 0 = drawn
    since   INTEGER NOT NULL, -- Unix time of the change, in seconds
    PRIMARY KEY (server, probe),
    CONSTRAINT health_server_is_lower_case CHECK (server = lower(server) AND length(server) BETWEEN 2 AND 45),
    CONSTRAINT health_failing_is_0_or_1 CHECK (failing IN (0, 1))
) STRICT, WITHOUT ROWID;
