-- The rosters that there are. A provider may have been written by other programs, and its roster have no row: then it is
-- found by its providers. Each is one look into their index, so that this costs as many looks as there are rosters. A name
-- that no roster can have would hold up all others.
CREATE OR REPLACE FUNCTION tenure.read_rosters() RETURNS jsonb LANGUAGE sql VOLATILE AS $$
    WITH RECURSIVE staffed (roster) AS (
        (SELECT p.roster FROM tenure.providers p ORDER BY p.roster LIMIT 1)
        UNION ALL
        SELECT (SELECT p.roster FROM tenure.providers p WHERE p.roster > s.roster ORDER BY p.roster LIMIT 1)
        FROM staffed s WHERE s.roster IS NOT NULL
    ), known AS (
        SELECT r.roster FROM tenure.rosters r
        UNION
        SELECT s.roster FROM staffed s WHERE s.roster NOT IN ('.', '..')
    )
    SELECT tenure.answer(jsonb_build_object('items', coalesce(jsonb_agg(k.roster ORDER BY k.roster), '[]')))
    FROM known k
$$;
