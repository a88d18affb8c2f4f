-- Of several providers with room the one that has been idle longest gets the next engagement: since its occupancy last
-- changed, or since it came online.
ALTER TABLE providers ADD COLUMN idle_us INTEGER NOT NULL DEFAULT 0;

CREATE INDEX providers_idle ON providers (roster, occupancy, idle_us, provider)
    WHERE online AND active AND occupancy < capacity;

CREATE TRIGGER provider_idle_written AFTER INSERT ON providers
BEGIN
    UPDATE providers SET idle_us = (SELECT at_us FROM moment) WHERE roster = NEW.roster AND provider = NEW.provider;
END;

CREATE TRIGGER provider_idle_changed AFTER UPDATE OF occupancy, last_online_us ON providers
WHEN NEW.occupancy <> OLD.occupancy OR NEW.last_online_us IS NOT OLD.last_online_us
BEGIN
    UPDATE providers SET idle_us = (SELECT at_us FROM moment) WHERE roster = NEW.roster AND provider = NEW.provider;
END;

-- Tokens that were void when a provider was removed stay void if it is written again.
CREATE TABLE revocations (
    roster TEXT NOT NULL,
    provider TEXT NOT NULL,
    before_us INTEGER NOT NULL,
    PRIMARY KEY (roster, provider)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER provider_revoked AFTER DELETE ON providers WHEN OLD.revoked_before_us IS NOT NULL
BEGIN
    INSERT INTO revocations (roster, provider, before_us) VALUES (OLD.roster, OLD.provider, OLD.revoked_before_us)
    ON CONFLICT (roster, provider) DO UPDATE SET before_us = max(before_us, excluded.before_us);
END;

CREATE TRIGGER provider_still_revoked AFTER INSERT ON providers
WHEN EXISTS (SELECT 1 FROM revocations WHERE roster = NEW.roster AND provider = NEW.provider)
BEGIN
    UPDATE providers SET revoked_before_us = max(coalesce(revoked_before_us, 0), (
        SELECT before_us FROM revocations WHERE roster = NEW.roster AND provider = NEW.provider))
    WHERE roster = NEW.roster AND provider = NEW.provider;
END;

-- The deadline of an offer does not end accepted work. A step says itself what becomes of the deadline; another program that
-- wants one for the work writes it in the same statement.
CREATE TRIGGER engagement_accepted AFTER UPDATE OF status ON engagements
WHEN OLD.status = 'pending' AND NEW.status = 'active' AND NEW.expires_us IS OLD.expires_us
 AND (SELECT at_us FROM steps) IS NULL
BEGIN
    UPDATE engagements SET expires_us = NULL WHERE roster = NEW.roster AND engagement = NEW.engagement;
END;
