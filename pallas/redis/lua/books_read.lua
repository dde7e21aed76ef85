-- Reads one bucket's books and its open entries in one step, so that the two agree.
-- KEYS: books (HASH), open (HASH)
-- ARGV: limit, living
-- Returns {counts as a flat list, number of open entries, up to `limit` of their tokens}.
--
-- `living` are epochs, 4 bytes each, whose tokens are counted and not listed: however much a slow worker holds, what
-- the dead have left is seen.

local tokens = redis.call('HKEYS', open)
local alive = {}
for at = 1, #living, 4 do alive[living:sub(at, at + 3)] = true end
local listed = {}
for _, token in ipairs(tokens) do
    if #listed == tonumber(limit) then break end
    if not alive[token:sub(3, 6)] then listed[#listed + 1] = token end
end
return {redis.call('HGETALL', books), #tokens, listed}
