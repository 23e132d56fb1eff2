"""Reading text: every kind of source, damaged files, and encoding to token ids."""

from __future__ import annotations

import gc
import gzip
import io
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.data.column import write_values
from weft.errors import WeftError
from weft.text import corpus as corpus_module
from weft.text.corpus import Corpus, count_tokens, encode_corpus, open_tokens
from weft.text.tokenizers import CharTokenizer, Normalizer, SubwordTokenizer, Tokenizer, WordTokenizer
from weft.text.vocabulary import RESERVED, Vocabulary


def contents(corpus: Corpus) -> dict[str, str]:
    return {document.name: "".join(document.lines()) for document in corpus.documents()}


def write_zip(path: Path, members: dict[str, str]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return path


class TestSources:
    def test_file(self, tmp_path: Path) -> None:
        path = tmp_path / "notes.log"
        path.write_bytes("\ufeffone\r\n二\rthree\n\nlast 行".encode())
        corpus = Corpus.open(path)
        assert corpus.name == str(path)
        (document,) = corpus.documents()
        assert document.name == "notes.log"
        assert list(document.lines()) == ["one\n", "二\n", "three\n", "\n", "last 行"]
        assert list(document.lines()) == list(document.lines())

    def test_original_line_ends(self, tmp_path: Path) -> None:
        raw = "a\r\n\nb\rc\n\r\nd"
        (tmp_path / "mixed.txt").write_bytes(raw.encode())
        (document,) = Corpus.open(tmp_path / "mixed.txt").documents()
        assert list(document.own_lines()) == ["a\r\n", "\n", "b\r", "c\n", "\r\n", "d"]
        assert list(document.lines()) == ["a\n", "\n", "b\n", "c\n", "\n", "d"]

    def test_gzip(self, tmp_path: Path) -> None:
        path = tmp_path / "notes.txt.gz"
        path.write_bytes(gzip.compress("床前明月光\n".encode()))
        assert contents(Corpus.open(path)) == {"notes.txt.gz": "床前明月光\n"}

    def test_folder(self, tmp_path: Path) -> None:
        for name in ("b.txt", "a/z.md", "a/y.TEXT", "a/.hidden.txt", ".git/c.txt", "d.py", "a.txt"):
            path = tmp_path / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(name, encoding="utf-8")
        (tmp_path / "c.md.gz").write_bytes(gzip.compress(b"packed"))
        (tmp_path / "data.gz").write_bytes(gzip.compress(b"not named as text"))
        (tmp_path / "empty.txt").touch()
        (tmp_path / "blank.txt").write_text("\n  \n\u3000\n", encoding="utf-8")
        (tmp_path / "folder.txt").mkdir()
        read = contents(Corpus.open(str(tmp_path)))
        assert list(read.items()) == [
            *((name, name) for name in ("a.txt", "a/y.TEXT", "a/z.md", "b.txt")),
            ("c.md.gz", "packed"),
        ]

    @pytest.mark.parametrize(
        ("place", "number", "words"), [(6, 1, "password required"), (8, 99, "method is not supported")]
    )
    def test_a_zip_that_cannot_be_unpacked(self, place: int, number: int, words: str, tmp_path: Path) -> None:
        """A member that is encrypted, or packed by a method that nobody knows, as both of its headers say."""
        path = write_zip(tmp_path / "locked.zip", {"a.txt": "words\n"})
        raw = bytearray(path.read_bytes())
        for header, further in ((b"PK\x03\x04", 0), (b"PK\x01\x02", 2)):
            raw[raw.index(header) + place + further] = number
        path.write_bytes(bytes(raw))
        with pytest.raises(WeftError, match=f"locked.zip.*cannot be unpacked.*{words}"):
            contents(Corpus.open(path))

    def test_zip(self, tmp_path: Path) -> None:
        members = {"b/二.txt": "二\n", "a.md": "1\r\n", "c.csv": "3", "__MACOSX/a.txt": "x", "blank.txt": "\n"}
        path = write_zip(tmp_path / "all.ZIP", members)
        assert list(contents(Corpus.open(path)).items()) == [("a.md", "1\n"), ("b/二.txt", "二\n")]
        assert contents(Corpus.open(f"{path}:c.csv")) == {"c.csv": "3"}
        assert contents(Corpus.open(f"{path}:b/二.txt")) == {"b/二.txt": "二\n"}

    def test_standard_input_can_be_read_twice(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("一\r\n二".encode())))
        corpus = Corpus.open("-")
        assert corpus.name == "standard input"
        assert contents(corpus) == contents(corpus) == {"standard input": "一\n二"}
        assert len(list(tmp_path.iterdir())) == 1
        del corpus
        gc.collect()
        assert list(tmp_path.iterdir()) == []

    def test_strings_in_memory(self) -> None:
        corpus = Corpus.from_texts("poems", (text for text in ["春\r\n", "", "夏"]))
        assert contents(corpus) == {"poems 1": "春\n", "poems 3": "夏"}

    def test_concurrent_readers_are_independent(self, tmp_path: Path) -> None:
        path = write_zip(tmp_path / "two.zip", {"a.txt": "1\n2\n3\n"})
        (document,) = Corpus.open(path).documents()
        pairs = list(zip(document.lines(), document.lines(), strict=True))
        assert pairs == [("1\n", "1\n"), ("2\n", "2\n"), ("3\n", "3\n")]


