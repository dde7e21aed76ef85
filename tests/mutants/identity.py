"""Breaks of the rules by which two reports are one message, and of those that find an end at fault."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_MATCH = "pallas/redis/lua/entry_match.lua"
_TABLE = "shard/matching.py"
_CONDUCT = "shard/conduct.py"
_TERMS = "shard/terms.py"
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
        "return NO_HANDLER if report.standing is Standing.NEW else SAME_WORKER",
        "return NO_HANDLER",
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
        "if kept[1] == 1 or kept[2] == 1 then",
        "if kept[1] == 1 then",
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
        "the mark goes before all have heard",
        _TERMS,
        "            self._unmark_at = self._clock.mono() + _HEARD_S\n",
        "            self._unmark_at = self._clock.mono()\n",
        "tests/redis/test_terms.py::test_until_all_workers_have_heard_of_it_the_scripts_keep_contents",
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
