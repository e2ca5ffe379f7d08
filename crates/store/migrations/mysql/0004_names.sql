-- Which zone or partition was changed, so that a name server loads no others; and zones as they were published, so that
-- it can tell whether a change left a zone's serial number as it was.
--
-- MariaDB commits with each of these statements: one that is broken off is run again from its beginning, so each may be
-- run twice.

ALTER TABLE change_log ADD COLUMN IF NOT EXISTS name VARCHAR(1024); -- the zone or partition; NULL = it may be any of the table

-- Zones that were changed directly since the current generation. Whoever publishes the next one empties it.
CREATE TABLE IF NOT EXISTS zone_before (
    origin VARCHAR(1024) CHARACTER SET ascii COLLATE ascii_nopad_bin NOT NULL PRIMARY KEY,
    text   LONGTEXT -- as the current generation has it; NULL = it has no such zone
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin;

CREATE OR REPLACE PROCEDURE log_name(changed VARCHAR(64), named VARCHAR(1024) CHARACTER SET utf8mb4)
BEGIN
    IF @pointsman_commits IS NULL THEN
        UPDATE writer SET changes = changes + 1;
        INSERT INTO change_log (number, at, what, name)
            SELECT changes, unix_timestamp(), changed, named FROM writer;
    END IF;
END;

-- The first change since the generation is the one that has the text of then.
CREATE OR REPLACE PROCEDURE keep_zone(named VARCHAR(1024) CHARACTER SET utf8mb4, was LONGTEXT CHARACTER SET utf8mb4)
BEGIN
    IF @pointsman_commits IS NULL THEN
        INSERT INTO zone_before (origin, text) VALUES (named, was) ON DUPLICATE KEY UPDATE origin = named;
    END IF;
END;

CREATE OR REPLACE TRIGGER zone_insert BEFORE INSERT ON "zone" FOR EACH ROW CALL log_name('zone', NEW.origin);
-- After the row: before it, REPLACE has not yet deleted the one that there was.
CREATE OR REPLACE TRIGGER zone_inserted AFTER INSERT ON "zone" FOR EACH ROW CALL keep_zone(NEW.origin, NULL);
CREATE OR REPLACE TRIGGER zone_update BEFORE UPDATE ON "zone" FOR EACH ROW
BEGIN
    CALL log_name('zone', OLD.origin);
    CALL keep_zone(OLD.origin, OLD.text);
    IF NEW.origin <> OLD.origin THEN
        CALL log_name('zone', NEW.origin);
        CALL keep_zone(NEW.origin, NULL);
    END IF;
END;
CREATE OR REPLACE TRIGGER zone_delete BEFORE DELETE ON "zone" FOR EACH ROW
BEGIN
    CALL log_name('zone', OLD.origin);
    CALL keep_zone(OLD.origin, OLD.text);
END;

CREATE OR REPLACE TRIGGER partition_insert BEFORE INSERT ON "partition" FOR EACH ROW
    CALL log_name('partition', NEW.name);
CREATE OR REPLACE TRIGGER partition_update BEFORE UPDATE ON "partition" FOR EACH ROW
BEGIN
    CALL log_name('partition', OLD.name);
    IF NEW.name <> OLD.name THEN
        CALL log_name('partition', NEW.name);
    END IF;
END;
CREATE OR REPLACE TRIGGER partition_delete BEFORE DELETE ON "partition" FOR EACH ROW
    CALL log_name('partition', OLD.name);