class TestDamage:
    @pytest.mark.parametrize(
        ("raw", "message"),
        [
            (b"fine\n" * 16 + b"bad \xff byte\n", r":17: byte 0xff at position 5 is not UTF-8.*WINDOWS-1252"),
            (
                b"fine\r\n" * 9000 + b"caf\xe9 noir\r\n",
                r":9001: byte 0xe9 at position \d+ is not UTF-8.*iconv -f WINDOWS-1252",
            ),
            (
                b"ok\r" + "中文，你好\n".encode("gb18030"),
                r":2: byte 0xd6 at position \d+ is not UTF-8.*iconv -f GB18030",
            ),
            ("文本\n".encode("utf-16"), r":1: byte 0xff at position \d+ is not UTF-8.*iconv -f UTF-16"),
            (b"cut off \xe4\xb8", r":1: byte 0xe4 at position \d+ is not UTF-8"),
            (b"one\ntwo\nthr\0ee\n", r":3: NUL byte"),
            (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", r":3: NUL byte, not plain text"),
        ],
    )
    def test_not_text(self, tmp_path: Path, raw: bytes, message: str) -> None:
        path = tmp_path / "notes.txt"
        path.write_bytes(raw)
        with pytest.raises(WeftError, match=r"notes\.txt" + message):
            contents(Corpus.open(path))

    def test_inside_archives(self, tmp_path: Path) -> None:
        (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"ok\n\xff\n"))
        with pytest.raises(WeftError, match=r"a\.txt\.gz:2: byte 0xff"):
            contents(Corpus.open(tmp_path / "a.txt.gz"))
        with zipfile.ZipFile(tmp_path / "b.zip", "w") as archive:
            archive.writestr("x/y.txt", b"ok\n\n\xff\n")
        with pytest.raises(WeftError, match=r"b\.zip:x/y\.txt:3: byte 0xff"):
            contents(Corpus.open(tmp_path / "b.zip"))

    def test_file_with_a_wrong_suffix(self, tmp_path: Path) -> None:
        for name in ("a.zip", "a.txt.gz"):
            (tmp_path / name).write_text("just text", encoding="utf-8")
            with pytest.raises(WeftError, match=rf"{name} is damaged or not of the type its name says"):
                Corpus.open(tmp_path / name)
        with pytest.raises(WeftError, match=r"a\.zip is damaged"):
            Corpus.open(f"{tmp_path / 'a.zip'}:member.txt")

    def test_truncated_gzip(self, tmp_path: Path) -> None:
        path = tmp_path / "a.gz"
        whole = gzip.compress(np.random.default_rng(0).integers(97, 122, 100_000, dtype=np.uint8).tobytes())
        path.write_bytes(whole[:-2000])
        with pytest.raises(WeftError, match=r"a\.gz is damaged"):
            contents(Corpus.open(path))

    def test_missing(self, tmp_path: Path) -> None:
        (tmp_path / "timemachine.txt").write_text("x", encoding="utf-8")
        with pytest.raises(WeftError, match=r"timemachin\.txt does not exist\. Try: .*timemachine\.txt"):
            Corpus.open(tmp_path / "timemachin.txt")
        with pytest.raises(WeftError, match=r"nor does the folder .*nowhere"):
            Corpus.open(tmp_path / "nowhere" / "a.txt")
        with pytest.raises(WeftError, match=r"lost\.zip does not exist"):
            Corpus.open(f"{tmp_path}/lost.zip:a.txt")
        with pytest.raises(WeftError, match=r"cannot be read|does not exist"):
            Corpus.open(tmp_path / ("x" * 5000))

    def test_missing_member(self, tmp_path: Path) -> None:
        path = write_zip(tmp_path / "a.zip", {f"part/{i}.txt": "x" for i in range(7)})
        with pytest.raises(
            WeftError, match=r"has no member part/9\.txt; it has part/0\.txt.* and 2 more\. Try: .*zip:part/"
        ):
            Corpus.open(f"{path}:part/9.txt")
        for member in ("part", "part/"):
            with pytest.raises(WeftError, match=r"is a folder in .*a\.zip, with part/0\.txt"):
                Corpus.open(f"{path}:{member}")

    def test_no_text_files(self, tmp_path: Path) -> None:
        with pytest.raises(WeftError, match=r"has no text files; expected files that end in \.txt, \.text, \.md"):
            Corpus.open(tmp_path)
        path = write_zip(tmp_path / "a.zip", {"a.csv": "1"})
        with pytest.raises(WeftError, match=r"a\.zip has no text members; it has a\.csv"):
            Corpus.open(path)

    def test_blank(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "a.txt").touch()
        with pytest.raises(WeftError, match=r"a\.txt is empty"):
            Corpus.open(tmp_path / "a.txt")
        (tmp_path / "b.txt").write_text("\n \n\t\u3000\n", encoding="utf-8")
        with pytest.raises(WeftError, match=r"b\.txt has only blank lines"):
            Corpus.open(tmp_path / "b.txt")
        with pytest.raises(WeftError, match=r"a\.txt, .*b\.txt has only blank lines"):
            Corpus.open(tmp_path)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
        with pytest.raises(WeftError, match="standard input is empty"):
            Corpus.open("-")
        with pytest.raises(WeftError, match="poems has no texts"):
            Corpus.from_texts("poems", [])
        with pytest.raises(WeftError, match="lone surrogate"):
            Corpus.from_texts("poems", ["\ud800"])


