"""The breaks: what is written instead of what, and which test must notice."""

from __future__ import annotations

from tests.mutants import identity, lives
from tests.mutants.mutant import Mutant

_LUA = "pallas/redis/lua"
_REDIS = "tests/redis"

MUTANTS = (
    Mutant(
        "an effect needs no token",
        f"{_LUA}/entry_mark.lua",
        "local at = list and list:find(token, 1, true)",
        "local at = list and 2",
        f"{_REDIS}/test_script_calls.py::test_only_the_holder_moves_an_entry",
    ),
    Mutant(
        "what another has won may still be sent",
        "pallas/claims.py",
        "            if reply < 1:\n",
        "            if reply < -9:\n",
        f"{_REDIS}/test_epochs_change.py::test_nothing_is_sent_for_an_entry_that_redis_lost_and_another_has_won",
    ),
    Mutant(
        "the lease is not looked at before a send",
        "pallas/claims.py",
        "        if not self._epoch.allows(claim.token):\n            self._meters.fenced()\n            raise",
        "        if self._epoch is None:\n            self._meters.fenced()\n            raise",
        f"{_REDIS}/test_take_over.py::test_a_worker_that_wakes_from_its_hosts_sleep_acts_under_a_new_epoch_only",
    ),
    Mutant(
        "a lease is deleted by whoever comes",
        f"{_LUA}/lease_release.lua",
        "if not record or record:match('^(%d+)|') ~= epoch then return 0 end",
        "if not record then return 0 end",
        f"{_REDIS}/test_script_calls.py::test_a_lease_is_taken_renewed_and_released_by_its_epoch_alone",
    ),
    Mutant(
        "a lapsed lease is renewed",
        f"{_LUA}/lease_renew.lua",
        "if holder ~= epoch or tonumber(limit) <= now then return 0 end",
        "if holder ~= epoch then return 0 end",
        f"{_REDIS}/test_lease.py::test_an_epoch_that_lapsed_is_never_prolonged",
    ),
    Mutant(
        "marked done before the work",
        "shard/pipeline.py",
        "            report.claim = claim\n            if self._faults is not None:\n"
        "                self._faults.hit(Point.CLAIMED)\n",
        "            report.claim = claim\n            self._claims.end(claim, stops.HANDLED.outcome, Reason.OK)\n",
        f"{_REDIS}/test_take_over.py::test_a_message_whose_holder_dies_before_the_effect_is_answered_by_another_worker",
    ),
    Mutant(
        "no effect is recorded",
        "shard/actions.py",
        "            await calls.claims.effect(self._claim)",
        "            self._claim.begun = True",
        f"{_REDIS}/test_take_over.py::test_a_message_whose_effect_had_begun_is_never_sent_again_and_shown_as_unknown",
    ),
    Mutant(
        "what has begun is taken over",
        f"{_LUA}/entry_take.lua",
        "    if list:sub(at - 1, at - 1) ~= 'c' then return 0 end\n",
        "",
        f"{_REDIS}/test_epochs_change.py::test_an_entry_that_was_begun_is_not_taken_over",
    ),
    Mutant(
        "a standby takes from the living",
        "shard/standby.py",
        'state == b"c" and may and self._lapses.is_dead(epoch_of(claim.holder))',
        'state == b"c" and may',
        f"{_REDIS}/test_take_over.py::test_a_living_holder_keeps_its_message_however_long_it_takes",
    ),
    Mutant(
        "Unknown is taken for Lost",
        "pallas/claims.py",
        "                self._undecided(error)\n                if self._loop.time() > limit:\n",
        "                return Verdict.LOST\n                if self._loop.time() > limit:\n",
        f"{_REDIS}/test_claims_in_doubt.py::test_a_win_whose_reply_was_cut_is_a_win_when_asked_again",
    ),
    Mutant(
        "an unknown send is called an error",
        "shard/pipeline.py",
        "        return stops.SENT_UNKNOWN if actions.in_doubt else stops.HANDLER_ERROR",
        "        return stops.HANDLER_ERROR",
        f"{_REDIS}/test_take_over.py::test_a_send_without_an_answer_is_listed_with_account_and_handler",
    ),
    Mutant(
        "own token is not recognised",
        f"{_LUA}/entry_claim.lua",
        "            if records:sub(at + 1, at + 10) == token then return 1 end\n",
        "",
        f"{_REDIS}/test_claims_in_doubt.py::test_a_win_whose_reply_was_cut_is_a_win_when_asked_again",
    ),
    Mutant(
        "a sequence counts for ever",
        f"{_LUA}/entry_claim.lua",
        "            and math.abs(number(records, at + 11) - time) <= 3600 then\n",
        "            and math.abs(number(records, at + 11) - time) <= 3600000 then\n",
        f"{_REDIS}/test_claims.py::test_one_sequence_is_one_message_only_for_one_sender_and_hour",
    ),
    Mutant(
        "twins a second apart are one",
        "shard/report.py",
        "claim.tolerance_s = group.terms.tolerance_s",
        "claim.tolerance_s = 1",
        f"{_REDIS}/test_identity_whole_path.py::test_without_sequences_as_many_are_handled_as_the_account_that_saw_most",
    ),
    Mutant(
        "an observer is forgotten",
        "shard/matching.py",
        "        observers.append(message.bot_id)\n",
        "",
        "tests/unit/test_matching.py::test_nine_accounts_and_three_messages_are_three_in_every_order",
    ),
    Mutant(
        "a late end corrects what it did not hold",
        f"{_LUA}/entry_late.lua",
        "if state ~= 'u' then return 0 end",
        "",
        f"{_REDIS}/test_entry_life.py::test_every_order_of_steps_leaves_one_holder_and_balanced_books",
    ),
    Mutant(
        "orphans are ended at once",
        "shard/orphans.py",
        "return self._served_s - began >= self._after_s",
        "return True",
        f"{_REDIS}/test_take_over.py::test_where_the_only_link_comes_back_in_time_its_account_answers",
    ),
    *identity.MUTANTS,
    *lives.MUTANTS,
)
