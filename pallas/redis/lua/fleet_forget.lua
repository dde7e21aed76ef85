-- Removes an account that was not seen for long from the fleet's register, if it is still as the caller read it.
-- KEYS: fleet (HASH)
-- ARGV: account, value
-- Returns 1 removed, 0 it was announced meanwhile.

if redis.call('HGET', fleet, account) ~= value then return 0 end
return redis.call('HDEL', fleet, account)
