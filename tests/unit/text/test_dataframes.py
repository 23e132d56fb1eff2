"""Tables of Python: DataFrames, Series, arrays, data sets, dicts and generators, to train on, evaluate and predict."""

from __future__ import annotations

import math
import sys
import warnings

import numpy as np
import pytest

import weft
from weft.errors import WeftError, WeftWarning
from weft.tasks.classify.config import ClassifyDataConfig
from weft.tasks.classify.readers import read_labelled
from weft.tasks.predictor import ResultList
from weft.tasks.tag.config import TagDataConfig
from weft.tasks.tag.data import read_tagged
from weft.tasks.text_task import open_corpus
from weft.text.columns import read_rows
from weft.text.conll import open_sentences
from weft.text.parallel import open_pairs

pandas = pytest.importorskip("pandas", reason="pandas is not installed")
polars = pytest.importorskip("polars", reason="polars is not installed")

ROWS = [(f"a text of some words number {at}", "ab"[at % 2]) for at in range(12)]
INDEX = [f"row {at}" for at in range(0, 120, 10)]
TINY = {"model.hidden_size": 4, "model.embedding_dim": 4, "train.epochs": 1}


def frame(**more):
    """A table with a hole in each column, and an index of its own."""
    table = pandas.DataFrame(ROWS, columns=["review", "mood"], index=INDEX)
    table.loc["row 30", "review"] = None
    table.loc["row 50", "mood"] = float("nan")
    return table.assign(number=range(12), **more)


class ClassLabel:
    names = ("a", "b")


class Names:
    def __init__(self, names):
        self.names = names


class ListOf:
    def __init__(self, feature):
        self.feature = feature


class DataSet:
    """What is read of a data set of Hugging Face; with its real library the same was tried by hand."""

    def __init__(self, columns, features=()):
        self.columns_by_name, self.features = columns, {**dict.fromkeys(columns), **dict(features)}
        self.column_names = list(columns)

    def __len__(self):
        return len(next(iter(self.columns_by_name.values())))

    def __getitem__(self, key):
        return dict(self.columns_by_name) if key == slice(None) else self.columns_by_name[key]

    def __iter__(self):
        for values in zip(*self.columns_by_name.values(), strict=True):
            yield dict(zip(self.columns_by_name, values, strict=True))


class Stream:
    """Of one that is not held in memory."""

    def __init__(self, data):
        self.data, self.features, self.column_names = data, data.features, data.column_names

    def __iter__(self):
        return iter(self.data)

    def to_list(self):
        return list(self)

    def __getitem__(self, name):
        """A column of a stream, which is no list."""
        return (row[name] for row in self)


def labelled_sources():
    table = frame()
    columns = {name: [None if value != value else value for value in table[name]] for name in table}
    classes = [-1 if mood is None else "ab".index(mood) for mood in columns["mood"]]
    data = DataSet({**columns, "mood": classes}, {"mood": Names(["a", "b"])})
    return {
        "pandas": table,
        "nullable": table.convert_dtypes(),
        "categorical": table.assign(mood=table["mood"].astype("category")),
        "polars": polars.DataFrame(columns),
        "dict": columns,
        "records": [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)],
        "generator": (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)),
        "pairs": list(zip(table["review"], table["mood"], strict=True)),
        "zip": zip(polars.Series(columns["review"]), columns["mood"], strict=True),
        "array": np.array([columns["review"], columns["mood"]], dtype=object).T,
        "data set": data,
        "stream": Stream(data),
    }


@pytest.mark.parametrize("kind", labelled_sources())
def test_every_table_has_the_rules_of_a_csv_file(kind):
    with pytest.warns(WeftWarning, match=r"left out 2 of 12 rows \(no text: 1, no label: 1\): ") as caught:
        found = read_labelled(labelled_sources()[kind], ClassifyDataConfig())
    assert [(row.value, row.label) for row in found.rows] == [row for at, row in enumerate(ROWS) if at not in (3, 5)]
    (line,) = [str(one.message) for one in caught]
    if kind in ("pairs", "zip", "array"):
        assert "example 4, example 6;" in line
        return
    assert ("DataFrame:row 30, DataFrame:row 50;" if kind in ("pandas", "nullable", "categorical") else ":3, ") in line
    assert "text from column 'review' (a usual name), label from column 'mood' (2 distinct values;" in found.description
    assert (found.layout.text, found.layout.label) == ("review", "mood")


