-- Gives one message to exactly one holder where an end reports no sequences: by sequence first, else by content.
-- KEYS: block (HASH), hour (HASH), aside (HASH), open (HASH), books (HASH), plain (ZSET)
-- ARGV: token, field, record, ttl, space, seq, content, second, beside, shift, tolerance, observer
-- Returns 1 the caller holds the entry, 2 the same, and others told an equal content a second away that its worker has
-- not observed; 'q' state token gap and 'x' content time as entry_claim; by content 't' state token, h or a for the hash
-- it stands in, gap, or 's' sequence (2 bytes) gap where the claim stands in that sequence's entry. The gap is a byte,
-- by how many seconds the reports' times differ.
--
-- token, record  as in entry_claim; field and seq are empty for an end without sequences
-- content        9 bytes: digest of user and body (8), 16-second slot of the hour (1); second 0-15 within the slot
-- beside, shift  the neighbouring slot in hash `aside` and its distance, -16 or 16; `beside` is empty if out of reach
-- tolerance      seconds by which clocks may differ
-- observer       8 bytes: epoch of the worker whose accounts reported it (4), mark of account and message id (4); empty
--                where that worker has told of the message before, without its sequence
--
-- A content record is state, [token if it holds the claim], second + 16 if a sequence is known, number of observers,
-- [sequence (2)], observers. State s: the claim is in the sequence's entry. Which of two equal texts is which, nobody
-- can know; so there are as many records of one content as it has sequences, or as one worker has told apart, whichever is
-- more. A report opens a record only where its worker has observed all that there are, or where all have another
-- sequence. Else it is a copy, of the record nearest in time that its worker has not observed. What the same account
-- tells again is known by its mark, also by a worker that was started anew and remembers nothing.

local sequenced = field ~= ''
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
local won = 1

-- Private chats (@) and notices (!) have no sequences at all: nobody asks whether their space is marked.
if not sequenced and space:byte() ~= 64 and space:byte() ~= 33 then
    local marked = redis.call('ZSCORE', plain, space)
    -- By the message's own time, which is near enough to tell that there is nothing to renew.
    if not marked or marked - time < ttl * 0.95 then
        local now = tonumber(redis.call('TIME')[1])
        -- More lapsed marks go than ever come at once: none stays for good.
        local lapsed = redis.call('ZRANGE', plain, '-inf', '(' .. now, 'BYSCORE', 'LIMIT', 0, 8)
        if #lapsed > 0 then redis.call('ZREM', plain, unpack(lapsed)) end
        redis.call('ZADD', plain, 'GT', now + ttl, space)
        if redis.call('TTL', plain) < tonumber(ttl) then redis.call('EXPIRE', plain, ttl) end
    end
end

