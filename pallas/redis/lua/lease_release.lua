-- Ends a lease at once, only for the epoch that holds it.
-- KEYS: leases (HASH)
-- ARGV: shard, epoch
-- Returns 1 released, 0 not the holder.

local record = redis.call('HGET', leases, shard)
if not record or record:match('^(%d+)|') ~= epoch then return 0 end
redis.call('HDEL', leases, shard)
return 1