def test_columns_by_name_and_of_numbers():
    table = frame(title="a title", stars=[1.0, None, 2.0] * 4).iloc[:3]
    config = ClassifyDataConfig(text_column="title,review", label_column="stars")
    with pytest.warns(WeftWarning, match="no label: 1"):
        found = read_labelled(table, config)
    # Whole numbers in a column of floats, which it becomes by a hole, are the labels that they were.
    assert [(row.value, row.label) for row in found.rows] == [
        (f"a title {ROWS[at][0]}", "12"[at // 2]) for at in (0, 2)
    ]
    found = read_labelled(pandas.DataFrame(ROWS), ClassifyDataConfig(text_column=1, label_column=2))
    assert found.rows[0][:2] == ROWS[0]
    with pytest.raises(WeftError, match=r"DataFrame: data.text_column: column 'txt' is not known"):
        read_labelled(table, ClassifyDataConfig(text_column="txt"))


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (lambda: pandas.DataFrame([["a", "b"]], columns=["x", "x"]), "two columns of the DataFrame are called 'x'"),
        (lambda: polars.DataFrame({"text": ["a"]}).lazy(), r"the LazyFrame is not read yet.*\.collect\(\)"),
        (
            lambda: {"train": DataSet({"text": ["a"]})},
            r"the dict has the parts train; expected one of them.*data\['train'\]",
        ),
        (lambda: {"text": ["a", "b"], "label": ["x"]}, "the columns of the dict have unequal lengths"),
        (lambda: pandas.DataFrame({"text": [], "label": []}), "DataFrame has no examples"),
        (lambda: pandas.Series(["a text"]), "example 1 is 'a text'; expected a pair of a text and its label"),
        (lambda: polars.DataFrame({"text": ["a"]}), "DataFrame has one column"),
        (lambda: frame(review=None), "incomplete: 12 of 12 rows"),
    ],
)
def test_tables_that_cannot_be_read(source, words):
    with pytest.raises(WeftError, match=words):
        read_labelled(source(), ClassifyDataConfig())


@pytest.mark.parametrize(
    "source",
    [
        pandas.Series(["one", None, "two"]),
        polars.Series(["one", None, "two"]),
        np.array(["one", "", "two"]),
        ["one", float("nan"), "two"],
        (text for text in ("one", " ", "two")),
        pandas.DataFrame({"id": [7, 8, 9], "text": ["one", None, "two"]}),
        {"review": ["one", None, "two"]},
    ],
    ids=lambda source: type(source).__name__,
)
def test_texts_of_a_language_model(source):
    with pytest.warns(WeftWarning, match=r"left out 1 of 3 rows \(no text: 1\)"):
        corpus = open_corpus(source)
    assert ["".join(document.lines()) for document in corpus.documents()] == ["one", "two"]


def test_the_column_of_a_language_model():
    table = pandas.DataFrame({"id": [1, 2], "words": ["some words", "others"], "note": ["", "x"]})
    assert open_corpus(table).reading == "read as a table (DataFrame): text from column 'words' (the longest texts)"
    with pytest.warns(WeftWarning, match="no text: 1"):
        assert open_corpus(table, "note").reading.endswith("text from column 'note' (as set)")
    with pytest.raises(WeftError, match="the data are 5; expected a list, or a DataFrame"):
        open_corpus(5)
    with pytest.raises(WeftError, match=r"text 1 is \('a', 'b'\); expected a str"):
        open_corpus([("a", "b")])


PAIRS = {
    "id": [1, 2, 3],
    "english": ["Go away.", "Hi there.", "No way."],
    "french": ["Va-t'en !", None, "Pas question."],
}


