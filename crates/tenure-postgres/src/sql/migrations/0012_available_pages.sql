-- Those who can take work, after a place in their order; -1 and '' for the beginning.
CREATE FUNCTION tenure.read_available(
    in_roster text, most integer, fresh_since bigint, after_occupancy bigint, after_provider text
) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    able jsonb;
BEGIN
    -- One statement for each question, so that each is planned for its own.
    IF fresh_since IS NULL THEN
        SELECT jsonb_agg(jsonb_build_object('provider', a.provider, 'occupancy', a.occupancy, 'capacity', a.capacity)
                         ORDER BY a.occupancy, a.provider) INTO able
        FROM (SELECT p.provider, p.occupancy, p.capacity FROM tenure.providers p
              WHERE p.roster = in_roster AND (p.occupancy, p.provider) > (after_occupancy::integer, after_provider)
                AND p.online AND p.active AND p.occupancy < p.capacity
              ORDER BY p.occupancy, p.provider LIMIT most) a;
    ELSE
        SELECT jsonb_agg(jsonb_build_object('provider', a.provider, 'occupancy', a.occupancy, 'capacity', a.capacity)
                         ORDER BY a.occupancy, a.provider) INTO able
        FROM (SELECT p.provider, p.occupancy, p.capacity FROM tenure.providers p
              WHERE p.roster = in_roster AND (p.occupancy, p.provider) > (after_occupancy::integer, after_provider)
                AND p.online AND p.active AND p.occupancy < p.capacity
                AND tenure.is_fresh(p, fresh_since)
              ORDER BY p.occupancy, p.provider LIMIT most) a;
    END IF;
    RETURN tenure.answer(jsonb_build_object('items', coalesce(able, '[]')));
END $$;
