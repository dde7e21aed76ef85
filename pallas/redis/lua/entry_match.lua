-- Gives one message to exactly one holder where an end reports no sequences: by sequence first, else by content.
-- KEYS: block (HASH), hour (HASH), aside (HASH), open (HASH), books (HASH), plain (SET)
-- ARGV: token, field, record, ttl, space, seq, content, second, beside, shift, tolerance, observer
-- Returns 1 the caller holds the entry, 'q' state token and 'x' content as entry_claim; by content 't' state token,
-- or 's' sequence (2 bytes) where the claim stands in that sequence's entry.
--
-- token, record  as in entry_claim; field and seq are empty for an end without sequences
-- content        9 bytes: digest of user and body (8), 16-second slot of the hour (1); second 0-15 within the slot
-- beside, shift  the neighbouring slot in hash `aside` and its distance, -16 or 16; `beside` is empty if out of reach
-- tolerance      seconds by which clocks may differ
-- observer       8 bytes: epoch of the worker whose accounts reported it (4), mark of account and message id (4)
--
-- A content record is state, [token if it holds the claim], second + 16 if a sequence is known, number of observers,
-- [sequence (2)], observers. State s: the claim is in the sequence's entry. A report matches the record nearest in time
-- that its epoch has not observed: so a worker that told two of them apart never has them joined again, and one that
-- was started anew, and remembers nothing, does not take a late copy for a second message.

local sequenced = field ~= ''
if not sequenced and (redis.call('SADD', plain, space) == 1 or redis.call('TTL', plain) < ttl * 0.95) then
    redis.call('EXPIRE', plain, ttl)
end

local function number(text, at)
    local a, b, c, d = text:byte(at, at + 3)
    return ((a * 256 + b) * 256 + c) * 256 + d
end

local epoch, mark = observer:sub(1, 4), observer:sub(5, 8)
local own_seq = sequenced and string.char(math.floor(seq / 256), seq % 256) or ''
local records = sequenced and redis.call('HGET', block, field) or ''
local lists = {redis.call('HGET', hour, content) or ''}
if beside ~= '' then lists[2] = redis.call('HGET', aside, beside) or '' end

local time = number(record, 12)

-- Most messages are the first of their content: nothing of this is built for them.
if records ~= '' or lists[1] ~= '' or (lists[2] or '') ~= '' then
    -- The record of `list` that starts at `at`: head length, second, sequence or '', end, whether the epoch observed it,
    -- whether this very report did.
    local function read(list, at)
        local head = list:byte(at) == 115 and 1 or 11
        local flags, count = list:byte(at + head, at + head + 1)
        local known = flags >= 16 and list:sub(at + head + 2, at + head + 3) or ''
        local first = at + head + 2 + #known
        local stop = first + count * 8 - 1
        local seen, same = false, false
        for i = first, stop, 8 do
            seen = seen or list:sub(i, i + 3) == epoch
            same = same or list:sub(i + 4, i + 7) == mark
        end
        return head, flags % 16, known, stop, seen, same
    end

    -- Adds the report to the record at `at` of list `which`.
    local function observe(which, at)
        local list = lists[which]
        local head, at_second, known, stop = read(list, at)
        local _, count = list:byte(at + head, at + head + 1)
        if count == 255 then return end
        local now_known = known ~= '' and known or own_seq
        list = list:sub(1, at + head - 1)
            .. string.char(at_second + (now_known ~= '' and 16 or 0), count + 1) .. now_known
            .. list:sub(at + head + 2 + #known, stop) .. observer .. list:sub(stop + 1)
        if which == 1 then redis.call('HSET', hour, content, list) else redis.call('HSET', aside, beside, list) end
    end

    -- Calls visit(which, at, gap, known, seen, same) for each record until it answers true.
    local function each(visit)
        for which, list in ipairs(lists) do
            local at = 1
            while at <= #list do
                local _, at_second, known, stop, seen, same = read(list, at)
                local gap = math.abs(at_second + (which == 2 and shift or 0) - second)
                if visit(which, at, gap, known, seen, same) then return end
                at = stop + 1
            end
        end
    end

    local sender = record:sub(16, 19)
    for at = 1, #records, 19 do
        if records:sub(at + 15, at + 18) == sender
            and math.abs(number(records, at + 11) - time) <= 3600 then
            each(function(which, i, _, known, seen)
                if known ~= own_seq then return false end
                if not seen then observe(which, i) end
                return true
            end)
            local state = records:sub(at, at)
            if state == 'p' then return 'x' .. records:sub(at + 1, at + 9) end
            if records:sub(at + 1, at + 10) == token then return 1 end
            return 'q' .. records:sub(at, at + 10)
        end
    end

    local best, where, nearest, again
    each(function(which, at, gap, known, seen, same)
        if same and not sequenced then
            best, where, again = which, at, true
            return true
        end
        if gap <= tonumber(tolerance) and not seen and not (sequenced and known ~= '') and (not best or gap < nearest) then
            best, where, nearest = which, at, gap
        end
        return false
    end)
    if best then
        local list = lists[best]
        local state = list:sub(where, where)
        local _, _, known = read(list, where)
        if state ~= 's' and list:sub(where + 1, where + 10) == token then return 1 end
        if not again then
            observe(best, where)
            if sequenced then
                -- Other sequenced ends will look by sequence: show them the way to the entry that holds the claim.
                local pointer = 'p' .. (best == 1 and content or beside) .. '\0' .. record:sub(12, 19)
                redis.call('HSET', block, field, (records .. pointer):sub(-57))
                redis.call('EXPIRE', block, math.ceil(ttl * 1.05))
            end
        end
        return state == 's' and 's' .. known or 't' .. list:sub(where, where + 10)
    end
end

local list = lists[1]
if sequenced then
    redis.call('HSET', block, field, (records .. record):sub(-57))
    if redis.call('TTL', block) < tonumber(ttl) then redis.call('EXPIRE', block, math.ceil(ttl * 1.05)) end
    list = list .. 's' .. string.char(second + 16, 1) .. own_seq .. observer
else
    list = list .. 'c' .. token .. string.char(second, 1) .. observer
end
-- One user cannot grow a slot without end: past 2 kB the oldest twin is forgotten.
while #list > 2048 do
    local head = list:byte(1) == 115 and 1 or 11
    local flags, count = list:byte(1 + head, 2 + head)
    list = list:sub(head + 3 + (flags >= 16 and 2 or 0) + count * 8)
end
redis.call('HSET', hour, content, list)
if redis.call('TTL', hour) < 0 then redis.call('EXPIRE', hour, ttl + 3600) end
redis.call('HSET', open, token, 'c' .. space .. '|' .. (sequenced and seq or time .. '|' .. content))
redis.call('HINCRBY', books, 'distinct', 1)
return 1
