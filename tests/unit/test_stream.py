"""Text that grows token by token: complete characters only, and stop strings."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ie.tokenizer import StopMatcher, TextStream


def stream_of(pieces: list[bytes]) -> TextStream:
    return TextStream(lambda token: pieces[token])


def feed(pieces: list[bytes]) -> list[str]:
    stream = stream_of(pieces)
    return [*(stream.push(i) for i in range(len(pieces))), stream.flush()]


def test_an_emoji_split_over_tokens_comes_out_whole() -> None:
    assert feed([b"a", b"\xf0\x9f", b"\x98", b"\x80b"]) == ["a", "", "", "\U0001f600b", ""]


def test_an_unfinished_character_is_replaced_at_the_end() -> None:
    assert feed([b"ok\xe6\xbc"]) == ["ok", "\ufffd"]
    assert feed([b"\xf0\x9f\x98"]) == ["", "\ufffd"]
    assert feed([]) == [""]


def test_bytes_that_cannot_become_a_character_do_not_wait() -> None:
    assert feed([b"\xff", b"a"]) == ["\ufffd", "a", ""]
    assert feed([b"\xe6", b"a"]) == ["", "\ufffda", ""]
    assert feed([b"\x80"]) == ["\ufffd", ""]
    assert feed([b"\xed\xa0\x80"])[0] == "\ufffd\ufffd\ufffd"  # a surrogate is no character


def test_a_stream_can_go_on_after_flush() -> None:
    stream = stream_of([b"\xe6", b"a"])
    assert stream.push(0) == ""
    assert stream.flush() == "\ufffd"
    assert stream.push(1) == "a"


@given(st.text(), st.integers(0, 2**32))
def test_any_cut_of_a_text_gives_the_text(text: str, seed: int) -> None:
    rnd = random.Random(seed)
    raw = text.encode("utf-8", "replace")
    pieces = []
    while raw:
        n = rnd.randint(1, 5)
        pieces.append(raw[:n])
        raw = raw[n:]
    out = feed(pieces)
    assert "".join(out) == text.encode("utf-8", "replace").decode()
    assert all("\ufffd" not in part for part in out) or "\ufffd" in text


def stop(stops: list[str], parts: list[str]) -> tuple[list[str], bool, str]:
    matcher = StopMatcher(stops)
    shown = [matcher.push(part) for part in parts]
    return shown, matcher.stopped, matcher.flush()


def test_a_stop_string_ends_the_text_before_it() -> None:
    assert stop(["END"], ["abcENDdef"]) == (["abc"], True, "")
    assert stop(["END"], ["ab", "cE", "N", "Dd", "more"]) == (["ab", "c", "", "", ""], True, "")


def test_a_beginning_that_comes_to_nothing_is_shown() -> None:
    assert stop(["END"], ["aE", "N", "x"]) == (["a", "", "ENx"], False, "")
    assert stop(["END"], ["aEN"]) == (["a"], False, "EN")
    assert stop(["aab"], ["a", "a", "a", "b"]) == (["", "", "a", ""], True, "")


def test_several_stop_strings() -> None:
    assert stop(["cd", "b"], ["abcd"]) == (["a"], True, "")
    assert stop(["\n\n", "User:"], ["hi\n", "Us", "ing\n", "\n"]) == (["hi", "\n", "Using", ""], True, "")
    matcher = StopMatcher(["ab", "abc"])
    matcher.push("xabcd")
    assert matcher.matched == "abc"


def test_no_stop_strings_and_empty_ones() -> None:
    assert stop([], ["a", "b"]) == (["a", "b"], False, "")
    assert stop([""], ["a", "b"]) == (["a", "b"], False, "")


@given(st.lists(st.text("ab", min_size=1, max_size=4), max_size=3), st.lists(st.text("abc", max_size=4), max_size=8))
def test_stopping_does_not_depend_on_where_the_text_is_cut(stops: list[str], parts: list[str]) -> None:
    text = "".join(parts)
    matcher = StopMatcher(stops)
    shown = "".join(matcher.push(part) for part in parts)
    by_character = StopMatcher(stops)
    one_by_one = "".join(by_character.push(c) for c in text)
    assert by_character.stopped == matcher.stopped == any(s in text for s in stops)
    if matcher.stopped:
        assert not any(s in shown for s in stops)
        assert text.startswith(shown) and text.startswith(one_by_one)
    else:
        assert shown + matcher.flush() == text
        assert one_by_one + by_character.flush() == text


@pytest.mark.parametrize("n", [1, 50])
def test_what_is_held_back_is_shorter_than_the_longest_stop_string(n: int) -> None:
    matcher = StopMatcher(["a" * n])
    shown = "".join(matcher.push("a") for _ in range(n - 1))
    assert shown == "" and not matcher.stopped
    assert matcher.push("b" if n > 1 else "a") == ("a" * (n - 1) + "b" if n > 1 else "")


@given(st.lists(st.text("ab", min_size=1, max_size=6), max_size=4), st.lists(st.text("ab", max_size=5), max_size=8))
def test_stop_strings_against_their_definition(stops: list[str], parts: list[str]) -> None:
    """After each part: the text so far searched anew."""
    matcher, text, given_out = StopMatcher(stops), "", ""
    for part in parts:
        text += part
        given_out += matcher.push(part)
        found = [(text.index(s), -len(s)) for s in stops if s in text]
        if found:
            assert matcher.stopped and given_out == text[: min(found)[0]] and matcher.matched in stops
            return
        waiting = max((n for s in stops for n in range(len(s)) if text.endswith(s[:n])), default=0)
        assert given_out == text[: len(text) - waiting] and not matcher.stopped


def test_long_stop_strings_that_almost_occur() -> None:
    """Searched anew at each piece, these would take hours."""
    n = 20_000
    matcher = StopMatcher(["a" * n + "b", "a" * (n - 1) + "c"])
    for _ in range(3 * n):
        matcher.push("a")
    assert not matcher.stopped and matcher.push("b") == "" and matcher.matched == "a" * n + "b"
