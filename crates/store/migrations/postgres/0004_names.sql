-- Which zone or partition was changed, so that a name server loads no others; and zones as they were published, so that
-- it can tell whether a change left a zone's serial number as it was.

ALTER TABLE change_log ADD COLUMN name TEXT COLLATE "C"; -- the zone or partition; NULL = it may be any of the table

-- Zones that were changed directly since the current generation. Whoever publishes the next one empties it.
CREATE TABLE zone_before (
    origin TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    text   TEXT -- as the current generation has it; NULL = it has no such zone
);

-- Before the statement: the row of "writer" is locked before any other, so that two writers wait and do not deadlock.
CREATE FUNCTION lock_writer() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF coalesce(current_setting('pointsman.commits', true), '') <> 'on' THEN
        PERFORM 1 FROM writer FOR UPDATE;
    END IF;
    RETURN NULL;
END $$;

-- One number for each name: all at once, for "writer" would have a dead row for each else.
CREATE FUNCTION log_names(changed TEXT, names TEXT[]) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    last BIGINT;
BEGIN
    IF cardinality(names) = 0 THEN
        RETURN;
    END IF;
    UPDATE writer SET changes = changes + cardinality(names) RETURNING changes - cardinality(names) INTO last;
    INSERT INTO change_log (number, at, what, name)
        SELECT last + listed.place, extract(epoch FROM now())::bigint, changed, listed.name
            FROM unnest(names) WITH ORDINALITY AS listed(name, place);
    PERFORM pg_notify('pointsman', '');
END $$;

-- After the statement, which took "gone" out and put "come" in.
CREATE FUNCTION log_zones() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    names TEXT[];
BEGIN
    IF coalesce(current_setting('pointsman.commits', true), '') = 'on' THEN
        RETURN NULL;
    ELSIF TG_OP = 'INSERT' THEN
        names := ARRAY(SELECT origin FROM come);
    ELSIF TG_OP = 'DELETE' THEN
        names := ARRAY(SELECT origin FROM gone);
    ELSE
        names := ARRAY(SELECT origin FROM gone UNION SELECT origin FROM come);
    END IF;
    -- The first change since the generation is the one that has the text of then.
    IF TG_OP <> 'INSERT' THEN
        INSERT INTO zone_before (origin, text) SELECT origin, text FROM gone ON CONFLICT DO NOTHING;
    END IF;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO zone_before (origin) SELECT origin FROM come ON CONFLICT DO NOTHING;
    END IF;
    PERFORM log_names('zone', names);
    RETURN NULL;
END $$;

CREATE FUNCTION log_partitions() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    names TEXT[];
BEGIN
    IF coalesce(current_setting('pointsman.commits', true), '') = 'on' THEN
        RETURN NULL;
    ELSIF TG_OP = 'INSERT' THEN
        names := ARRAY(SELECT name FROM come);
    ELSIF TG_OP = 'DELETE' THEN
        names := ARRAY(SELECT name FROM gone);
    ELSE
        names := ARRAY(SELECT name FROM gone UNION SELECT name FROM come);
    END IF;
    PERFORM log_names('partition', names);
    RETURN NULL;
END $$;

CREATE FUNCTION keep_zones() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO zone_before (origin, text) SELECT origin, text FROM zone ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;

DROP TRIGGER logged ON zone;
CREATE TRIGGER locked BEFORE INSERT OR UPDATE OR DELETE ON zone EXECUTE FUNCTION lock_writer();
CREATE TRIGGER inserted AFTER INSERT ON zone
    REFERENCING NEW TABLE AS come EXECUTE FUNCTION log_zones();
CREATE TRIGGER updated AFTER UPDATE ON zone
    REFERENCING OLD TABLE AS gone NEW TABLE AS come EXECUTE FUNCTION log_zones();
CREATE TRIGGER deleted AFTER DELETE ON zone
    REFERENCING OLD TABLE AS gone EXECUTE FUNCTION log_zones();
-- In the order of their names: the row of "writer" is locked first here, too.
CREATE TRIGGER truncated BEFORE TRUNCATE ON zone EXECUTE FUNCTION log_change();
CREATE TRIGGER truncated_kept BEFORE TRUNCATE ON zone EXECUTE FUNCTION keep_zones();

DROP TRIGGER logged ON "partition";
CREATE TRIGGER locked BEFORE INSERT OR UPDATE OR DELETE ON "partition" EXECUTE FUNCTION lock_writer();
CREATE TRIGGER inserted AFTER INSERT ON "partition"
    REFERENCING NEW TABLE AS come EXECUTE FUNCTION log_partitions();
CREATE TRIGGER updated AFTER UPDATE ON "partition"
    REFERENCING OLD TABLE AS gone NEW TABLE AS come EXECUTE FUNCTION log_partitions();
CREATE TRIGGER deleted AFTER DELETE ON "partition"
    REFERENCING OLD TABLE AS gone EXECUTE FUNCTION log_partitions();
CREATE TRIGGER truncated BEFORE TRUNCATE ON "partition" EXECUTE FUNCTION log_change();
