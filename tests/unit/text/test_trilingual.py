"""The trilingual grammar: French and Chinese are checked against independent rules written here."""

from __future__ import annotations

import itertools
import random
import re
from collections import Counter
from typing import NamedTuple

import pytest

from tests.checks.grammars import derivations
from weft.errors import WeftError
from weft.text.grammars.trilingual import MAX_WORDS, text
from weft.text.grammars.trilingual.grammar import english_grammar
from weft.text.parallel import open_pairs


class Triple(NamedTuple):
    english: str
    french: str
    chinese: str


def triples(count, seed):
    """Sentences in three languages: the English side of both texts is the same."""
    sides = (text(language, count, seed).splitlines() for language in ("french", "chinese"))
    rows = [[line.split("\t") for line in side] for side in sides]
    assert [one for one, _ in rows[0]] == [one for one, _ in rows[1]]
    return [Triple(english, french, chinese) for (english, french), (_, chinese) in zip(*rows, strict=True)]


TRIPLES = triples(4000, seed=7)

# French, once more and from nothing but these lists: every form of every noun by gender and number.
NOUNS = {
    word: key
    for key, words in {
        "ms": "homme roi ingénieur chat chien oiseau hibou livre chapeau ordinateur journal jardin hôtel hôpital "
        "marché château pont arbre",
        "mp": "hommes rois ingénieurs chats chiens oiseaux hiboux livres chapeaux ordinateurs journaux jardins hôtels "
        "hôpitaux marchés châteaux ponts arbres",
        "fs": "femme reine actrice vache araignée lettre clé image table maison auberge gare île rivière",
        "fp": "femmes reines actrices vaches araignées lettres clés images tables maisons auberges gares îles rivières",
    }.items()
    for word in words.split()
}
DETERMINERS = {
    "le": "ms", "la": "fs", "l'": "ms fs", "les": "mp fp", "un": "ms", "une": "fs", "des": "mp fp", "du": "ms",
    "au": "ms", "aux": "mp fp", "ce": "ms", "cet": "ms", "cette": "fs", "ces": "mp fp", "mon": "ms fs", "ma": "fs",
    "mes": "mp fp", "notre": "ms fs", "nos": "mp fp", "deux": "mp fp", "trois": "mp fp", "quatre": "mp fp",
    "de": "mp fp", "d'": "mp fp",
}  # fmt: skip
BEFORE = {
    "jeune": "ms fs", "jeunes": "mp fp", "vieux": "ms mp", "vieil": "ms", "vieille": "fs", "vieilles": "fp",
    "petit": "ms", "petite": "fs", "petits": "mp", "petites": "fp", "grand": "ms", "grande": "fs", "grands": "mp",
    "grandes": "fp", "nouveau": "ms", "nouvel": "ms", "nouvelle": "fs", "nouveaux": "mp", "nouvelles": "fp",
    "beau": "ms", "bel": "ms", "belle": "fs", "beaux": "mp", "belles": "fp",
}  # fmt: skip
AFTER = {
    "fatigué": "ms", "fatiguée": "fs", "fatigués": "mp", "fatiguées": "fp", "heureux": "ms mp", "heureuse": "fs",
    "heureuses": "fp", "calme": "ms fs", "calmes": "mp fp", "étrange": "ms fs", "étranges": "mp fp",
    "intelligent": "ms", "intelligente": "fs", "intelligents": "mp", "intelligentes": "fp", "rouge": "ms fs",
    "rouges": "mp fp", "blanc": "ms", "blanche": "fs", "blancs": "mp", "blanches": "fp", "noir": "ms", "noire": "fs",
    "noirs": "mp", "noires": "fp", "lourd": "ms", "lourde": "fs", "lourds": "mp", "lourdes": "fp",
}  # fmt: skip
JE, IL, NOUS, ILS = (
    frozenset(row.split())
    for row in (
        "dors chante danse travaille attends vois aide suis observe aime connais achète dessine trouve veux ai habite "
        "vais viens",
        "dort chante danse travaille attend voit aide suit observe aime connaît achète dessine trouve veut a habite va "
        "vient est",
        "dormons chantons dansons travaillons attendons voyons aidons suivons observons aimons connaissons achetons "
        "dessinons trouvons voulons avons habitons allons venons",
        "dorment chantent dansent travaillent attendent voient aident suivent observent aiment connaissent achètent "
        "dessinent trouvent veulent ont habitent vont viennent sont",
    )
)
CLITICS = {"ne", "n'", "me", "m'", "le", "la", "l'", "les"}
SHORT = {"le", "la", "je", "me", "ne", "de", "que"}


