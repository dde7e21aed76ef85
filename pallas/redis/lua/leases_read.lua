-- Reads all leases and the time in one step, so that a renewal cannot fall between the two.
-- KEYS: leases (HASH)
-- ARGV:
-- Returns {milliseconds, the leases as a flat list of shard and record}.

local time = redis.call('TIME')
return {time[1] * 1000 + math.floor(time[2] / 1000), redis.call('HGETALL', leases)}
