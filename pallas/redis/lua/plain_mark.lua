-- Adds a mark to a bucket's spaces without sequences; the set lives at least so long as the mark is needed.
-- KEYS: plain (SET)
-- ARGV: space, life_s
-- Returns 1 added, 0 it was there.

local added = redis.call('SADD', plain, space)
if redis.call('TTL', plain) < tonumber(life_s) then redis.call('EXPIRE', plain, life_s) end
return added
