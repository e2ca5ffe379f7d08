-- The tables of a store in MariaDB: those of SQLite's version 3, and three for those who share a database.
-- docs/reference/store.md explains each column at length. A released migration is never edited.
--
-- Names of zones and policies are absolute, in lower case, with the final dot. Addresses are written as
-- RFC 5952 has it. Texts are compared by their bytes, blanks at their ends too.
--
-- MariaDB commits with each of these statements: one that is broken off is run again from its beginning, so each may be
-- run twice.

CREATE TABLE IF NOT EXISTS generation (
    number  BIGINT NOT NULL PRIMARY KEY,
    at      BIGINT NOT NULL, -- Unix time of the commit, in seconds
    what    TEXT   NOT NULL, -- what changed, in words, shortened
    changes BIGINT NOT NULL, -- the number of the last change of change_log that it has
    publisher TEXT NOT NULL, -- the process that published it
    CONSTRAINT generation_number_is_positive CHECK (number >= 1)
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin;

CREATE TABLE IF NOT EXISTS zone (
    origin VARCHAR(1024) CHARACTER SET ascii COLLATE ascii_nopad_bin NOT NULL PRIMARY KEY,
    text   LONGTEXT NOT NULL, -- master file
    CONSTRAINT zone_origin_is_absolute_and_lower_case
        CHECK (origin = lower(origin) AND origin LIKE '%.' AND char_length(origin) <= 1024)
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin;

-- A removed region keeps its row, so that its id is never given to another.
CREATE TABLE IF NOT EXISTS region (
    id         BIGINT NOT NULL PRIMARY KEY, -- 0 means unclassified and has no row
    name       VARCHAR(255) NOT NULL,
    removed_in BIGINT,                      -- the generation that removed it; NULL while in use
    -- Unique among the regions in use; an index of a part of the rows is not to be had here.
    name_in_use VARCHAR(255) AS (CASE WHEN removed_in IS NULL THEN name END) VIRTUAL,
    UNIQUE KEY region_name (name_in_use),
    CONSTRAINT region_id_is_from_1_to_2147483647 CHECK (id BETWEEN 1 AND 2147483647),
    CONSTRAINT region_name_has_1_to_255_characters CHECK (char_length(name) BETWEEN 1 AND 255)
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin;

CREATE TABLE IF NOT EXISTS "partition" (
    name VARCHAR(255) NOT NULL PRIMARY KEY,
    text LONGTEXT NOT NULL, -- the source as it was given
    CONSTRAINT partition_name_has_1_to_255_characters CHECK (char_length(name) BETWEEN 1 AND 255)
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin;

CREATE TABLE IF NOT EXISTS policy (
    id            BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    answers       BIGINT NOT NULL, -- how many servers an answer holds; 0 = all
    when_all_down VARCHAR(6) NOT NULL, -- 'answer' = as if all were up; 'empty' = no address
    "partition"   VARCHAR(255) NOT NULL, -- the partition that tells a client's region
    "order"       VARCHAR(8) NOT NULL DEFAULT 'weighted', -- in which order its servers are answered
    CONSTRAINT policy_answers_is_from_0_to_65535 CHECK (answers BETWEEN 0 AND 65535),
    CONSTRAINT policy_when_all_down_is_answer_or_empty CHECK (when_all_down IN ('answer', 'empty')),
    CONSTRAINT policy_partition_has_1_to_255_characters CHECK (char_length("partition") BETWEEN 1 AND 255),
    CONSTRAINT policy_order_is_known CHECK ("order" IN ('weighted', 'fixed', 'rotate', 'nearest'))
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin;

-- The owner names that a policy serves; the one at position 0 is the policy's key.
CREATE TABLE IF NOT EXISTS policy_name (
    policy_id BIGINT NOT NULL,
    position  BIGINT NOT NULL,
    name      VARCHAR(1024) CHARACTER SET ascii COLLATE ascii_nopad_bin NOT NULL UNIQUE,
    PRIMARY KEY (policy_id, position),
    FOREIGN KEY (policy_id) REFERENCES policy (id) ON DELETE CASCADE,
    CONSTRAINT policy_name_position_is_from_0 CHECK (position >= 0),
    CONSTRAINT policy_name_is_absolute_and_lower_case
        CHECK (name = lower(name) AND name LIKE '%.' AND char_length(name) <= 1024)
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin;

-- A policy's servers, in order, each with its entry of the default column.
CREATE TABLE IF NOT EXISTS policy_server (
    policy_id   BIGINT NOT NULL,
    position    BIGINT NOT NULL,
    address     VARCHAR(45) NOT NULL,
    probability DOUBLE, -- from 0, any scale; NULL = not given
    ttl         BIGINT,           -- seconds; NULL = not given
    probe       VARCHAR(63),             -- the name of one of the configuration's; NULL = not probed
    PRIMARY KEY (policy_id, address),
    FOREIGN KEY (policy_id) REFERENCES policy (id) ON DELETE CASCADE,
    UNIQUE (policy_id, position),
    CONSTRAINT policy_server_position_is_from_0 CHECK (position >= 0),
    CONSTRAINT policy_server_address_is_lower_case
        CHECK (address = lower(address) AND char_length(address) BETWEEN 2 AND 45),
    CONSTRAINT policy_server_probability_is_finite_and_from_0
        CHECK (probability >= 0 AND probability <= 1.7976931348623157e308),
    CONSTRAINT policy_server_ttl_is_from_0_to_2147483647 CHECK (ttl BETWEEN 0 AND 2147483647),
    CONSTRAINT policy_server_probe_has_1_to_63_characters CHECK (char_length(probe) BETWEEN 1 AND 63)
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin;

-- One cell of the matrix: a server's entry for one region.
CREATE TABLE IF NOT EXISTS policy_row (
    policy_id   BIGINT NOT NULL,
    address     VARCHAR(45) NOT NULL,
    region_id   BIGINT NOT NULL,
    probability DOUBLE, -- from 0, any scale; NULL = not given
    ttl         BIGINT,           -- seconds; NULL = not given
    PRIMARY KEY (policy_id, address, region_id),
    FOREIGN KEY (region_id) REFERENCES region (id),
    FOREIGN KEY (policy_id, address) REFERENCES policy_server (policy_id, address) ON DELETE CASCADE,
    CONSTRAINT policy_row_probability_is_finite_and_from_0
        CHECK (probability >= 0 AND probability <= 1.7976931348623157e308),
    CONSTRAINT policy_row_ttl_is_from_0_to_2147483647 CHECK (ttl BETWEEN 0 AND 2147483647)
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin;
-- What an operator set. A server without a row was never set, which means up.
CREATE TABLE IF NOT EXISTS server (
    address VARCHAR(45) NOT NULL PRIMARY KEY,
    up      BIGINT NOT NULL, -- 1 = may be drawn, 0 = never drawn
    CONSTRAINT server_address_is_lower_case
        CHECK (address = lower(address) AND char_length(address) BETWEEN 2 AND 45),
    CONSTRAINT server_up_is_0_or_1 CHECK (up IN (0, 1))
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin;

-- Files named at start or by the configuration, as they were when last imported.
CREATE TABLE IF NOT EXISTS import (
    path   VARCHAR(768) NOT NULL PRIMARY KEY,
    digest TEXT NOT NULL -- of the file's content; equal digests are not imported again
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin;

-- What probes last held of servers, for the first answers after a start. No generation's business.
CREATE TABLE IF NOT EXISTS health (
    server  VARCHAR(45) NOT NULL,
    probe   VARCHAR(63) NOT NULL,
    failing BIGINT NOT NULL, -- 1 = not drawn, 0 = drawn
    since   BIGINT NOT NULL, -- Unix time of the change, in seconds
    PRIMARY KEY (server, probe),
    CONSTRAINT health_server_is_lower_case CHECK (server = lower(server) AND char_length(server) BETWEEN 2 AND 45),
    CONSTRAINT health_failing_is_0_or_1 CHECK (failing IN (0, 1))
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin;

-- One row. Who changes what is served holds it until the end of its transaction, so that changes are numbered in the
-- order in which others see them.
CREATE TABLE IF NOT EXISTS writer (
    id      BIGINT NOT NULL PRIMARY KEY,
    changes BIGINT NOT NULL, -- the number of the last change
    CONSTRAINT writer_is_one_row CHECK (id = 1)
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin;
INSERT IGNORE INTO writer (id, changes) VALUES (1, 0);

-- Which tables were changed. A change above generation.changes of the current generation is not served yet.
CREATE TABLE IF NOT EXISTS change_log (
    number BIGINT NOT NULL PRIMARY KEY,
    at     BIGINT NOT NULL, -- Unix time, in seconds
    what   TEXT   NOT NULL  -- the table
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin;

-- What was changed directly and cannot be served, and why.
CREATE TABLE IF NOT EXISTS refusal (
    changes BIGINT NOT NULL PRIMARY KEY, -- the number of the last change that there was
    at      BIGINT NOT NULL,             -- Unix time, in seconds
    what    TEXT   NOT NULL              -- everything that is wrong, shortened
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin;

-- A name server logs its commits by itself; @pointsman_commits tells it from others.
CREATE OR REPLACE PROCEDURE log_change(changed VARCHAR(64))
BEGIN
    IF @pointsman_commits IS NULL THEN
        UPDATE writer SET changes = changes + 1;
        INSERT INTO change_log (number, at, what) SELECT changes, unix_timestamp(), changed FROM writer;
    END IF;
END;

CREATE OR REPLACE TRIGGER zone_insert BEFORE INSERT ON "zone" FOR EACH ROW CALL log_change('zone');
CREATE OR REPLACE TRIGGER zone_update BEFORE UPDATE ON "zone" FOR EACH ROW CALL log_change('zone');
CREATE OR REPLACE TRIGGER zone_delete BEFORE DELETE ON "zone" FOR EACH ROW CALL log_change('zone');
CREATE OR REPLACE TRIGGER region_insert BEFORE INSERT ON "region" FOR EACH ROW CALL log_change('region');
CREATE OR REPLACE TRIGGER region_update BEFORE UPDATE ON "region" FOR EACH ROW CALL log_change('region');
CREATE OR REPLACE TRIGGER region_delete BEFORE DELETE ON "region" FOR EACH ROW CALL log_change('region');
CREATE OR REPLACE TRIGGER partition_insert BEFORE INSERT ON "partition" FOR EACH ROW CALL log_change('partition');
CREATE OR REPLACE TRIGGER partition_update BEFORE UPDATE ON "partition" FOR EACH ROW CALL log_change('partition');
CREATE OR REPLACE TRIGGER partition_delete BEFORE DELETE ON "partition" FOR EACH ROW CALL log_change('partition');
CREATE OR REPLACE TRIGGER policy_insert BEFORE INSERT ON "policy" FOR EACH ROW CALL log_change('policy');
CREATE OR REPLACE TRIGGER policy_update BEFORE UPDATE ON "policy" FOR EACH ROW CALL log_change('policy');
CREATE OR REPLACE TRIGGER policy_delete BEFORE DELETE ON "policy" FOR EACH ROW CALL log_change('policy');
CREATE OR REPLACE TRIGGER policy_name_insert BEFORE INSERT ON "policy_name" FOR EACH ROW CALL log_change('policy_name');
CREATE OR REPLACE TRIGGER policy_name_update BEFORE UPDATE ON "policy_name" FOR EACH ROW CALL log_change('policy_name');
CREATE OR REPLACE TRIGGER policy_name_delete BEFORE DELETE ON "policy_name" FOR EACH ROW CALL log_change('policy_name');
CREATE OR REPLACE TRIGGER policy_server_insert BEFORE INSERT ON "policy_server" FOR EACH ROW CALL log_change('policy_server');
CREATE OR REPLACE TRIGGER policy_server_update BEFORE UPDATE ON "policy_server" FOR EACH ROW CALL log_change('policy_server');
CREATE OR REPLACE TRIGGER policy_server_delete BEFORE DELETE ON "policy_server" FOR EACH ROW CALL log_change('policy_server');
CREATE OR REPLACE TRIGGER policy_row_insert BEFORE INSERT ON "policy_row" FOR EACH ROW CALL log_change('policy_row');
CREATE OR REPLACE TRIGGER policy_row_update BEFORE UPDATE ON "policy_row" FOR EACH ROW CALL log_change('policy_row');
CREATE OR REPLACE TRIGGER policy_row_delete BEFORE DELETE ON "policy_row" FOR EACH ROW CALL log_change('policy_row');
CREATE OR REPLACE TRIGGER server_insert BEFORE INSERT ON "server" FOR EACH ROW CALL log_change('server');
CREATE OR REPLACE TRIGGER server_update BEFORE UPDATE ON "server" FOR EACH ROW CALL log_change('server');
CREATE OR REPLACE TRIGGER server_delete BEFORE DELETE ON "server" FOR EACH ROW CALL log_change('server');