def french_words(sentence: str) -> list[str]:
    return [word.lower() for word in re.findall(r"\w+'|\w+|[.,]", sentence)]


def starts_with_vowel(word: str) -> bool:
    return word[0] in "aeéiîoôuyh" and word not in ("hibou", "hiboux")


def french_mistakes(sentence: str) -> list[str]:
    words = french_words(sentence)
    found = []

    def refuse(holds: bool, what: str) -> None:
        if not holds:
            found.append(what)

    for left, right in itertools.pairwise(words):
        refuse(not (left in SHORT and starts_with_vowel(right)), f"{left} {right}: no elision")
        refuse(not (left.endswith("'") and not starts_with_vowel(right)), f"{left}{right}: no vowel")
        refuse((left, right) not in {("de", "le"), ("de", "les"), ("à", "le"), ("à", "les")}, f"{left} {right}: melts")
        refuse(left not in ("de", "d'") or right not in ("de", "d'", "des"), f"{left} {right}: twice")
        refuse(not (left in ("ce", "ma") and starts_with_vowel(right)), f"{left} {right}: before a vowel")
        refuse(left != "cet" or starts_with_vowel(right), f"{left} {right}: before a consonant")
        for plain, special in (("beau", "bel"), ("vieux", "vieil"), ("nouveau", "nouvel")):
            refuse(left != special or starts_with_vowel(right), f"{left} {right}: before a consonant")
            singular = NOUNS.get(right) == "ms"
            refuse(not (left == plain and singular and starts_with_vowel(right)), f"{left} {right}: before a vowel")
    for place, word in enumerate(words):
        if word not in NOUNS:
            continue
        begin = place - 1
        while words[begin] in BEFORE:
            refuse(NOUNS[word] in BEFORE[words[begin]].split(), f"{words[begin]} {word}")
            begin -= 1
        refuse(words[begin] in DETERMINERS, f"{words[begin]} is no determiner of {word}")
        refuse(NOUNS[word] in DETERMINERS.get(words[begin], "").split(), f"{words[begin]} ... {word}")
        refuse(
            words[begin] != "des"
            or begin == place - 1
            or words[begin - 1]
            in (
                "besoin",
                "près",
                "côté",
                "viens",
                "vient",
                "venons",
                "viennent",
                "jamais",
                "souvent",
                "toujours",
                "pas",
            ),
            f"des before {words[place - 1]}",
        )
        end = place + 1
        if words[end] in AFTER:
            refuse(NOUNS[word] in AFTER[words[end]].split(), f"{word} {words[end]}")
            end += 1
        if words[end] == "qui":  # what follows agrees with the noun
            refuse_verb(words, end + 1, IL if NOUNS[word][1] == "s" else ILS, refuse)
        if begin == 0:  # the subject of the first clause
            while words[end] in CLITICS or words[end] == "nous":
                end += 1
            if words[end] in IL | ILS:
                refuse(words[end] in (IL if NOUNS[word][1] == "s" else ILS), f"{word} {words[end]}")
            last = words[end + 1 + (words[end + 1] == "pas")]
            if words[end] in ("est", "sont"):
                refuse(NOUNS[word] in {**BEFORE, **AFTER}[last].split(), f"{word} {words[end]} {last}")
        refuse(words[place + 1] not in BEFORE or words[place - 1] == "que", f"{word} {words[place + 1]}: wrong place")
    for place, word in enumerate(words):
        forms = {"je": JE, "j'": JE, "il": IL, "elle": IL}.get(word)
        if word == "nous" and (not place or words[place - 1] in ("que", "et", "mais")):
            forms = NOUS
        if forms:
            refuse_verb(words, place + 1, forms, refuse)
        if word in ("ne", "n'"):
            refuse(bool({"pas", "jamais"} & set(words[place + 2 : place + 5])), "ne without pas")
        if word in ("pas", "jamais"):
            refuse(bool({"ne", "n'"} & set(words[max(0, place - 4) : place])), "pas without ne")
    return found


def refuse_verb(words, place, forms, refuse):
    while words[place] in CLITICS or words[place] in ("nous", "y"):
        place += 1
    refuse(words[place] in forms, f"{words[place - 1]} {words[place]}: person")