words_in_lines = st.text(alphabet="ab 中。\n'", min_size=1).filter(str.strip)


class TestStreams:
    @given(st.lists(words_in_lines, min_size=1, max_size=3), st.sampled_from([CharTokenizer(), WordTokenizer()]))
    def test_blocks_and_long_lines_do_not_change_the_tokens(self, texts: list[str], tokenizer: Tokenizer) -> None:
        whole = [token for i, text in enumerate(texts) for token in ["<eos>"] * (i > 0) + tokenizer.split(text)]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(corpus_module, "BLOCK_SIZE", 5)
            patch.setattr(corpus_module, "LONGEST_UNBROKEN", 4)
            blocks = corpus_module.token_blocks(Corpus.from_texts("x", texts), Normalizer(), tokenizer)
            assert [token for block in blocks for token in block] == whole

    def test_long_lines_are_split(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(corpus_module, "LONGEST_UNBROKEN", 6)
        (document,) = Corpus.from_texts("x", ["aa bb   cc dd\n中文没有空格的一行\nend"]).documents()
        assert list(document.lines()) == ["aa bb", "   cc", " dd\n", "中文没有空格的一行\n", "end"]

    @pytest.mark.parametrize(
        "tokenizer", [CharTokenizer(), WordTokenizer(), SubwordTokenizer.train(["the cat 猫。\n"], 20)]
    )
    def test_encode(self, tmp_path: Path, tokenizer: Tokenizer) -> None:
        corpus = Corpus.from_texts("three", ["the cat\n猫。\n", "cat", "猫 the"])
        normalizer = Normalizer()
        counts = count_tokens(corpus, normalizer, tokenizer)
        assert counts["<eos>"] == 2
        vocabulary = Vocabulary.build(counts)
        path = tmp_path / "tokens.npy"
        count = encode_corpus(corpus, normalizer, tokenizer, vocabulary, path)
        ids = open_tokens(path, len(vocabulary))
        assert ids.dtype == np.uint16
        assert len(ids) == count == sum(counts.values())
        assert list(np.bincount(ids, minlength=len(vocabulary))) == list(vocabulary.counts)
        tokens = vocabulary.decode(ids)
        cuts = [i for i, token in enumerate(tokens) if token == "<eos>"]
        assert tokenizer.join(tokens[: cuts[0]]) == "the cat\n猫。\n"
        assert tokenizer.join(tokens[cuts[0] + 1 : cuts[1]]) == "cat"
        assert tokens[-1] != "<eos>"
        assert [entry.name for entry in tmp_path.iterdir()] == ["tokens.npy"]
        with pytest.raises(ValueError, match="read-only"):
            ids[0] = 1

    def test_unknown_tokens_and_wide_ids(self, tmp_path: Path) -> None:
        corpus = Corpus.from_texts("one", ["ab猫"])
        vocabulary = Vocabulary.build({"a": 1, "猫": 1})
        encode_corpus(corpus, Normalizer(), CharTokenizer(), vocabulary, tmp_path / "a")
        assert list(open_tokens(tmp_path / "a", len(vocabulary))) == [4, 0, 5]
        tokens = (*RESERVED, *(chr(0x20000 + i) for i in range(1 << 16)), "猫")
        large = Vocabulary(tokens, (0,) * len(tokens))
        encode_corpus(corpus, Normalizer(), CharTokenizer(), large, tmp_path / "b")
        ids = open_tokens(tmp_path / "b", len(large))
        assert ids.dtype == np.uint32
        assert list(ids) == [0, 0, len(large) - 1]

    def test_no_eos_for_documents_that_are_empty_after_normalization(self, tmp_path: Path) -> None:
        corpus = Corpus.from_texts("mixed", ["中文", "one", "二", "Two\n2 a"])
        letters = Normalizer(lower=True, letters_only=True)
        vocabulary = Vocabulary.build(count_tokens(corpus, letters, WordTokenizer()))
        encode_corpus(corpus, letters, WordTokenizer(), vocabulary, tmp_path / "ids")
        assert vocabulary.decode(open_tokens(tmp_path / "ids", len(vocabulary))) == ["one", "<eos>", "two", "a"]

    def test_mistakes(self, tmp_path: Path) -> None:
        corpus = Corpus.from_texts("诗", ["床前明月光"])
        letters = Normalizer(letters_only=True)
        path = tmp_path / "ids"
        with pytest.raises(WeftError, match=r"诗 is empty after normalization.*`text\.letters_only=false`"):
            count_tokens(corpus, letters, CharTokenizer())
        with pytest.raises(WeftError, match="is empty after"):
            encode_corpus(corpus, letters, CharTokenizer(), Vocabulary.build({}), path)
        assert list(tmp_path.iterdir()) == []
        for content in (None, b"", b"abc", b"PK\x03\x04"):
            if content is not None:
                path.write_bytes(content)
            with pytest.raises(WeftError, match="ids cannot be read"):
                open_tokens(path, 10)
        for values in (np.zeros(3), np.zeros((2, 2), int), np.zeros(0, int)):
            write_values(path, [values], values.dtype)
            with pytest.raises(WeftError, match="expected token ids, at least one"):
                open_tokens(path, 10)
        for id in (-1, 10):
            write_values(path, [np.array([3, id])], int)
            with pytest.raises(WeftError, match=f"token id {id}; expected ids below 10"):
                open_tokens(path, 10)
