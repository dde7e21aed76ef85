"""Breaks of who lives and who holds what: lapses, ends, what was given back, the order of a group, presence."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_LUA = "pallas/redis/lua"
_REDIS = "tests/redis"

MUTANTS = (
    Mutant(
        "an end is forgotten once Redis has confirmed it",
        "pallas/endings.py",
        "            self._told[token] = ending\n",
        "",
        f"{_REDIS}/test_orphans.py::test_an_end_that_redis_confirmed_and_forgot_is_told_again[handled-in its epoch]",
    ),
    Mutant(
        "confirmed ends are remembered for ever",
        "pallas/endings.py",
        "self._told_before, self._told = self._told, {}",
        "self._told_before = self._told",
        f"{_REDIS}/test_orphans.py::test_of_confirmed_ends_the_last_ones_are_remembered_and_no_more",
    ),
    Mutant(
        "a worker ends what it has in hand",
        "shard/orphans.py",
        "        if self._claims.has_in_hand(token):\n            return False\n",
        "",
        f"{_REDIS}/test_orphans.py::test_what_a_living_worker_lost_sight_of_is_ended_after_the_time",
    ),
    Mutant(
        "nobody is believed dead by silence",
        "shard/lapses.py",
        "return known is None or self._clock.mono() - known[1] > self._lives.get(epoch, self._life_s)",
        "return known is None",
        f"{_REDIS}/test_lapses.py::test_a_lease_that_redis_keeps_alive_by_a_clock_set_back_dies_by_silence",
    ),
    Mutant(
        "who was leased after the look is dead",
        "shard/lapses.py",
        "if known is None and self._newest and epoch > self._newest:",
        "if known is None and not self._newest and epoch > self._newest:",
        f"{_REDIS}/test_lapses.py::test_an_epoch_that_was_given_out_after_the_look_is_not_dead",
    ),
    Mutant(
        "what is given back keeps its epoch",
        "pallas/claim.py",
        "    return token[:2] + bytes(4) + token[6:]\n",
        "    return token\n",
        f"{_REDIS}/test_take_over.py::test_where_the_winners_link_is_gone_another_worker_answers",
    ),
    Mutant(
        "a message whose link is gone is not given back",
        "shard/pipeline.py",
        "            if actions.unsent is not None and self._may_go_back(report, actions, actions.unsent):\n",
        "            if actions.unsent is not None and self._is_alone():\n",
        f"{_REDIS}/test_take_over.py::test_the_handler_that_swallows_a_lost_link_has_not_answered",
    ),
    Mutant(
        "handlers start as Redis answers",
        "shard/pipeline.py",
        "turn.come(_IN_TURN_S, partial(self._in_turn, report, turn))",
        "self._in_turn(report, turn)",
        f"{_REDIS}/test_group_order.py::test_a_burst_is_handled_in_the_order_of_its_arrival",
    ),
    Mutant(
        "an undecided message holds up its group for good",
        "shard/turns.py",
        "call_later(limit_s, self._come)",
        "call_later(limit_s * 1000, self._come)",
        "tests/unit/test_turns.py::test_a_message_that_nobody_decides_holds_up_those_behind_it_for_the_limit_only",
    ),
    Mutant(
        "the older connection is shown",
        f"{_LUA}/presence_put.lua",
        "tonumber(connected) > tonumber(connected_ms)",
        "tonumber(connected) < tonumber(connected_ms)",
        f"{_REDIS}/test_presence.py::test_the_worker_with_the_newer_connection_is_shown",
    ),
    Mutant(
        "a late close removes what another worker wrote",
        f"{_LUA}/presence_drop.lua",
        "if not holder or (holder ~= epoch and",
        "if not holder or (holder == epoch and",
        f"{_REDIS}/test_presence.py::test_a_late_close_at_the_old_worker_leaves_the_new_one_alone",
    ),
    Mutant(
        "a take-over that is heard of too late is answered",
        "shard/pipeline.py",
        "        elif not self._patience(report):\n",
        "        elif report is None:\n",
        f"{_REDIS}/test_take_over.py::test_a_take_over_that_is_heard_of_too_late_is_dropped",
    ),
    Mutant(
        "a look that fails loses its message",
        "shard/standby.py",
        "            if found is Verdict.UNKNOWN:\n",
        "            if found is Verdict.LOST:\n",
        f"{_REDIS}/test_take_over.py::test_a_message_that_cannot_be_looked_at_is_kept",
    ),
    Mutant(
        "a claim asked again is counted again",
        f"{_LUA}/entry_claim.lua",
        "redis.pcall('HSETNX', open, token, 'c' .. space .. '|' .. seq)",
        "math.abs(redis.pcall('HSET', open, token, 'c' .. space .. '|' .. seq) - 0.5) * 2",
        f"{_REDIS}/test_pushed_out.py::test_a_claim_asked_again_after_it_was_pushed_out_is_held_and_counted_once",
    ),
    Mutant(
        "a worker that starts does not wait for a slow Redis",
        "shard/worker.py",
        "await own_prefix(self._redis.control,",
        "await own_prefix(self._redis,",
        f"{_REDIS}/test_redis_slow.py::test_a_worker_starts_and_is_ready_while_every_answer_of_redis_is_late",
    ),
    Mutant(
        "pages do not wait for a slow Redis",
        "shard/redis_view.py",
        "self._redis = redis.patient",
        "self._redis = redis",
        f"{_REDIS}/test_redis_slow.py::test_a_worker_starts_and_is_ready_while_every_answer_of_redis_is_late",
    ),
    Mutant(
        "who has looked once is in no hurry",
        "shard/standby.py",
        "        one.tried = bool(one.claim.holder) and self._lapses.is_dead(epoch_of(one.claim.holder))\n",
        "        one.tried = True\n",
        f"{_REDIS}/test_take_over.py::test_who_looked_while_the_holder_lived_takes_it_as_soon_as_the_holder_is_dead",
    ),
    Mutant(
        "a lapse counts as a dead link",
        "shard/pipeline.py",
        "            report.returns += stop is stops.NO_LINK\n",
        "            report.returns += 1\n",
        f"{_REDIS}/test_take_over.py::test_a_lease_that_lapses_again_and_again_costs_no_message",
    ),
    Mutant(
        "time without a lease counts",
        "shard/orphans.py",
        "        if self._is_leased():\n",
        "        if self._is_leased is not None:\n",
        f"{_REDIS}/test_orphans.py::test_time_without_a_lease_is_not_counted_for_its_standbys_can_take_nothing",
    ),
    Mutant(
        "whatever is open here is taken for forgotten at first sight",
        "shard/orphans.py",
        "is_told = token in self._since and self._claims.end_again(token)",
        "is_told = self._claims.end_again(token)",
        f"{_REDIS}/test_orphans.py::test_an_end_that_redis_confirmed_and_forgot_is_told_again[handled-in its epoch]",
    ),
    Mutant(
        "what ended under a former epoch is not told again",
        "shard/orphans.py",
        " or self._claims.end_again(token):\n",
        ":\n",
        f"{_REDIS}/test_orphans.py::test_an_end_that_redis_confirmed_and_forgot_is_told_again[handled-after its epoch]",
    ),
    Mutant(
        "what was given back is given back again",
        "pallas/endings.py",
        "if ending is not None and (ending.call is None or ending.call[0] is self._abandon):",
        "if ending is not None:",
        f"{_REDIS}/test_orphans.py::test_a_message_that_was_given_back_is_not_given_back_again_where_redis_forgot_it",
    ),
    Mutant(
        "a message that fails in its turn keeps its place",
        "shard/pipeline.py",
        "        finally:\n            turn.over(started=True)\n",
        "        except ZeroDivisionError:\n            pass\n        else:\n            turn.over(started=True)\n",
        f"{_REDIS}/test_group_order.py::test_a_message_that_fails_in_its_turn_holds_up_nobody",
    ),
    Mutant(
        "a link that came back hides that nobody was answered",
        "shard/pipeline.py",
        "return actions.found_nobody or error.retcode",
        "return error.retcode",
        f"{_REDIS}/test_take_over.py"
        "::test_where_the_link_was_gone_at_the_reply_and_is_back_by_the_end_another_worker_answers",
    ),
    Mutant(
        "an effect whose entry is lost is claimed without a token",
        "pallas/claims.py",
        "if reply == -1 and claim.token is token and await",
        "if reply == -1 and await",
        f"{_REDIS}/test_claims_in_doubt.py"
        "::test_what_is_given_back_while_its_effect_is_recorded_is_not_claimed_anew_without_a_token",
    ),
)
