-- A commit that waited for a synchronous standby and was told to stop is here and may not be there. The step that repeats
-- it finds its work done, and must not answer before the standby has it: a transaction that wrote something waits for all
-- that was committed before. One that has locked a row has written something; one that has not, calls this.
CREATE FUNCTION tenure.rest_on_a_write() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF pg_current_xact_id_if_assigned() IS NULL THEN
        PERFORM pg_logical_emit_message(true, 'tenure', '');
    END IF;
END $$;

CREATE OR REPLACE FUNCTION tenure.remove_provider(in_roster text, name text, not_after bigint) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    p tenure.providers;
BEGIN
    PERFORM tenure.begin_step(not_after);
    SELECT * INTO p FROM tenure.providers x WHERE x.roster = in_roster AND x.provider = name FOR UPDATE;
    IF NOT FOUND THEN
        PERFORM tenure.rest_on_a_write();
        RETURN tenure.end_step(not_after, '{"outcome": "absent"}');
    END IF;
    IF p.online OR p.occupancy > 0 THEN
        RETURN tenure.end_step(not_after,
            jsonb_build_object('outcome', 'busy', 'row', tenure.rows_json(in_roster, ARRAY[name]) -> 0));
    END IF;
    DELETE FROM tenure.providers x WHERE x.roster = in_roster AND x.provider = name;
    RETURN tenure.end_step(not_after, jsonb_build_object('outcome', 'removed', 'version', (
        SELECT o.version FROM tenure.outbox o WHERE o.roster = in_roster AND o.provider = name)));
END $$;

-- Drawing a number is a write, every now and then.
DROP FUNCTION tenure.next_version();
CREATE FUNCTION tenure.next_version(not_after bigint) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    PERFORM tenure.begin_step(not_after);
    RETURN tenure.answer(jsonb_build_object('version', nextval('tenure.versions')));
END $$;
