-- Zones that primaries give: when each was last confirmed, so that it expires in time, whenever a name server was started.

-- No generation's business. A zone that is put anew has none until its primary has confirmed it.
CREATE TABLE IF NOT EXISTS confirmed (
    origin VARCHAR(1024) CHARACTER SET ascii COLLATE ascii_nopad_bin NOT NULL PRIMARY KEY,
    at     BIGINT NOT NULL, -- Unix time, in seconds
    CONSTRAINT confirmed_origin_is_absolute_and_lower_case
        CHECK (origin = lower(origin) AND origin LIKE '%.' AND char_length(origin) <= 1024)
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin;