WRONG = """
La chat dort. | Le oiseau chante. | L'hibou chante. | Les chat dorment. | Le chat dorment. | Les chats dort.
Le petite chat dort. | Le chat noire dort. | Le noir chat dort. | Le chat petit dort. | La lettre est blanc.
Il va à le marché. | Il vient de le marché. | Il va à les gares. | Je aide la femme.
Elle ne aide la femme. | Ce homme dort. | Cet roi dort. | Ma auberge est belle. | Le vieux homme dort. | Nous dort.
Le bel roi dort. | Je dort. | Il dorment. | La femme que aide le roi dort. | Les rois qui dort vont au marché.
Il a besoin de de livres. | Le roi a besoin de d'images. | Des petits chats dorment. | Un clé est petite.
Le roi dort pas. | Ces vache dorment. | Paul vend le lettre. | L'île est beau.
"""


@pytest.mark.parametrize("wrong", re.split(r" *\||\n", WRONG.strip()), ids=str.strip)
def test_the_checker_finds_mistakes(wrong):
    assert french_mistakes(wrong.strip())


def test_french():
    mistakes = {triple.french: found for triple in TRIPLES if (found := french_mistakes(triple.french))}
    assert mistakes == {}


def test_french_elision_contraction_and_agreement_occur():
    written = " ".join(triple.french for triple in TRIPLES).lower()
    wanted = (
        "l'oiseau|le hibou|l'île|l'homme|cet |mon auberge|mon image|vieil |bel |nouvel | du roi| de l'actrice| au |"
        " aux | des |n'y a pas d'| d'anna|qu'elle|qu'un|journaux|besoin d'|besoin de | ne l'|j'|m'aide|jamais de "
    )
    for seen in wanted.split("|"):
        assert seen in written, seen


# Chinese: the measure word of each noun.
MEASURES = {
    **dict.fromkeys(["男人", "女人", "花园", "市场", "车站"], "个"),
    **dict.fromkeys(["国王", "王后", "女演员", "工程师"], "位"),
    **dict.fromkeys(["猫", "狗", "鸟", "猫头鹰", "蜘蛛"], "只"),
    **dict.fromkeys(["房子", "城堡", "桥", "岛"], "座"),
    **dict.fromkeys(["客栈", "酒店", "医院"], "家"),
    **dict.fromkeys(["图片", "桌子"], "张"),
    "奶牛": "头", "书": "本", "信": "封", "钥匙": "把", "帽子": "顶",
    "电脑": "台", "报纸": "份", "树": "棵", "河": "条",
}  # fmt: skip
ADJECTIVES = (
    "年轻的 年老的 古老的 漂亮的 疲惫的 快乐的 安静的 奇怪的 聪明的 红色的 白色的 黑色的 沉重的 "
    "年轻而 年老而 古老而 漂亮而 小 大 新 旧 红 白 黑"
)
COUNTED = re.compile(
    rf"(?:[一两三四]|(?<!在)这)([{''.join(set(MEASURES.values()))}])(?:{'|'.join(ADJECTIVES.split())})*"
    rf"({'|'.join(sorted(MEASURES, key=len, reverse=True))})"
)


def chinese_mistakes(sentence: str) -> list[str]:
    found = [f"{measure} {noun}" for measure, noun in COUNTED.findall(sentence) if MEASURES[noun] != measure]
    found += re.findall(r"的的|[a-zA-Z ]|二[只个]|不看见|不找到|们们|一些.们|很[^。，]*的[。，]", sentence)
    return found + ([] if re.fullmatch(r"[\u4e00-\u9fff，]+。", sentence) else ["not a sentence"])


def test_chinese():
    for wrong in (
        "一个猫正在睡觉。",
        "三头红色的小帽子很大。",
        "这只书很新。",
        "我的的猫很小。",
        "我不看见狗。",
        "猫很小",
    ):
        assert chinese_mistakes(wrong), wrong
    mistakes = {triple.chinese: found for triple in TRIPLES if (found := chinese_mistakes(triple.chinese))}
    assert mistakes == {}
    numbers = sum(len(re.findall("[一两三四](?!些)", triple.chinese)) for triple in TRIPLES)
    checked = sum(len(COUNTED.findall(triple.chinese)) for triple in TRIPLES)
    assert checked > 0.9 * numbers > 1000


