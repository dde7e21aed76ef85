-- Removes an account's presence: for the epoch that wrote it, or for anybody once it has not been seen for long.
-- KEYS: presence (HASH)
-- ARGV: account, epoch, purge_ms
-- Returns 1 removed, 0 kept; a foreign value is kept.
--
-- `epoch` is empty to purge by age alone.

local value = redis.call('HGET', presence, account)
if not value then return 0 end
local holder, seen = value:match('^(%d+)|%d+|(%d+)|')
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if not holder or (holder ~= epoch and now - tonumber(seen) < tonumber(purge_ms)) then return 0 end
return redis.call('HDEL', presence, account)
