"""What the next worker and the supervisor find in a journal, whenever the last worker stopped."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from bitedge.serve.journal import MOST_MARKS, Journal, Standing, create_journal, standing

BODY = 1 << 20


@pytest.fixture
def descriptor() -> Iterator[int]:
    number = create_journal(BODY)
    yield number
    os.close(number)


def receive(journal: Journal, data: bytes) -> bytes:
    """Do what the kernel does."""
    room = journal.room()
    room[: len(data)] = data
    room.release()
    return journal.take(len(data))


def answer(journal: Journal, size: int, answers: int = 1) -> None:
    journal.sent += size
    journal.mark(answers)


def test_an_empty_journal_is_the_beginning_of_a_connection(descriptor: int) -> None:
    assert standing(descriptor, 0) == Standing(mark=0, request=(0, 0), busy=False)
    journal = Journal(descriptor)
    assert (journal.content, journal.answered, journal.sent) == (b"", 0, 0)


def test_a_request_is_found_by_the_next_worker_until_its_answer_was_written(descriptor: int) -> None:
    journal = Journal(descriptor)
    assert receive(journal, b"GET") == b"GET"
    journal.begin()
    receive(journal, b" / ")
    answer(journal, 100)
    journal.close()
    assert standing(descriptor, 0) == Standing(mark=0, request=(0, 0), busy=True), "marked, but not written"
    assert standing(descriptor, 60) is None, "half of it was written"
    assert standing(descriptor, 100) == Standing(mark=1, request=(0, 1), busy=False)
    again = Journal(descriptor, received=6, mark=0)
    assert (again.content, again.answered, again.sent) == (b"GET / ", 0, 0)
    answer(again, 70)
    assert standing(descriptor, 70) == Standing(mark=1, request=(0, 1), busy=False)
    assert standing(descriptor, 100) is None, "what the first worker marked holds no longer"


def test_after_a_restart_only_the_new_counts(descriptor: int) -> None:
    journal = Journal(descriptor)
    for round_number in range(1, 4):
        data = f"request {round_number}".encode()
        receive(journal, data)
        journal.begin()
        assert journal.content == data
        answer(journal, 10)
        journal.restart()
        assert standing(descriptor, 10 * round_number) == Standing(0, (9 * round_number, 0), busy=False)
        assert standing(descriptor, 10 * round_number - 10) is None
    journal.close()
    assert Journal(descriptor, received=27).sent == 30


def test_of_several_requests_those_that_were_answered_are_known(descriptor: int) -> None:
    journal = Journal(descriptor)
    receive(journal, b"a b c")
    for size in (10, 20, 30):
        journal.begin()
        answer(journal, size)
    journal.close()
    assert [standing(descriptor, written) for written in (0, 10, 30, 60)] == [
        Standing(answered, (0, answered), busy=answered < 3) for answered in range(4)
    ]
    again = Journal(descriptor, received=5, mark=2)
    assert (again.content, again.answered, again.sent) == (b"a b c", 2, 30)


def test_an_invitation_to_go_on_is_no_answer(descriptor: int) -> None:
    journal = Journal(descriptor)
    receive(journal, b"head")
    journal.begin()
    answer(journal, 25, answers=0)
    answer(journal, 100)
    assert standing(descriptor, 25) == Standing(mark=1, request=(0, 0), busy=True)
    assert standing(descriptor, 125) == Standing(mark=2, request=(0, 1), busy=False)


def test_a_connection_that_was_to_be_closed_goes_on_only_for_what_is_not_answered(descriptor: int) -> None:
    journal = Journal(descriptor)
    receive(journal, b"head")
    journal.begin()
    journal.end()
    answer(journal, 100)
    assert standing(descriptor, 100) is None
    assert standing(descriptor, 0) == Standing(mark=0, request=(0, 0), busy=True)
    journal.close()
    answer(Journal(descriptor, received=4, mark=0), 50)
    assert standing(descriptor, 50) is not None, "the next worker has not said so"


def test_what_does_not_fit_cannot_be_given_to_another_but_is_received(descriptor: int) -> None:
    journal = Journal(descriptor)
    part = bytes(range(256)) * 1024
    while standing(descriptor, 0) is not None:
        assert receive(journal, part) == part
        assert journal.used <= BODY + 2 * len(part)
    answer(journal, 10)
    journal.restart()
    assert standing(descriptor, 10) is not None


def test_too_many_answers_do_not_fit_either(descriptor: int) -> None:
    journal = Journal(descriptor)
    for count in range(MOST_MARKS + 1):
        assert standing(descriptor, count) == Standing(count, (0, count), busy=False)
        answer(journal, 1)
    assert standing(descriptor, MOST_MARKS) is None
    journal.restart()
    assert standing(descriptor, MOST_MARKS + 1) is not None


def test_an_empty_journal_gives_its_memory_back(descriptor: int) -> None:
    journal = Journal(descriptor)
    for _ in range(4):
        receive(journal, bytes(BODY // 4))
    assert os.fstat(descriptor).st_blocks * 512 > BODY
    journal.restart()
    assert os.fstat(descriptor).st_blocks * 512 < BODY / 4
