"""Breaks of the rules by which two reports are one message, and of those that find an end at fault."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_MATCH = "pallas/redis/lua/entry_match.lua"
_TABLE = "shard/matching.py"
_CONDUCT = "shard/conduct.py"
_TERMS = "shard/terms.py"
_MARK = "pallas/redis/lua/plain_mark.lua"
_ROSTER = "shard/roster.py"
_SELFCHECK = "shard/selfcheck.py"
_FLEET = "shard/fleet.py"
_ENDS = "tests/unit/test_conduct.py"
_CLOCKS = "tests/redis/test_clocks.py"


def _judged(fault: str, bar: str, test: str) -> Mutant:
    return Mutant(f"nobody is ever blamed: {fault}", _CONDUCT, bar, "few=10**9, share=0.0", f"{_ENDS}::{test}")


MUTANTS = (
    Mutant(
        "a worker's own twins a second apart are one",
        _TABLE,
        "                    if self._terms.tolerance_s:\n",
        "                    if self._terms is not None:\n",
        "tests/unit/test_matching.py::test_another_second_is_another_message_where_only_contents_can_tell",
    ),
    Mutant(
        "a sequence that a copy brings is kept to oneself",
        _TABLE,
        "        return Standing.LEARNED, entry\n",
        "        return Standing.ANOTHER, entry\n",
        "tests/redis/test_replays.py::test_a_sequence_that_others_gave_to_another_twin_is_a_message_of_its_own",
    ),
    Mutant(
        "a copy that brings a sequence is called ignored",
        "shard/pipeline.py",
        "return stops.NO_HANDLER if report.standing is Standing.NEW else stops.SAME_WORKER",
        "return stops.NO_HANDLER",
        "tests/redis/test_replays.py::test_a_first_copy_with_a_sequence_is_counted_as_a_copy",
    ),
    Mutant(
        "what a worker told apart is joined again",
        _MATCH,
        "    elseif observer ~= '' and unseen <= surplus then\n        best = nil\n",
        "",
        "tests/redis/test_replays.py::test_a_sequence_that_others_gave_to_another_twin_is_a_message_of_its_own",
    ),
    Mutant(
        "a second between two workers' reports is not noticed",
        _MATCH,
        "                won = 2\n",
        "                won = 1\n",
        f"{_CLOCKS}::test_a_plain_account_alone_on_its_worker_with_a_clock_that_is_off_is_found_out",
    ),
    Mutant(
        "what was joined across a second counts as agreed",
        _TABLE,
        "        elif gap_s:\n",
        "        elif gap_s > 1:\n",
        f"{_CLOCKS}::test_a_plain_account_alone_on_its_worker_with_a_clock_that_is_off_is_found_out",
    ),
    Mutant(
        "an open twin that its worker knows takes no sequence",
        _MATCH,
        "        best, where = spare, spare_at\n",
        "        best = nil\n",
        "tests/redis/test_replays.py"
        "::test_twins_that_two_workers_joined_differently_stay_two_while_one_of_them_is_late_to_tell",
    ),
    Mutant(
        "a mark hides a twin for ever",
        _MATCH,
        "if again and (told or unseen > surplus) then",
        "if again then",
        "tests/redis/test_replays.py"
        "::test_a_twin_that_was_taken_for_a_copy_after_a_restart_is_handled_once_the_replay_shows_it",
    ),
    Mutant(
        "no mark is kept of a report",
        _MATCH,
        "if is_mark and not sequenced then again",
        "if is_mark and sequenced then again",
        "tests/redis/test_match_by_content.py::test_a_report_told_again_by_the_same_account_is_a_replay",
    ),
    Mutant(
        "a new end without sequences waits until all have heard of it",
        "pallas/redis/lua/entry_claim.lua",
        " or tonumber(marks[2] or 0) >= now then",
        " then",
        "tests/redis/test_terms.py::test_until_all_workers_have_heard_of_it_the_scripts_keep_contents",
    ),
    Mutant(
        "older claims stay without content",
        _MATCH,
        "if not by_seq and state ~= 'p' and",
        "if by_seq and state ~= 'p' and",
        "tests/redis/test_terms.py::test_a_copy_with_a_sequence_makes_an_older_claim_known_by_its_content",
    ),
    Mutant(
        "an end is believed before it has shown a sequence",
        _TERMS,
        "            contents = now + _UNPROVEN_S\n",
        "            contents = 0\n",
        "tests/redis/test_terms.py::test_an_end_that_has_not_shown_what_it_is_asks_until_it_has",
    ),
    Mutant(
        "the end behind a new link is believed to be the old one",
        _TERMS,
        "_Known()).with_seq = self._roster.conducts[account.bot_id].with_seq",
        "_Known()).with_seq = 0",
        "tests/redis/test_terms.py::test_an_end_behind_a_new_link_must_show_again_what_it_is",
    ),
    Mutant(
        "a mark is believed after it lapsed",
        "pallas/redis/lua/entry_claim.lua",
        "if tonumber(marks[1] or 0) >= now or tonumber(marks[2] or 0) >= now then return -1 end",
        "return -1",
        "tests/redis/test_script_calls.py::test_a_mark_lapses_by_itself_though_others_keep_its_key",
    ),
    Mutant(
        "who needs a mark for less time cuts it short",
        _MARK,
        "'GT', ",
        "",
        "tests/redis/test_script_calls.py::test_a_mark_lives_as_long_as_whoever_set_it_last_needs_it",
    ),
    Mutant(
        "marks that lapsed stay for ever",
        _MATCH,
        "        if #lapsed > 0 then redis.call('ZREM', plain, unpack(lapsed)) end\n",
        "",
        "tests/redis/test_script_calls.py::test_marks_that_lapsed_go_with_new_ones_a_few_at_a_time",
    ),
    Mutant(
        "a private chat or a notice marks its space",
        _MATCH,
        "if not sequenced and space:byte() ~= 64 and space:byte() ~= 33 then",
        "if not sequenced then",
        "tests/redis/test_match_by_content.py::test_private_chats_and_notices_are_matched_by_content_and_never_marked",
    ),
    Mutant(
        "a mark lasts by the clock of the end",
        _MATCH,
        "        local now = tonumber(redis.call('TIME')[1])\n",
        "        local now = time\n",
        "tests/redis/test_script_calls.py::test_a_mark_lasts_by_the_servers_clock_whatever_that_of_the_end_says",
    ),
    Mutant(
        "a group's mark is never renewed",
        _MATCH,
        "if not marked or marked - time < ttl * 0.95 then",
        "if not marked then",
        "tests/redis/test_match_by_content.py::test_a_plain_group_stays_known_as_long_as_it_is_one_and_no_longer",
    ),
    Mutant(
        "the mark goes before all have heard",
        _TERMS,
        "        if mono < self._marked_until - _HEARD_S:\n",
        "        if mono < self._marked_until:\n",
        "tests/redis/test_terms.py"
        "::test_while_an_end_asks_for_contents_the_scripts_know_it_for_workers_that_have_not_heard",
    ),
    Mutant(
        "the mark of an end that shows a sequence at once lasts longer than all need to hear of it",
        _TERMS,
        "life_s = _DEAF_S if self._marked_until else int(_HEARD_S)",
        "life_s = _DEAF_S",
        "tests/redis/test_terms.py::test_the_mark_of_an_end_that_soon_shows_a_sequence_is_not_renewed",
    ),
    Mutant(
        "one foreign value keeps an end from being announced",
        _TERMS,
        "        elif isinstance(failed, RedisError):\n",
        "        elif isinstance(failed, KeyError):\n",
        "tests/redis/test_terms.py::test_a_foreign_value_under_one_mark_keeps_nobody_from_being_announced",
    ),
    Mutant(
        "how an end behaved outlives what is known of its account",
        _ROSTER,
        "            del self.conducts[bot_id]\n",
        "            pass\n",
        "tests/unit/test_roster.py::test_how_ends_behaved_is_remembered_as_long_as_their_accounts",
    ),
    Mutant(
        "accounts that are gone are judged for ever",
        _SELFCHECK,
        "        self._looked = looked\n",
        "        self._looked |= looked\n",
        f"{_ENDS}::test_accounts_that_were_forgotten_take_no_room_and_still_count",
    ),
    Mutant(
        "an account that came back is taken for what it was",
        _SELFCHECK,
        "if last is None or last.conduct is not conduct:",
        "if last is None:",
        f"{_ENDS}::test_an_account_that_comes_back_between_two_looks_counts_from_its_first_report",
    ),
    Mutant(
        "an account is ours for as long as a worker runs",
        _FLEET,
        "            del self._known[bot_id]\n",
        "            pass\n",
        "tests/redis/test_fleet.py::test_what_the_register_forgot_its_workers_forget_with_their_next_look",
    ),
    Mutant(
        "what Redis lost is ours no more",
        _FLEET,
        "if server_s - seen > FLEET_TTL_S and one not in listed]:",
        "if seen < math.inf and one not in listed]:",
        "tests/redis/test_fleet.py::test_who_was_lost_with_redis_is_still_ours",
    ),
    Mutant(
        "a wrong clock makes connected accounts strangers",
        _FLEET,
        " and one not in listed]:",
        "]:",
        "tests/redis/test_fleet.py"
        "::test_an_account_that_is_connected_is_never_forgotten_however_wrong_its_workers_clock",
    ),
    Mutant(
        "a clock once off is off for ever",
        _CONDUCT,
        "return was and (not enough or bad * 4 >= rule.share * of)",
        "return was",
        f"{_ENDS}::test_a_clock_that_agrees_again_counts_as_right_again",
    ),
    Mutant(
        "one repeat makes a clock wrong",
        _CONDUCT,
        "few=6, share=1 / 16",
        "few=1, share=0.0",
        f"{_ENDS}::test_people_who_repeat_themselves_after_a_second_make_no_clock_wrong",
    ),
    Mutant(
        "private chats lack a sequence",
        _TABLE,
        "            if message.group_id:\n                conduct.without_seq += 1\n",
        "            if message.bot_id:\n                conduct.without_seq += 1\n",
        f"{_ENDS}::test_private_chats_carry_no_sequence_and_nobody_is_blamed_for_it",
    ),
    _judged("clocks", "few=6, share=1 / 16", "test_without_sequences_a_clock_is_found_off_by_what_nearly_matched"),
    _judged(
        "clocks far off", "few=5,\n        share=0.6,", "test_a_clock_that_is_far_off_is_told_by_the_sequences_alone"
    ),
    _judged("no sequence", "few=5, share=0.5", "test_an_end_without_sequences_is_named_and_what_to_update"),
    _judged("wrong sequence", "few=3, share=0.3", "test_sequences_that_belong_to_others_are_noticed"),
    _judged("no id", "few=20, share=0.5", "test_an_end_that_gives_no_message_ids_is_noticed"),
    _judged("replays", "few=20, share=0.3", "test_an_end_that_reports_everything_twice_is_noticed"),
    _judged(
        "never matched",
        "few=40,\n        share=1.0,",
        "test_an_account_that_never_matches_those_of_its_group_is_noticed",
    ),
)