@pytest.mark.parametrize(
    "source",
    [
        pandas.DataFrame(PAIRS),
        polars.DataFrame(PAIRS),
        zip(PAIRS["english"], PAIRS["french"], strict=True),
        DataSet(
            {"translation": [{"en": en, "fr": fr} for en, fr in zip(PAIRS["english"], PAIRS["french"], strict=True)]}
        ),
        {"target": PAIRS["french"], "source": PAIRS["english"]},
    ],
    ids=["pandas", "polars", "zip", "data set", "dict"],
)
def test_pairs(source):
    with pytest.warns(WeftWarning, match=r"left out 1 of 3 pairs \(no target: 1\)"):
        pairs = open_pairs(source)
    assert (pairs.sources, pairs.targets) == (["Go away.", "No way."], ["Va-t'en !", "Pas question."])


def test_pairs_by_columns_that_are_set(tmp_path):
    table = pandas.DataFrame(PAIRS).dropna()
    found = open_pairs(table, source_column="french")
    assert (found.sources[0], found.targets[0], found.columns) == ("Va-t'en !", "Go away.", ("french", "english"))
    assert "source from column 'french' (as set), target from column 'english' (the longest texts)" in found.reading
    table.to_csv(tmp_path / "p.csv", index=False)
    assert open_pairs(tmp_path / "p.csv", source_column="french").targets == found.targets
    assert open_pairs(tmp_path / "p.csv", like=found.columns).sources == found.sources
    table[["english", "french"]].to_json(tmp_path / "p.jsonl", orient="records", lines=True)
    assert open_pairs(tmp_path / "p.jsonl").sources == found.targets
    (tmp_path / "p.tsv").write_text("source\ttarget\nGo.\tVa !\n", encoding="utf-8")
    assert open_pairs(tmp_path / "p.tsv").sources == ["Go."]
    assert weft.Pairs("mine", table["english"], table["french"]).sources == found.targets
    with pytest.raises(WeftError, match="source and target are both column 'french'"):
        open_pairs(table, source_column="french", target_column="french")


SENTENCES = [(("the", "cat"), ("DET", "NOUN")), (("a", "dog", "runs"), ("DET", "NOUN", "VERB"))]
WORDS = {
    "sentence_id": [1, None, 2, None, None],
    "word": [word for words, _ in SENTENCES for word in words],
    "tag": [tag for _, tags in SENTENCES for tag in tags],
}


@pytest.mark.parametrize(
    "source",
    [
        pandas.DataFrame({"tokens": [list(one) for one, _ in SENTENCES], "tags": [list(one) for _, one in SENTENCES]}),
        polars.DataFrame({"tokens": [list(one) for one, _ in SENTENCES], "pos": [list(one) for _, one in SENTENCES]}),
        DataSet(
            {"tokens": [list(one) for one, _ in SENTENCES], "ner_tags": [[0, 1], [0, 1, 2]]},
            {"ner_tags": ListOf(Names(["DET", "NOUN", "VERB"]))},
        ),
        {"sentence": ["the cat", "a dog runs"], "tags": ["DET NOUN", "DET NOUN VERB"]},
        pandas.DataFrame(WORDS),
        polars.DataFrame(WORDS),
        {"w": ["the", "cat", None, "a", "dog", "runs"], "t": ["DET", "NOUN", None, "DET", "NOUN", "VERB"]},
        (pair for pair in SENTENCES),
    ],
    ids=["lists", "polars lists", "data set", "strings", "words", "polars words", "gaps", "pairs"],
)
def test_tagged_sentences(source):
    assert [(one.words, one.tags) for one in open_sentences(source)] == SENTENCES


def test_tagged_sentences_in_files(tmp_path):
    for name, text in (
        ("a.csv", pandas.DataFrame(WORDS).to_csv(index=False)),
        ("b.csv", "word,tag\nthe,DET\ncat,NOUN\n\na,DET\ndog,NOUN\nruns,VERB\n"),
        (
            "c.jsonl",
            '{"id": 1, "tokens": ["the", "cat"], "tags": ["DET", "NOUN"]}\n'
            '{"id": 2, "tokens": ["a", "dog", "runs"], "tags": ["DET", "NOUN", "VERB"]}\n',
        ),
    ):
        (tmp_path / name).write_text(text, encoding="utf-8")
        notes = []
        assert [(one.words, one.tags) for one in open_sentences(tmp_path / name, notes=notes)] == SENTENCES
        assert "words from column" in notes[0]
        assert "(a usual name), tags from column" in notes[0]
    (tmp_path / "c.jsonl").write_text('{"tokens": ["the"], "tags": ["DET", "NOUN"]}\n', encoding="utf-8")
    with pytest.raises(WeftError, match=r"c\.jsonl:1 has 1 words and 2 tags"):
        open_sentences(tmp_path / "c.jsonl")


