-- Looks whether targets are paused, at most 200 a call: by a field of the hash that a target's key holds. Changes nothing.
--
-- KEYS the keys of the targets. ARGV[3] the field.
-- Answers, for each: false when there is no such key any more, else the field's value, empty when it has none.
local fields = {}
for i = 1, #KEYS do
    if redis.call('EXISTS', KEYS[i]) == 0 then
        fields[i] = false
    else
        local found = redis.pcall('HGET', KEYS[i], ARGV[3])
        fields[i] = type(found) == 'string' and found or ''
    end
end
head[4] = fields
return head
