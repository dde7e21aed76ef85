-- Reads one bucket's books and its open entries in one step, so that the two agree.
-- KEYS: books (HASH), open (HASH)
-- ARGV: limit
-- Returns {counts as a flat list, number of open entries, up to `limit` of their tokens}.

local tokens = redis.call('HKEYS', open)
local number = #tokens
local first = {}
for i = 1, math.min(number, tonumber(limit)) do first[i] = tokens[i] end
return {redis.call('HGETALL', books), number, first}
