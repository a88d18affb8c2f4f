-- One engagement each. $1 the roster, $2 names.
INSERT INTO tenure.engagements (roster, engagement, provider, status)
SELECT $1, 'ride-' || u.provider, u.provider, 'active' FROM unnest($2::text[]) u (provider)
