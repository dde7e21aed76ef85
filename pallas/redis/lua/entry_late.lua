-- Says how an entry went after all that had been ended as unknown, only for the token that held it.
-- KEYS: home (HASH), books (HASH), dead (HASH)
-- ARGV: field, token, outcome
-- Returns 1 corrected, 2 it is done already, 0 the token did not hold it or it is remembered no more.

local list = redis.call('HGET', home, field)
local at = list and list:find(token, 1, true)
if not at then return 0 end
local state = list:sub(at - 1, at - 1)
if state == 'd' then return 2 end
if state ~= 'u' then return 0 end
redis.call('HSET', home, field, list:sub(1, at - 2) .. 'd' .. list:sub(at))
redis.call('HDEL', dead, token)
redis.call('HINCRBY', books, 'dead:sent_unknown', -1)
redis.call('HINCRBY', books, outcome, 1)
return 1
