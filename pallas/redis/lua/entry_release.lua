-- Gives an entry back for which its holder has surely done nothing: to nobody, so that anybody may take it.
-- KEYS: home (HASH), open (HASH)
-- ARGV: field, token, nobody
-- Returns 1 given back (also when asked again), 0 the token holds no open entry.
--
-- `nobody` is the token with epoch 0. An effect that was recorded and then not sent is taken back with it. An entry that
-- newer ones pushed out of its home is given back in `open` alone.

local list = redis.call('HGET', home, field)
if list and list:find(nobody, 1, true) then return 1 end
local place = redis.call('HGET', open, token)
local at = list and list:find(token, 1, true)
if at then
    local state = list:sub(at - 1, at - 1)
    if state ~= 'c' and state ~= 'e' then return 0 end
    redis.call('HSET', home, field, list:sub(1, at - 2) .. 'c' .. nobody .. list:sub(at + 10))
elseif not place then
    return redis.call('HEXISTS', open, nobody)
end
if place then
    redis.call('HDEL', open, token)
    redis.call('HSET', open, nobody, 'c' .. place:sub(2))
end
return 1
