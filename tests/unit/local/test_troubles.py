from chalicelib.kernel.errors import Unavailable
from chalicelib.local.troubles import Troubles


def test_a_failure_is_said_once_and_its_end_once() -> None:
    said: list[str] = []
    troubles = Troubles(said.append)
    assert [troubles.failed("the pass", Unavailable("the database does not answer")) for _ in range(3)] == [1, 2, 3]
    troubles.worked("the pass")
    troubles.worked("the pass")
    assert said == [
        "the pass failed and will be tried again: the database does not answer",
        "the pass works again after 3 failed attempts",
    ]


def test_parts_fail_on_their_own() -> None:
    said: list[str] = []
    troubles = Troubles(said.append)
    troubles.failed("one", ValueError("bad"))
    troubles.failed("two", ValueError("bad"))
    troubles.worked("two")
    assert len(said) == 3
    assert said[0] == "one failed and will be tried again: ValueError: bad"
