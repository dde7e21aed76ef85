-- Prolongs a lease for the epoch that holds it; an epoch that lapsed or was replaced stays dead.
-- KEYS: leases (HASH), given (STRING)
-- ARGV: shard, epoch, life_ms, keep_ms, info
-- Returns the last epoch given out to anybody (`given`, at least `epoch`) if prolonged, 0 lapsed or not the holder.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local record = redis.call('HGET', leases, shard)
if not record then return 0 end
local holder, limit, attempt = record:match('^(%d+)|(%d+)|(%w*)|')
if holder ~= epoch or tonumber(limit) <= now then return 0 end
redis.call('HSET', leases, shard, string.format('%s|%d|%s|%s', epoch, now + life_ms, attempt, info))
redis.call('PEXPIRE', leases, keep_ms)
-- A foreign value there is the next taker's trouble, not ours.
local last = redis.pcall('GET', given)
return math.max(tonumber(epoch), type(last) == 'string' and tonumber(last) or 0)