def test_sentences_that_lack_a_tag_in_a_table():
    table = pandas.DataFrame(WORDS)
    table.loc[1, "tag"] = None
    with pytest.warns(WeftWarning, match=r"left out 1 of 2 sentences \(no tag: 1\): DataFrame:0"):
        found = read_tagged(table, TagDataConfig())
    assert found.left_out == 1
    assert "DataFrame: words from column 'word' (a usual name), tags from column 'tag' (a usual name)" in found.notes
    with pytest.warns(WeftWarning, match="no text: 1"):
        found = read_tagged(pandas.Series(["the cat", None, "a dog"]), TagDataConfig(task="segments"))
    assert ["".join(one.words) for one in found.sentences] == ["thecat", "adog"]


def test_inputs_of_predictions():
    table = frame()
    assert read_rows(table, "review").texts()[2:5] == [ROWS[2][0], "", ROWS[4][0]]
    assert read_rows(table["review"]).index.equals(table.index)
    assert read_rows(table, "mood,review").texts()[3] == "b"
    assert read_rows(pandas.Series([1.0, None, 2.5])).texts() == ["1", "", "2.5"]
    assert read_rows(polars.DataFrame({"anything": ["a", None]})).texts() == ["a", ""]
    with pytest.raises(
        WeftError, match=r"a DataFrame with the columns mood, number; expected a column 'body'.*data\['mood'\]"
    ):
        read_rows(table[["mood", "number"]], "body")
    with pytest.raises(WeftError, match="text 2 is 5; expected a str"):
        read_rows(["a", 5]).texts()


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    train = {"progress": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WeftWarning)
        return {
            "classify": weft.train_classify(
                frame(), folder / "classify", {**TINY, "model.wide": False, "text.letters_only": True}, **train
            ),
            "tag": weft.train_tag(polars.DataFrame(WORDS), folder / "tag", {**TINY, "data.holdout": 0}, **train),
            "translate": weft.train_translate(
                pandas.DataFrame({**PAIRS, "other": ["x" * 30] * 3}),
                folder / "translate",
                {**TINY, "text.tokenizer": "char", "text.source_column": "english", "text.target_column": "french"},
                **train,
            ),
            "lm": weft.train_lm(frame()["review"], folder / "lm", {**TINY, "batch.size": 2}, **train),
        }


def test_a_label_for_each_row_with_the_index_of_the_table(models):
    model, table = models["classify"], frame()
    for given in (table, table["review"], table.iloc[::-1]["review"]):
        found = model.classify(given)
        rows = found.to_dataframe()
        assert rows.index.equals(given.index)
        assert list(rows.columns) == ["label", "probability", "P(a)", "P(b)"]
        assert rows.loc["row 30"].isna().all()
        assert rows.drop("row 30").notna().all(axis=None)
        blank = found[list(given.index).index("row 30")]
        assert (blank.label, blank.probabilities) == ("", {})
        assert math.isnan(blank.probability)
        assert blank._repr_html_()
    (without_tokens,) = model.classify(["123"])
    assert without_tokens.probabilities == model.prior
    texts = polars.Series([text if isinstance(text, str) else None for text in table["review"]])
    records = list(model.classify(texts).records())
    assert polars.DataFrame(records).height == len(records) == 12
    assert records[3]["label"] is None
    assert model.evaluate(table.dropna()).count == 11 - 1


