-- Who has fewer rides under way than fit, the least busy first.
SELECT d.id
FROM drivers d LEFT JOIN rides r ON r.driver = d.id AND r.ended_at IS NULL
WHERE d.online AND d.heard_at > now() - interval '1 hour'
GROUP BY d.id, d.capacity
HAVING count(r.id) < d.capacity
ORDER BY count(r.id), d.id
LIMIT 50
