-- Marks a space, or all of a bucket, as one with an end that reports no sequence; the mark lapses by itself.
-- KEYS: plain (ZSET)
-- ARGV: space, life_s
-- Returns 1 added, 0 it was there; it lasts as long as whoever needs it longest has said.

local now = tonumber(redis.call('TIME')[1])
local lapsed = redis.call('ZRANGE', plain, '-inf', '(' .. now, 'BYSCORE', 'LIMIT', 0, 8)
if #lapsed > 0 then redis.call('ZREM', plain, unpack(lapsed)) end
local added = redis.call('ZADD', plain, 'GT', now + life_s, space)
if redis.call('TTL', plain) < tonumber(life_s) then redis.call('EXPIRE', plain, life_s) end
return added