def test_english():
    for triple in TRIPLES:
        assert not re.search(r"\b[Aa] [aeiou]|\b[Aa]n [^aeiou]", triple.english), triple.english
        assert re.fullmatch(r"[A-Z][A-Za-z', ]+\.", triple.english)


READ_BY_HAND = """
The actresses are waiting near some hotels.
    Les actrices attendent près d'hôtels.
    女演员们在一些酒店附近等待。
He needs some strange computers.
    Il a besoin d'ordinateurs étranges.
    他需要一些奇怪的电脑。
She never comes from this quiet garden.
    Elle ne vient jamais de ce jardin calme.
    她从来不从这个安静的花园来。
There are no small happy birds on the island.
    Il n'y a pas de petits oiseaux heureux sur l'île.
    岛上没有快乐的小鸟。
The king's cats do not want any big keys.
    Les chats du roi ne veulent pas de grandes clés.
    国王的猫不想要任何大钥匙。
The old strange engineer is singing.
    Le vieil ingénieur étrange chante.
    年老而奇怪的工程师正在唱歌。
I do not find my picture.
    Je ne trouve pas mon image.
    我找不到我的图片。
Three kings always find this computer.
    Trois rois trouvent toujours cet ordinateur.
    三位国王总是找到这台电脑。
Anna observes me.
    Anna m'observe.
    安娜观察我。
This bird does not come from the big inn.
    Cet oiseau ne vient pas de la grande auberge.
    这只鸟不从大客栈来。
She goes to this hospital.
    Elle va à cet hôpital.
    她去这家医院。
Some men behind the tree do not love him.
    Des hommes derrière l'arbre ne l'aiment pas.
    树后面的一些男人不爱他。
Some women never find my big red letter.
    Des femmes ne trouvent jamais ma grande lettre rouge.
    一些女人从来找不到我红色的大信。
Our old black spider is working in two hotels.
    Notre vieille araignée noire travaille dans deux hôtels.
    我们年老的黑蜘蛛在两家酒店里工作。
A big black cow that is sleeping comes from this inn.
    Une grande vache noire qui dort vient de cette auberge.
    一头正在睡觉的黑色的大奶牛从这家客栈来。
The actress lives behind the strange house because she sees three cows.
    L'actrice habite derrière la maison étrange parce qu'elle voit trois vaches.
    女演员住在奇怪的房子后面，因为她看见三头奶牛。
"""


def test_sentences_checked_by_hand():
    """These were read by a person, word by word."""
    known = {triple.english: triple for triple in TRIPLES}
    lines = [line.strip() for line in READ_BY_HAND.strip().splitlines()]
    for english, french, chinese in zip(lines[::3], lines[1::3], lines[2::3], strict=True):
        assert known[english] == (english, french, chinese)


def test_no_sentence_has_two_derivations():
    rng = random.Random(3)
    for _ in range(150):
        sentence = english_grammar().sample(rng)
        if len(sentence.words) <= MAX_WORDS:
            assert derivations(english_grammar(), sentence.words) == 1, sentence.words


def test_english_determines_the_translation():
    seen: dict[str, tuple[str, str]] = {}
    for triple in [*TRIPLES, *triples(4000, seed=8)]:
        assert seen.setdefault(triple.english, triple[1:]) == triple[1:]
    assert len(seen) < 8000  # some were met twice


def test_sizes_and_seeds():
    assert TRIPLES[:500] == triples(500, seed=7)
    assert TRIPLES[:50] != triples(50, seed=8)
    assert len({triple.english for triple in TRIPLES}) == len(TRIPLES) == 4000
    lengths = Counter(len(triple.english.split()) for triple in TRIPLES)
    assert (min(lengths), max(lengths)) == (3, MAX_WORDS)
    words = {word for triple in TRIPLES for word in re.findall(r"[\w']+", triple.english.lower())}
    assert 120 < len(words) < 200
    with pytest.raises(WeftError, match="language 'german' is not known; expected one of: french, chinese"):
        text("german")
    with pytest.raises(WeftError, match="the number of sentences is 0"):
        text("french", 0)


@pytest.mark.parametrize(("name", "language"), [("grammar-fr", 1), ("grammar-zh", 2)])
def test_named_data(name, language):
    pairs = open_pairs(name)
    assert len(pairs) == 20_000 == len(set(pairs.sources))
    first = triples(20, seed=0)
    assert (pairs.sources[:20], pairs.targets[:20]) == ([t.english for t in first], [t[language] for t in first])
