-- Leases a shard id to one new worker epoch, or says who holds it: two live workers never share an id.
-- KEYS: leases (HASH), epoch (STRING)
-- ARGV: shard, life_ms, keep_ms, attempt, after, info
-- Returns {1, shard, epoch} or {0, shard, holder's record}; {0, 256, ''} where every id is leased.
--
-- `shard` is an id, or empty for the lowest free one. A record is epoch|until_ms|attempt|info; times are the server's.
-- `attempt` names one wish for a lease: asked again after a lost reply, it gets the lease it already has. The epoch
-- also rises with the server's clock and above `after`, the last one that the caller has heard of, so that a server that forgot everything
-- does not bring a dead epoch back. A foreign value counts as held: nothing of others is overwritten.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function live(id)
    local record = redis.call('HGET', leases, id)
    local limit = record and tonumber(record:match('^%d+|(%d+)|') or '')
    return not (limit and limit <= now) and record or nil
end

local function ours(record)
    return record and record:match('^%d+|%d+|(%w*)|') == attempt
end

local id = shard
if id == '' then
    id = 0
    while id < 256 and live(tostring(id)) and not ours(live(tostring(id))) do id = id + 1 end
    if id == 256 then return {0, '256', ''} end
    id = tostring(id)
end
local holder = live(id)
if holder and not ours(holder) then return {0, id, holder} end

local function lease(number)
    redis.call('HSET', leases, id, string.format('%s|%d|%s|%s', number, now + life_ms, attempt, info))
    redis.call('PEXPIRE', leases, keep_ms)
    return {1, id, number}
end

-- The caller counts the lease's life from this answer, so it begins anew.
if holder then return lease(holder:match('^%d+')) end
local stored = redis.call('GET', epoch)
local last = tonumber(stored or '0')
if not last then return redis.error_reply('WRONGTYPE the last epoch given out is no number') end
local fresh = math.max(last + 1, tonumber(time[1]), after + 1)
-- Workers that the server forgot still run, under epochs that the caller may not have heard of: a leap past them all.
if not stored then fresh = fresh + 256 end
redis.call('SET', epoch, string.format('%d', fresh))
return lease(string.format('%d', fresh))
