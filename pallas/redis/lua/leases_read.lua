-- Reads all leases and the time in one step, so that a renewal cannot fall between the two.
-- KEYS: leases (HASH), epoch (STRING)
-- ARGV:
-- Returns {milliseconds, the leases as a flat list of shard and record, the last epoch given out}.

local time = redis.call('TIME')
-- A foreign value in its place must not hide the leases.
local last = redis.pcall('GET', epoch)
if type(last) ~= 'string' then last = '0' end
return {time[1] * 1000 + math.floor(time[2] / 1000), redis.call('HGETALL', leases), last}
