-- The store's tables, first version. docs/reference/store.md explains each column at length.
--
-- Names of zones and policies are absolute, in lower case, with the final dot. Addresses are written as
-- RFC 5952 has it. "partition" is quoted because it is a reserved word elsewhere. A released migration
-- is never edited: the program compares its checksum and refuses a store that was made by another one.

-- One row per published generation, oldest first removed. The highest number is the current one, and
-- the primary key lets one writer publish a number, never two.
CREATE TABLE generation (
    number INTEGER NOT NULL PRIMARY KEY,
    at     INTEGER NOT NULL, -- Unix time of the commit, in seconds
    what   TEXT    NOT NULL, -- what changed, in words, shortened
    CONSTRAINT generation_number_is_positive CHECK (number >= 1)
) STRICT;

CREATE TABLE zone (
    origin TEXT NOT NULL PRIMARY KEY,
    text   BLOB NOT NULL, -- canonical master file: 4 bytes length (little endian), then one LZ4 block
    CONSTRAINT zone_origin_is_absolute_and_lower_case
        CHECK (origin = lower(origin) AND origin LIKE '%.' AND length(origin) <= 1024)
) STRICT;

-- A removed region keeps its row, so that its id is never given to another.
CREATE TABLE region (
    id         INTEGER NOT NULL PRIMARY KEY, -- 0 means unclassified and has no row
    name       TEXT    NOT NULL,
    removed_in INTEGER,                      -- the generation that removed it; NULL while in use
    CONSTRAINT region_id_is_from_1_to_2147483647 CHECK (id BETWEEN 1 AND 2147483647),
    CONSTRAINT region_name_has_1_to_255_characters CHECK (length(name) BETWEEN 1 AND 255)
) STRICT;
CREATE UNIQUE INDEX region_name ON region (name) WHERE removed_in IS NULL;

CREATE TABLE "partition" (
    name TEXT NOT NULL PRIMARY KEY,
    text BLOB NOT NULL, -- the source as it was given, packed as zone.text is
    CONSTRAINT partition_name_has_1_to_255_characters CHECK (length(name) BETWEEN 1 AND 255)
) STRICT;

CREATE TABLE policy (
    id            INTEGER NOT NULL PRIMARY KEY,
    answers       INTEGER NOT NULL, -- how many servers an answer holds; 0 = all
    when_all_down TEXT    NOT NULL, -- 'answer' = as if all were up; 'empty' = no address
    "partition"   TEXT    NOT NULL, -- the partition that tells a client's region; may be unknown here
    CONSTRAINT policy_answers_is_from_0_to_65535 CHECK (answers BETWEEN 0 AND 65535),
    CONSTRAINT policy_when_all_down_is_answer_or_empty CHECK (when_all_down IN ('answer', 'empty')),
    CONSTRAINT policy_partition_has_1_to_255_characters CHECK (length("partition") BETWEEN 1 AND 255)
) STRICT;

-- The owner names that a policy serves; the one at position 0 is the policy's key.
CREATE TABLE policy_name (
    policy_id INTEGER NOT NULL REFERENCES policy (id) ON DELETE CASCADE,
    position  INTEGER NOT NULL,
    name      TEXT    NOT NULL UNIQUE,
    PRIMARY KEY (policy_id, position),
    CONSTRAINT policy_name_position_is_from_0 CHECK (position >= 0),
    CONSTRAINT policy_name_is_absolute_and_lower_case
        CHECK (name = lower(name) AND name LIKE '%.' AND length(name) <= 1024)
) STRICT, WITHOUT ROWID;

-- A policy's servers, in order, each with its entry of the default column.
CREATE TABLE policy_server (
    policy_id   INTEGER NOT NULL REFERENCES policy (id) ON DELETE CASCADE,
    position    INTEGER NOT NULL,
    address     TEXT    NOT NULL,
    probability REAL,    -- from 0, any scale; NULL = not given
    ttl         INTEGER, -- seconds; NULL = not given
    PRIMARY KEY (policy_id, address),
    UNIQUE (policy_id, position),
    CONSTRAINT policy_server_position_is_from_0 CHECK (position >= 0),
    CONSTRAINT policy_server_address_is_lower_case
        CHECK (address = lower(address) AND length(address) BETWEEN 2 AND 45),
    CONSTRAINT policy_server_probability_is_finite_and_from_0
        CHECK (probability >= 0 AND probability <= 1.7976931348623157e308),
    CONSTRAINT policy_server_ttl_is_from_0_to_2147483647 CHECK (ttl BETWEEN 0 AND 2147483647)
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
    address TEXT    NOT NULL PRIMARY KEY,
    up      INTEGER NOT NULL, -- 1 = may be drawn, 0 = never drawn
    CONSTRAINT server_address_is_lower_case
        CHECK (address = lower(address) AND length(address) BETWEEN 2 AND 45),
    CONSTRAINT server_up_is_0_or_1 CHECK (up IN (0, 1))
) STRICT;

-- Files named at start or by the configuration, as they were when last imported.
CREATE TABLE import (
    path   TEXT NOT NULL PRIMARY KEY,
    digest TEXT NOT NULL -- of the file's content; equal digests are not imported again
) STRICT;
