from __future__ import annotations

import random
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chalicelib.access.model import TokenKind
from chalicelib.access.secret import PREFIXES, is_well_formed, mint_secret

BASE62 = string.ascii_letters + string.digits


class Bits:
    """A source that gives the number it was made with."""

    def __init__(self, value: int) -> None:
        self.value = value

    def getrandbits(self, k: int, /) -> int:
        assert k == 256
        return self.value


@pytest.mark.parametrize(("kind", "prefix"), [("operator", "tmo_"), ("location", "tml_"), ("worker", "tmw_")])
def test_form(kind: TokenKind, prefix: str) -> None:
    secret = mint_secret(kind, random.Random(3))
    assert secret.startswith(prefix)
    assert len(secret) == 4 + 43 + 6
    assert is_well_formed(secret)


@given(st.integers(0, 2**256 - 1), st.sampled_from(sorted(PREFIXES)))
def test_every_value_gives_a_well_formed_secret_of_its_own(value: int, kind: TokenKind) -> None:
    secret = mint_secret(kind, Bits(value))
    assert is_well_formed(secret)
    assert secret != mint_secret(kind, Bits(value ^ 1))


@given(st.integers(0, 2**256 - 1), st.integers(4, 52), st.sampled_from(BASE62))
def test_every_typing_error_of_one_character_is_caught(value: int, place: int, other: str) -> None:
    secret = mint_secret("location", Bits(value))
    typed = secret[:place] + other + secret[place + 1 :]
    assert is_well_formed(typed) == (typed == secret)


@given(st.text(max_size=80))
def test_other_texts_are_not_well_formed(text: str) -> None:
    assert not is_well_formed(text)
