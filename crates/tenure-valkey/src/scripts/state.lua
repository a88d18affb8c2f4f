-- The state of a whole group, packed into one field of its meta: ten doubles, as `group` in `lib.lua` names them. Lua's
-- numbers cost a tenth of text, and one field a tenth of ten fields.
local STATE = '<dddddddddd'
local CAUSES = { 'silent', 'clock_back', 'data_loss', 'tail_loss', 'new' }

-- The refusal of beats of the group: since when, and until when it counts; 0 for never.
local function pack_refusal(since, till)
  return struct.pack('<dd', since, till)
end
local function unpack_refusal(packed)
  if not packed then
    return 0, 0
  end
  return struct.unpack('<dd', packed)
end

-- The packed value of a tenure, as integers of seven bytes: deadline, ttl, and the revision if it has one. Most have
-- none, and their value then fits into the smallest allocation of a server for a string. Marks follow in one byte if
-- there are any: NAMED when the last beat named a revision, REVOKED when an operator has released a lease of the tenure
-- and the holder has not noticed yet.
local NAMED, REVOKED = 1, 2
-- A heartbeat of a provider names no revision.
local function without_name(marks)
  return marks >= REVOKED and REVOKED or 0
end
local function unpack_life(row)
  local deadline, ttl = struct.unpack('<I7I7', row)
  local length = #row
  if length == 14 then
    return deadline, ttl, 0, 0
  end
  return deadline, ttl, struct.unpack('<I7', row, 15), length > 21 and string.byte(row, 22) or 0
end
local function pack_life(deadline, ttl, revision, marks)
  if marks ~= 0 then
    return struct.pack('<I7I7I7I1', deadline, ttl, revision, marks)
  elseif revision ~= 0 then
    return struct.pack('<I7I7I7', deadline, ttl, revision)
  end
  return struct.pack('<I7I7', deadline, ttl)
end

