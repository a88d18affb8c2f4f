-- When these providers were last heard, of those of whom it was recorded. What another program recorded as infinite is no time.
CREATE FUNCTION tenure.read_last_heartbeats(in_roster text, names text[]) RETURNS jsonb LANGUAGE sql VOLATILE AS $$
    SELECT tenure.answer(jsonb_build_object('items', coalesce(
        jsonb_agg(jsonb_build_object('provider', h.provider, 'at', tenure.micros(h.heard_at))), '[]')))
    FROM tenure.heartbeats h
    WHERE h.roster = in_roster AND h.provider = ANY (names) AND isfinite(h.heard_at)
$$;
