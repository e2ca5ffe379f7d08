-- Changes of a zone's names that do not write the whole zone again.

-- What an owner has, in place of the lines that zone.text has of it. The rows of a zone go when it is put anew, and when
-- they have become part of its text, which is done when nobody waits.
CREATE TABLE zone_owner (
    origin TEXT NOT NULL REFERENCES zone (origin) ON DELETE CASCADE,
    owner  TEXT NOT NULL, -- as the lines begin
    text   TEXT NOT NULL, -- its lines of the canonical master file; none where it has nothing any more
    PRIMARY KEY (origin, owner),
    CONSTRAINT zone_owner_owner_is_absolute_and_lower_case
        CHECK (owner = lower(owner) AND owner LIKE '%.' AND length(owner) <= 1024)
) STRICT, WITHOUT ROWID;
