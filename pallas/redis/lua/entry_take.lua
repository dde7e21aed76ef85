-- Hands an entry that was claimed and not begun over from a dead epoch, if it is still as the taker saw it.
-- KEYS: home (HASH), open (HASH)
-- ARGV: field, old, new
-- Returns 1 taken (also when asked again), 0 it has moved on.
--
-- `old` and `new` are whole tokens. That the old epoch is dead is for the caller to know: a dead epoch stays dead, and
-- epoch 0 is that of what was given back. An entry that newer ones pushed out of its home is taken in `open` alone.

local list = redis.call('HGET', home, field)
if list and list:find(new, 1, true) then return 1 end
local place = redis.call('HGET', open, old)
local at = list and list:find(old, 1, true)
if at then
    if list:sub(at - 1, at - 1) ~= 'c' then return 0 end
    redis.call('HSET', home, field, list:sub(1, at - 1) .. new .. list:sub(at + 10))
elseif not place or place:sub(1, 1) ~= 'c' then
    return redis.call('HEXISTS', open, new)
end
if place then
    redis.call('HDEL', open, old)
    redis.call('HSET', open, new, place)
end
return 1
