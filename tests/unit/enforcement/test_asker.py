"""What the process that asks remembers of a run: what is open, and what was allowed."""

from __future__ import annotations

from democrai_osguard.enforcement.asker import Questions


def question(number: int, target: str = "/x") -> dict[str, object]:
    return {"id": number, "resource_type": "filesystem", "operation": "read", "target": target}


def test_a_run_that_asks_without_end_is_remembered_once() -> None:
    questions = Questions()
    for number in range(1000):
        questions.take(question(number))
        questions.answered(number, "yes")
    assert questions.allowed() == [question(0)]
    assert not questions._open  # noqa: SLF001 - what would grow with every question


def test_what_was_refused_or_taken_back_is_not_remembered() -> None:
    questions = Questions()
    questions.take(question(1))
    questions.take(question(2, "/y"))
    questions.answered(1, "no")
    questions.take({"gone": 2})
    assert questions.allowed() == []
    assert not questions._open  # noqa: SLF001
