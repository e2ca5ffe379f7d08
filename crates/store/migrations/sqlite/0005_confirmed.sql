-- Zones that primaries give: when each was last confirmed, so that it expires in time, whenever this program was started.

-- No generation's business. A zone that is put anew has none until its primary has confirmed it.
CREATE TABLE confirmed (
    origin TEXT    NOT NULL PRIMARY KEY,
    at     INTEGER NOT NULL, -- Unix time, in seconds
    CONSTRAINT confirmed_origin_is_absolute_and_lower_case
        CHECK (origin = lower(origin) AND origin LIKE '%.' AND length(origin) <= 1024)
) STRICT, WITHOUT ROWID;
