-- Servers that are names: a policy's names may be aliases. Where an address stands a name may, which is longer and ends
-- with a dot; then all servers of the policy are names.
--
-- MariaDB commits with each of these statements: one that is broken off is run again from its beginning, so each may be
-- run twice.

-- The foreign key from policy_row, whose name was MariaDB's to choose, is in the way of its columns. Where the migration
-- was broken off there is none, or the one that is made below.
SET @constraint = (SELECT min(constraint_name) FROM information_schema.key_column_usage
    WHERE table_schema = database() AND table_name = 'policy_row' AND referenced_table_name = 'policy_server');
SET @statement = coalesce(concat('ALTER TABLE policy_row DROP FOREIGN KEY `', @constraint, '`'), 'DO 0');
EXECUTE IMMEDIATE @statement;
ALTER TABLE policy_server DROP CONSTRAINT IF EXISTS policy_server_address_is_lower_case;
ALTER TABLE policy_server MODIFY address VARCHAR(1024) CHARACTER SET ascii COLLATE ascii_nopad_bin NOT NULL;
ALTER TABLE policy_server ADD CONSTRAINT policy_server_address_is_lower_case
    CHECK (address = lower(address) AND char_length(address) BETWEEN 1 AND 1024);
ALTER TABLE policy_row MODIFY address VARCHAR(1024) CHARACTER SET ascii COLLATE ascii_nopad_bin NOT NULL;
ALTER TABLE policy_row ADD CONSTRAINT policy_row_server
    FOREIGN KEY (policy_id, address) REFERENCES policy_server (policy_id, address) ON DELETE CASCADE;

ALTER TABLE server DROP CONSTRAINT IF EXISTS server_address_is_lower_case;
ALTER TABLE server MODIFY address VARCHAR(1024) CHARACTER SET ascii COLLATE ascii_nopad_bin NOT NULL;
ALTER TABLE server ADD CONSTRAINT server_address_is_lower_case
    CHECK (address = lower(address) AND char_length(address) BETWEEN 1 AND 1024);

ALTER TABLE health DROP CONSTRAINT IF EXISTS health_server_is_lower_case;
ALTER TABLE health MODIFY server VARCHAR(1024) CHARACTER SET ascii COLLATE ascii_nopad_bin NOT NULL;
ALTER TABLE health ADD CONSTRAINT health_server_is_lower_case
    CHECK (server = lower(server) AND char_length(server) BETWEEN 1 AND 1024);
