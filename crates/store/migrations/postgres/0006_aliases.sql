-- Servers that are names: a policy's names may be aliases. Where an address stands a name may, which is longer and ends
-- with a dot; then all servers of the policy are names.

ALTER TABLE policy_server DROP CONSTRAINT policy_server_address_is_lower_case;
ALTER TABLE policy_server ADD CONSTRAINT policy_server_address_is_lower_case
    CHECK (address = lower(address) AND length(address) BETWEEN 1 AND 1024);

ALTER TABLE server DROP CONSTRAINT server_address_is_lower_case;
ALTER TABLE server ADD CONSTRAINT server_address_is_lower_case
    CHECK (address = lower(address) AND length(address) BETWEEN 1 AND 1024);

ALTER TABLE health DROP CONSTRAINT health_server_is_lower_case;
ALTER TABLE health ADD CONSTRAINT health_server_is_lower_case
    CHECK (server = lower(server) AND length(server) BETWEEN 1 AND 1024);
