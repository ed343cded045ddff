"""Reading a vocabulary: defaults, special ids, the end set, and what an untrusted file is refused for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ie.errors import TokenizerError
from ie.gguf import GgufFile
from ie.tokenizer import Tokenizer, load
from ie.tokenizer.codec import VocabTokenizer, clean_spaces
from tests import tiny_vocabs as tv

PLAIN = ["a", "b", "c"]


def bpe(tmp_path: Path, tokens: list[str], **keys: Any) -> Tokenizer:
    base = {"model": "gpt2", "pre": "gpt-2", "tokens": tokens, "merges": []}
    merges = {"merges": ["a b"]} if "merges" not in keys else {}
    return tv.load(tmp_path / "v.gguf", {**base, **merges, **keys})


def types(tokens: list[str], **special: int) -> list[int]:
    return [special.get(t, tv.NORMAL) for t in tokens]


# --- defaults ---------------------------------------------------------------------------------------------------


def test_defaults_of_the_two_kinds(tmp_path: Path) -> None:
    spm = tv.load(tmp_path / "s.gguf", tv.spm_keys())
    assert (spm.bos_id, spm.eos_id, spm.add_bos, spm.add_eos) == (1, 2, True, False)
    large = tv.load(tmp_path / "b.gguf", tv.bpe_keys())
    assert (large.bos_id, large.eos_id, large.add_bos, large.add_eos) == (11, 11, False, False)
    small = bpe(tmp_path, PLAIN)
    assert (small.bos_id, small.eos_id) == (None, None)
    assert tv.load(tmp_path / "c.gguf", tv.bpe_keys(pre="glm4")).bos_id is None
    assert tv.load(tmp_path / "d.gguf", tv.bpe_keys(pre="llama-bpe")).add_bos
    missing = tv.load(tmp_path / "e.gguf", tv.bpe_keys(pre=None))
    assert isinstance(missing, VocabTokenizer) and missing.vocab.pre is not None
    assert missing.vocab.pre.name == "default"


def test_keys_override_defaults(tmp_path: Path) -> None:
    tok = bpe(tmp_path, PLAIN, bos_token_id=2, eos_token_id=1, add_bos_token=True, add_eos_token=True)
    assert tok.encode("a") == [2, 0, 1]
    assert tok.encode("a", add_special=False) == [0]
    assert tok.decode([2, 0, 1], remove_special=True) == "a"
    # Only an end of its own kind is dropped.
    assert tok.decode([0, 2], remove_special=True) == "ac"
    assert not tv.load(tmp_path / "w.gguf", tv.bpe_keys(pre="llama-bpe", add_bos_token=False)).add_bos


def test_ids_outside_the_vocabulary_are_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tok = bpe(tmp_path, PLAIN, bos_token_id=3, eos_token_id=-1, eot_token_id=2)
    assert (tok.bos_id, tok.eos_id) == (None, None)
    assert tok.eog_ids == {2}
    assert "tokenizer.ggml.bos_token_id: 3 is outside the vocabulary of 3 tokens" in caplog.text


def test_adding_bos_without_one_adds_nothing(tmp_path: Path) -> None:
    tok = bpe(tmp_path, PLAIN, add_bos_token=True)
    assert not tok.add_bos
    assert tok.encode("a") == [0]


def test_old_names_of_the_fill_in_ids(tmp_path: Path) -> None:
    tok = bpe(tmp_path, PLAIN, prefix_token_id=0, suffix_token_id=1, fim_mid_token_id=2)
    assert isinstance(tok, VocabTokenizer)
    assert [tok.vocab.ids[k] for k in ("fim_pre", "fim_suf", "fim_mid")] == [0, 1, 2]


# --- the end set ----------------------------------------------------------------------------------------------------


def test_end_tokens_come_from_keys_and_texts(tmp_path: Path) -> None:
    tokens = [*PLAIN, "<|im_end|>", "<|endoftext|>", "<|eom_id|>", "[PAD]", "<|fim_pad|>", "<|file_sep|>", "<REPO>"]
    tok = bpe(tmp_path, tokens, eos_token_id=0)
    # [PAD] would be the fill-in padding only if <|fim_pad|> were absent.
    assert tok.eog_ids == {0, 3, 4, 5, 7, 8, 9}
    assert bpe(tmp_path, [*PLAIN, "<|user|>"], eot_token_id=3).eog_ids == {3}
    assert bpe(tmp_path, PLAIN).eog_ids == frozenset()


def test_a_text_match_gives_the_control_property(tmp_path: Path) -> None:
    tokens = ["<", "/", "s", ">", "</s>", "<|im_end|>"]
    kinds = [*[tv.NORMAL] * 4, tv.USER, tv.NORMAL]
    tok = bpe(tmp_path, tokens, token_type=kinds)
    assert tok.encode("</s>", parse_special=False) == [0, 1, 2, 3]
    assert tok.encode("</s>") == [4]
    assert tok.piece(4) == b"" and tok.piece(4, special=True) == b"</s>"
    assert tok.piece(5) == b""


def test_families_with_rules_of_their_own(tmp_path: Path) -> None:
    harmony = ["<|return|>", "<|call|>", "<|end|>", "<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"]
    tok = bpe(tmp_path, harmony, token_type=[tv.CONTROL] * 7)
    assert tok.eog_ids == {0, 1}
    assert [tok.piece(i) for i in range(2, 7)] == [t.encode() for t in harmony[2:]]
    flush = bpe(tmp_path, ["<|calls|>", "<|flush|>", "<|end|>"])
    assert flush.eog_ids == {0, 1}
    alone = bpe(tmp_path, ["<|return|>", "<|end|>"])
    assert alone.eog_ids == {0, 1}
    tool = bpe(tmp_path, ["</s>", "<|tool_response>", "t"], token_type=[tv.CONTROL, tv.USER, tv.NORMAL])
    assert tool.eog_ids == {1}
    assert tool.piece(0) == b"</s>", "a normal token now"
    assert tool.piece(1) == b""
    assert tool.encode("<|tool_response>", parse_special=False) == [2], "plain text: only its t is a token"


# --- decoding ---------------------------------------------------------------------------------------------------


def test_clean_spaces() -> None:
    assert clean_spaces("a . b , c ! d ?") == "a. b, c! d?"
    assert clean_spaces("it 's I 'm we 're they 've don 't x ' y") == "it's I'm we're they've don 't x'y"


def test_clean_spaces_only_where_the_pre_tokenizer_says_so(tmp_path: Path) -> None:
    for name, expected in (("gpt-2", "a. b"), ("smollm", "a . b")):
        tok = tv.load(tmp_path / f"{name}.gguf", tv.bpe_keys(pre=name))
        ids = tok.encode("a . b", add_special=False)
        assert tok.decode(ids) == expected
        stream = tok.stream()
        assert "".join(map(stream.push, ids)) == "a . b"


def test_an_id_outside_the_vocabulary(tmp_path: Path) -> None:
    tok = bpe(tmp_path, PLAIN)
    for bad in (-1, 3):
        for use in (tok.piece, tok.text, lambda i: tok.decode([i])):
            with pytest.raises(TokenizerError, match=f"token id {bad} is outside the vocabulary of 3 tokens"):
                use(bad)


# --- refusals -------------------------------------------------------------------------------------------------------

GOOD: dict[str, Any] = {"model": "gpt2", "pre": "gpt-2", "tokens": PLAIN, "merges": ["a b"]}
SPM: dict[str, Any] = {"model": "llama", "tokens": PLAIN, "scores": [0.0] * 3}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no tokens": ({**GOOD, "tokens": None}, "tokens: missing"),
    "tokens of numbers": ({**GOOD, "tokens": [1, 2]}, "tokens: expected an array of strings"),
    "tokens no array": ({**GOOD, "tokens": "abc"}, "tokens: expected an array of strings"),
    "duplicate": ({**GOOD, "tokens": ["a", "b", "a"]}, r"tokens: token 2 repeats token 0 \(b'a'\)"),
    "no merges": ({**GOOD, "merges": None}, "merges: missing"),
    "merge of one part": ({**GOOD, "merges": ["a b", "ab"]}, "merges: merge 1 is b'ab', expected two parts"),
    "merge beginning with its space": ({**GOOD, "merges": [" b"]}, "merges: merge 0 is"),
    "few types": ({**GOOD, "token_type": [1, 1]}, "token_type: has 2 entries, expected one for each of 3 tokens"),
    "unknown type": ({**GOOD, "token_type": [1, 7, 1]}, "token_type: token 1 has type 7, expected 0 to 6"),
    "negative type": ({**GOOD, "token_type": [1, -1, 1]}, "token_type: token 1 has type -1"),
    "types of floats": ({**GOOD, "token_type": [1.0, 1.0, 1.0]}, "token_type: expected integers"),
    "types of strings": ({**GOOD, "token_type": ["1", "1", "1"]}, "token_type: expected an array of numbers"),
    "byte token": ({**GOOD, "token_type": [1, 6, 1]}, "tokens: byte token 1 is b'b', expected <0x00>"),
    "few scores": ({**SPM, "scores": [0.0]}, "scores: has 1 entries"),
    "score": ({**SPM, "scores": [0.0, float("nan"), 0.0]}, "scores: score of token 1 is nan"),
    "bos of text": ({**GOOD, "bos_token_id": "a"}, "bos_token_id: expected an integer, found 'a'"),
    "bos of bool": ({**GOOD, "bos_token_id": True}, "bos_token_id: expected an integer, found True"),
    "flag": ({**GOOD, "add_bos_token": 1}, "add_bos_token: expected true or false, found 1"),
    "suppressed": ({**GOOD, "suppress_tokens": [0, 3]}, "suppress_tokens: 3 is outside the vocabulary of 3"),
    "suppressed floats": ({**GOOD, "suppress_tokens": [0.5]}, "suppress_tokens: expected integers"),
    "pre no text": ({**GOOD, "pre": 5}, "pre: expected a string, found int"),
    "model no text": ({**GOOD, "model": 5}, "model: expected a string, found 5"),
    "model": ({**GOOD, "model": "bert"}, r"model: tokenizer 'bert' \(WordPiece.*--tokens"),
    "model nobody knows": ({**GOOD, "model": "x"}, r"model: tokenizer 'x' \(unknown\)"),
    "template": ({**GOOD, "tokenizer.chat_template": 7}, "expected a string, found 7"),
}


@pytest.mark.parametrize(("keys", "says"), REFUSED.values(), ids=REFUSED.keys())
def test_refusals_name_file_and_key(keys: dict[str, Any], says: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.gguf"
    with pytest.raises(TokenizerError, match=f"^{path}: tokenizer\\.(ggml|chat).*{says}") as caught:
        tv.load(path, keys)
    assert "\n" not in str(caught.value)
    # The base files themselves are accepted.
    tv.load(tmp_path / "good.gguf", GOOD)
    tv.load(tmp_path / "spm.gguf", SPM)


def test_kimi_alone_may_lack_merges(tmp_path: Path) -> None:
    tok = tv.load(tmp_path / "k.gguf", {**GOOD, "pre": "kimi-k2", "merges": None})
    assert tok.encode("ab") == [0, 1]


def test_longer_arrays_than_tokens_are_accepted(tmp_path: Path) -> None:
    for kind, longer in ((GOOD, {"token_type": [1] * 9}), (SPM, {"scores": [0.0] * 9})):
        plain, more = (tv.load(tmp_path / "v.gguf", {**kind, **extra}) for extra in ({}, longer))
        assert more.n_vocab == plain.n_vocab == len(kind["tokens"])


def test_integer_scores(tmp_path: Path) -> None:
    tok = tv.load(tmp_path / "s.gguf", {**SPM, "scores": [0, -1, -2]})
    assert isinstance(tok, VocabTokenizer) and tok.vocab.scores is not None
    assert np.frombuffer(tok.vocab.scores, np.float32).tolist()[:3] == [0, -1, -2]


def test_suppressed_ids(tmp_path: Path) -> None:
    assert tv.load(tmp_path / "v.gguf", {**GOOD, "suppress_tokens": [2, 0]}).suppress_ids == (2, 0)
    assert tv.load(tmp_path / "w.gguf", GOOD).suppress_ids == ()


# --- no tokenizer --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["none", "no_vocab", None])
def test_a_file_without_tokenizer(model: str | None, tmp_path: Path) -> None:
    tok = tv.load(tmp_path / "n.gguf", {"model": model, "llama.vocab_size": 77})
    assert tok.n_vocab == 77
    assert tok.piece(5) == b"" and tok.decode([1, 2]) == ""
    assert tok.eog_ids == frozenset() and tok.bos_id is None and tok.chat_template is None
    with pytest.raises(TokenizerError, match="the file has no tokenizer; give token ids with --tokens"):
        tok.encode("a")


def test_a_file_without_tokenizer_and_size(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="neither llama.vocab_size nor token_embd.weight"):
        tv.load(tmp_path / "n.gguf", {"model": "none"})
    with pytest.raises(TokenizerError, match="llama.vocab_size: expected a positive 32-bit integer, found -3"):
        tv.load(tmp_path / "m.gguf", {"model": "none", "llama.vocab_size": -3})


def test_the_file_may_be_closed(tmp_path: Path) -> None:
    path = tv.write(tmp_path / "v.gguf", tv.bpe_keys())
    with GgufFile.open(path) as file:
        tok = load(file)
    assert tok.decode(tok.encode("closed files")) == "closed files"