def test_tags_and_translations_with_an_index(models):
    texts = pandas.Series(["the cat", None, "a dog"], index=[5, 3, 9], name="text")
    rows = models["tag"].tag(texts).to_dataframe()
    assert (rows.index.tolist(), [len(words) for words in rows["words"]]) == ([5, 3, 9], [2, 0, 2])
    rows = models["tag"].n_best(texts, 2).to_dataframe()
    assert (rows.index.tolist(), rows["rank"].tolist()) == ([5, 5, 9, 9], [1, 2, 1, 2])
    rows = models["translate"].translate(pandas.DataFrame({"n": [1, 2], "english": ["Go.", None]})).to_dataframe()
    assert (list(rows.columns), rows["translation"][1]) == (["translation"], "")
    assert models["lm"].generate_many(texts, tokens=1).to_dataframe().index.equals(texts.index)
    with pytest.warns(WeftWarning, match="left out 1 of 3"):
        assert models["lm"].evaluate(texts).count > 0
    assert ResultList([["a", "b"], []], column="words").to_dataframe()["words"].tolist() == [["a", "b"], []]


def test_without_pandas_the_message_says_so(models, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(WeftError, match="pandas is not installed"):
        models["classify"].classify(["a text"]).to_dataframe()


def test_scikit_learn_with_holes(models):
    from weft.sklearn import TextClassifier

    table = frame()
    with pytest.warns(WeftWarning, match="left out 2 of 12"):
        model = TextClassifier(epochs=1, hidden_size=4, settings={"model.wide": False}).fit(
            table["review"], table["mood"]
        )
    assert model.classes_.tolist() == ["a", "b"]
    assert model.predict_proba(table["review"]).sum(1) == pytest.approx(np.ones(12))


def test_the_columns_and_why_are_said_before_training(tmp_path, capsys):
    small = {**TINY, "model.wide": False}
    weft.train_classify(frame().dropna(), tmp_path / "a", small)
    first, *_, last = capsys.readouterr().err.splitlines()
    read = "read as a table (DataFrame): text from column 'review' (a usual name), label from column 'mood'"
    assert f"({read} (2 distinct values; `data.label_column=NAME` selects another)), 3" in first
    assert first.endswith(" weights")
    assert last.startswith("epoch 1")
    weft.train_classify(frame().dropna(), tmp_path / "b", small, progress=False)
    assert capsys.readouterr().err == ""
    pairs = pandas.DataFrame(PAIRS).dropna()
    weft.train_translate(pairs, tmp_path / "c", {**TINY, "text.tokenizer": "char"})
    said = capsys.readouterr().err
    assert "source from column 'english' (the longest texts), target from column 'french' (the longest texts)" in said
    weft.train_tag(pandas.concat([pandas.DataFrame(WORDS)] * 2), tmp_path / "d", {**TINY, "data.holdout": 0})
    assert "note: DataFrame: words from column 'word' (a usual name), tags from column 'tag'" in capsys.readouterr().err
    weft.train_ngram(frame()["review"].dropna(), tmp_path / "e")
    assert "(11 texts)" in capsys.readouterr().err.splitlines()[0]


def test_strict_from_python(tmp_path):
    for call in (
        lambda: weft.train_classify(frame(), tmp_path / "a", strict=True),
        lambda: weft.train("classify", frame(), tmp_path / "a", {"data.strict": True}),
        lambda: weft.train("classify", frame(), tmp_path / "a", strict=True),
        lambda: weft.start_classify(frame(), tmp_path / "a", weft.ClassifyConfig(), strict=True),
        lambda: weft.train_lm(frame(), tmp_path / "a", {"text.strict": True}),
        lambda: weft.train_lm(frame(), tmp_path / "a", strict=True),
    ):
        with pytest.raises(WeftError, match="DataFrame:row 30: the text is empty"):
            call()
    assert not (tmp_path / "a").exists()


def test_strict_evaluations_from_python(models):
    with pytest.raises(WeftError, match="DataFrame:row 30: the text is empty"):
        models["classify"].evaluate(frame(), strict=True)
    with pytest.raises(WeftError, match="Series:row 30: the text is empty"):
        models["lm"].evaluate(frame()["review"], strict=True)
    with pytest.raises(WeftError, match="DataFrame:1: the target side of"):
        models["translate"].evaluate(pandas.DataFrame(PAIRS), strict=True)
    with pytest.raises(WeftError, match="sentence 1: the tag is empty"):
        models["tag"].evaluate([(["the"], [None])], strict=True)
