-- Reads one bucket's books and its open entries in one step, so that the two agree.
-- KEYS: books (HASH), open (HASH)
-- ARGV: limit, living, own
-- Returns {counts as a flat list, number of open entries, up to `limit` of their tokens, up to `limit` of the caller's}.
--
-- `own` is the caller's epoch (4 bytes, or empty), whose tokens come in the last list. `living` are others' epochs, 4
-- bytes each, whose tokens are counted and not listed: however much a slow worker holds, what the dead have left is seen.

local tokens = redis.call('HKEYS', open)
local alive = {}
for at = 1, #living, 4 do alive[living:sub(at, at + 3)] = true end
local listed, mine = {}, {}
limit = tonumber(limit)
for _, token in ipairs(tokens) do
    local epoch = token:sub(3, 6)
    if epoch == own then
        if #mine < limit then mine[#mine + 1] = token end
    elseif not alive[epoch] and #listed < limit then
        listed[#listed + 1] = token
    end
end
return {redis.call('HGETALL', books), #tokens, listed, mine}
