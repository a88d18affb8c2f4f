-- How many rows of each roster may not have reached the mirror, of those that have any: one look for all rosters.
CREATE FUNCTION tenure.read_dirty_counts() RETURNS jsonb LANGUAGE sql VOLATILE AS $$
    SELECT tenure.answer(jsonb_build_object('items', coalesce(
        jsonb_agg(jsonb_build_object('roster', d.roster, 'count', d.count) ORDER BY d.roster), '[]')))
    FROM (SELECT o.roster, count(*) AS count FROM tenure.outbox o GROUP BY o.roster) d
$$;