-- Most messages are the first of their content: nothing of this is built for them.
if records ~= '' or lists[1] ~= '' or (lists[2] or '') ~= '' then
    if #records % 19 ~= 0 then return redis.error_reply('WRONGTYPE field ' .. field .. ' is none of ours') end

    -- Adds the report to the record at `at` of list `which`: its observer, and its sequence where none is known.
    local function observe(which, at)
        local list = lists[which]
        local head = list:byte(at) == 115 and 1 or 11
        local flags, count = list:byte(at + head, at + head + 1)
        local rest, known = at + head + 2, ''
        if flags >= 16 then
            known, rest = list:sub(rest, rest + 1), rest + 2
        elseif sequenced then
            known, flags = own_seq, flags + 16
        end
        local who = count < 255 and observer or ''
        list = list:sub(1, at + head - 1) .. string.char(flags, count + #who / 8) .. known .. who .. list:sub(rest)
        if which == 1 then redis.call('HSET', hour, content, list) else redis.call('HSET', aside, beside, list) end
    end

    -- Of the records in reach: how many this worker has not observed, how many it has observed more than once and how
    -- often beyond; the nearest to join. Anywhere: the one of this sequence, the one of this very report.
    local unseen, surplus, told = 0, 0, false
    local best, where, nearest, spare, spare_at, by_seq, by_seq_at, again, again_at
    for which, list in ipairs(lists) do
        local at = 1
        while at <= #list do
            local head = list:byte(at) == 115 and 1 or 11
            local flags, count = list:byte(at + head, at + head + 1)
            local first = at + head + 2 + (flags >= 16 and 2 or 0)
            local stop = first + count * 8 - 1
            local own = 0
            if head == 11 and list:sub(at + 1, at + 10) == token then return 1 end
            for i = first, stop, 8 do
                local is_mark = list:sub(i + 4, i + 7) == mark
                if list:sub(i, i + 3) == epoch then
                    own = own + 1
                    told = told or is_mark
                end
                if is_mark and not sequenced then again, again_at = again or which, again_at or at end
            end
            local unnamed = flags < 16
            if sequenced and not unnamed and list:sub(first - 2, first - 1) == own_seq then
                by_seq, by_seq_at = which, at
            end
            local gap = math.abs(flags % 16 + (which == 2 and shift or 0) - second)
            if gap <= tonumber(tolerance) then
                if own == 0 then unseen = unseen + 1 else surplus = surplus + own - 1 end
                if unnamed or not sequenced then
                    if own == 0 and (not best or gap < nearest) then best, where, nearest = which, at, gap end
                    if own > 0 and unnamed and not spare then spare, spare_at = which, at end
                end
            elseif gap == 1 and own == 0 and (unnamed or not sequenced) then
                won = 2
            end
            at = stop + 1
        end
    end

    local sender = record:sub(16, 19)
    for at = 1, #records, 19 do
        if records:sub(at + 15, at + 18) == sender
            and math.abs(number(records, at + 11) - time) <= 3600 then
            local state = records:sub(at, at)
            if by_seq and observer ~= '' and not told then observe(by_seq, by_seq_at) end
            if not by_seq and state ~= 'p' and number(records, at + 11) == time then
                -- It was claimed before contents were kept here: from now on ends without sequences find it.
                local count = observer ~= '' and 1 or 0
                local kept = lists[1] .. 's' .. string.char(second + 16, count) .. own_seq .. observer
                redis.call('HSET', hour, content, kept)
                if redis.call('TTL', hour) < 0 then redis.call('EXPIRE', hour, ttl + 3600) end
            end
            if state == 'p' then return 'x' .. records:sub(at + 1, at + 9) .. records:sub(at + 11, at + 14) end
            if records:sub(at + 1, at + 10) == token then return 1 end
            return 'q' .. records:sub(at, at + 10) .. string.char(math.min(255, math.abs(number(records, at + 11) - time)))
        end
    end

    if again and (told or unseen > surplus) then
        best, where = again, again_at
    elseif observer ~= '' and unseen <= surplus then
        best = nil
    elseif sequenced and not best then
        best, where = spare, spare_at
    end
    if best then
        local list = lists[best]
        local state = list:sub(where, where)
        local head = state == 's' and 1 or 11
        local known = list:byte(where + head) >= 16 and list:sub(where + head + 2, where + head + 3) or ''
        if not told then observe(best, where) end
        if sequenced then
            -- Other sequenced ends will look by sequence: show them the way to the entry that holds the claim.
            local pointer = 'p' .. (best == 1 and content or beside) .. '\0' .. record:sub(12, 19)
            redis.call('HSET', block, field, (records .. pointer):sub(-57))
            redis.call('EXPIRE', block, math.ceil(ttl * 1.05))
        end
        local gap = math.abs(list:byte(where + head) % 16 + (best == 2 and shift or 0) - second)
        local found = state == 's' and 's' .. known or 't' .. list:sub(where, where + 10) .. (best == 1 and 'h' or 'a')
        return found .. string.char(gap)
    end
end

-- Counted and listed first: where a foreign value stands in the way, nothing is left half done.
redis.call('HINCRBY', books, 'distinct', 1)
local listed = redis.pcall('HSETNX', open, token, 'c' .. space .. '|' .. (sequenced and seq or time .. '|' .. content))
if listed ~= 1 then
    redis.call('HINCRBY', books, 'distinct', -1)
    -- Listed already: asked again by who holds it, whose record newer ones have pushed out.
    return listed == 0 and 1 or listed
end

local list = lists[1]
if sequenced then
    redis.call('HSET', block, field, (records .. record):sub(-57))
    if redis.call('TTL', block) < tonumber(ttl) then redis.call('EXPIRE', block, math.ceil(ttl * 1.05)) end
    list = list .. 's' .. string.char(second + 16, observer ~= '' and 1 or 0) .. own_seq .. observer
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
return won
