"""The list of deliberate breaks stays true: each text to break exists once, each test it names exists."""

from __future__ import annotations

import pytest

from tests.mutants.mutant import Mutant
from tests.mutants.seeds import MUTANTS
from tests.support.tree import ROOT

EACH = pytest.mark.parametrize("mutant", MUTANTS, ids=[one.name for one in MUTANTS])


@EACH
def test_the_text_to_break_stands_once(mutant: Mutant) -> None:
    assert (ROOT / mutant.file).read_text("utf-8").count(mutant.old) == 1
    assert mutant.old != mutant.new


@EACH
def test_the_test_that_must_notice_exists(mutant: Mutant) -> None:
    file, _, name = mutant.test.partition("::")
    text = (ROOT / file).read_text("utf-8")
    assert name, "a whole file notices everything and pins nothing"
    assert f"def {name.partition('[')[0]}(" in text


def test_there_are_at_least_ten_and_no_two_alike() -> None:
    assert len({one.name for one in MUTANTS}) == len(MUTANTS) >= 10
