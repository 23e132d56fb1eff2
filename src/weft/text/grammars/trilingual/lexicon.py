"""The lexicon: English words with their French forms and Chinese translations."""

from __future__ import annotations

from typing import NamedTuple


class Noun(NamedTuple):
    """A noun: singular and plural, French gender, Chinese measure word."""

    singular: str
    plural: str
    french: tuple[str, str]
    gender: str
    chinese: str
    measure: str
    kind: str  # person, animal, thing or place


class Adjective(NamedTuple):
    """An adjective: four French forms (m, f, m plural, f plural); Chinese attributive and predicative form."""

    english: str
    french: tuple[str, str, str, str]
    chinese: str
    predicate: str


class Verb(NamedTuple):
    """A verb: English sleep, sleeps, sleeping; French je, il, nous, ils; Chinese, and its negation with 不."""

    base: str
    singular: str
    gerund: str
    french: tuple[str, str, str, str]
    chinese: str
    negated: str


class Name(NamedTuple):
    """A name or a third-person pronoun."""

    english: str
    french: str
    gender: str
    chinese: str


def _rows(table: str) -> list[list[str]]:
    return [line.split() for line in table.strip().splitlines()]


def _noun(row: list[str]) -> Noun:
    singular, plural, french, french_plural, gender, chinese, measure, kind = row
    return Noun(singular, plural, (french, french_plural), gender, chinese, measure, kind)


NOUNS = {
    row[0]: _noun(row)
    for row in _rows(
        """
        man       men        homme       hommes      m 男人   个 person
        woman     women      femme       femmes      f 女人   个 person
        king      kings      roi         rois        m 国王   位 person
        queen     queens     reine       reines      f 王后   位 person
        actress   actresses  actrice     actrices    f 女演员 位 person
        engineer  engineers  ingénieur   ingénieurs  m 工程师 位 person
        cat       cats       chat        chats       m 猫     只 animal
        dog       dogs       chien       chiens      m 狗     只 animal
        bird      birds      oiseau      oiseaux     m 鸟     只 animal
        cow       cows       vache       vaches      f 奶牛   头 animal
        owl       owls       hibou       hiboux      m 猫头鹰 只 animal
        spider    spiders    araignée    araignées   f 蜘蛛   只 animal
        book      books      livre       livres      m 书     本 thing
        letter    letters    lettre      lettres     f 信     封 thing
        key       keys       clé         clés        f 钥匙   把 thing
        hat       hats       chapeau     chapeaux    m 帽子   顶 thing
        picture   pictures   image       images      f 图片   张 thing
        computer  computers  ordinateur  ordinateurs m 电脑   台 thing
        newspaper newspapers journal     journaux    m 报纸   份 thing
        table     tables     table       tables      f 桌子   张 thing
        house     houses     maison      maisons     f 房子   座 place
        garden    gardens    jardin      jardins     m 花园   个 place
        inn       inns       auberge     auberges    f 客栈   家 place
        hotel     hotels     hôtel       hôtels      m 酒店   家 place
        hospital  hospitals  hôpital     hôpitaux    m 医院   家 place
        market    markets    marché      marchés     m 市场   个 place
        castle    castles    château     châteaux    m 城堡   座 place
        station   stations   gare        gares       f 车站   个 place
        bridge    bridges    pont        ponts       m 桥     座 place
        island    islands    île         îles        f 岛     座 place
        tree      trees      arbre       arbres      m 树     棵 place
        river     rivers     rivière     rivières    f 河     条 place
        """
    )
}

# Nouns by use: as a person, animal or thing; after in, on, under, near; as a destination.
NOUN_CLASSES = {
    "person": "man woman king queen actress engineer",
    "animal": "cat dog bird cow owl spider",
    "thing": "book letter key hat picture computer newspaper",
    "in": "house garden inn hotel hospital market castle station",
    "on": "bridge island table",
    "under": "bridge tree table",
    "near": "house garden inn hotel hospital castle station bridge island tree river",
    "goal": "garden inn hotel hospital market castle station",
}

# Adjectives that precede their noun in French.
BEFORE = frozenset({"young", "old", "small", "big", "new", "beautiful"})
# Their form before a masculine noun that begins with a vowel, if it differs.
BEFORE_VOWEL = {"vieux": "vieil", "beau": "bel", "nouveau": "nouvel"}

ADJECTIVES = {
    row[0]: Adjective(row[0], (row[1], row[2], row[3], row[4]), row[5], row[6])
    for row in _rows(
        """
        young       jeune       jeune        jeunes       jeunes        年轻的 很年轻
        old         vieux       vieille      vieux        vieilles      年老的 很老
        small       petit       petite       petits       petites       小     很小
        big         grand       grande       grands       grandes       大     很大
        new         nouveau     nouvelle     nouveaux     nouvelles     新     很新
        beautiful   beau        belle        beaux        belles        漂亮的 很漂亮
        tired       fatigué     fatiguée     fatigués     fatiguées     疲惫的 很累
        happy       heureux     heureuse     heureux      heureuses     快乐的 很快乐
        quiet       calme       calme        calmes       calmes        安静的 很安静
        strange     étrange     étrange      étranges     étranges      奇怪的 很奇怪
        intelligent intelligent intelligente intelligents intelligentes 聪明的 很聪明
        red         rouge       rouge        rouges       rouges        红色的 是红色的
        white       blanc       blanche      blancs       blanches      白色的 是白色的
        black       noir        noire        noirs        noires        黑色的 是黑色的
        heavy       lourd       lourde       lourds       lourdes       沉重的 很重
        """
    )
}

# Chinese has three words for "old": of beings (above), of things, and of places.
OLD = {"thing": ("旧", "很旧"), "place": ("古老的", "很古老")}

# The adjectives of each noun class: those before the noun in French, and those after it.
ADJECTIVE_CLASSES = {
    "person": ("young old", "tired happy quiet strange intelligent"),
    "animal": ("small big young old", "black white tired happy strange"),
    "thing": ("small big new old beautiful", "red white black heavy strange"),
    "place": ("small big old beautiful", "quiet strange"),
}

VERBS = {
    row[0]: Verb(row[0], row[1], row[2], (row[3], row[4], row[5], row[6]), row[7], row[8])
    for row in _rows(
        """
        sleep   sleeps  sleeping  dors     dort      dormons     dorment     睡觉 不睡觉
        sing    sings   singing   chante   chante    chantons    chantent    唱歌 不唱歌
        dance   dances  dancing   danse    danse     dansons     dansent     跳舞 不跳舞
        work    works   working   travaille travaille travaillons travaillent 工作 不工作
        wait    waits   waiting   attends  attend    attendons   attendent   等待 不等待
        see     sees    seeing    vois     voit      voyons      voient      看见 看不见
        help    helps   helping   aide     aide      aidons      aident      帮助 不帮助
        follow  follows following suis     suit      suivons     suivent     跟着 不跟着
        observe observes observing observe observe   observons   observent   观察 不观察
        love    loves   loving    aime     aime      aimons      aiment      爱   不爱
        know    knows   knowing   connais  connaît   connaissons connaissent 认识 不认识
        buy     buys    buying    achète   achète    achetons    achètent    买   不买
        draw    draws   drawing   dessine  dessine   dessinons   dessinent   画   不画
        find    finds   finding   trouve   trouve    trouvons    trouvent    找到 找不到
        like    likes   liking    aime     aime      aimons      aiment      喜欢 不喜欢
        want    wants   wanting   veux     veut      voulons     veulent     想要 不想要
        need    needs   needing   ai       a         avons       ont         需要 不需要
        live    lives   living    habite   habite    habitons    habitent    住   不住
        go      goes    going     vais     va        allons      vont        去   不去
        come    comes   coming    viens    vient     venons      viennent    来   不来
        """
    )
}

# By English form: the noun and whether the form is plural; the verb.
NOUN_FORMS = {form: (noun, form == noun.plural) for noun in NOUNS.values() for form in (noun.singular, noun.plural)}
VERB_FORMS = {form: verb for verb in VERBS.values() for form in (verb.base, verb.singular, verb.gerund)}

VERB_CLASSES = {
    "idle": "sleep sing dance work wait",
    "habit.being": "see help follow observe",
    "state.being": "love know",
    "habit.thing": "see buy draw find",
    "state.thing": "like want",
    "need": "need",
    "live": "live",
    "motion": "go come",
}

NAMES = {
    row[0]: Name(row[0], row[1], row[2], row[3])
    for row in _rows(
        """
        Anna  Anna  f 安娜
        Paul  Paul  m 保罗
        Oscar Oscar m 奥斯卡
        he    il    m 他
        she   elle  f 她
        """
    )
}
PRONOUNS = {
    "me": ("me", "我"),
    "him": ("le", "他"),
    "her": ("la", "她"),
    "us": ("nous", "我们"),
    "them": ("les", "他们"),
}
NUMBERS = {"two": ("deux", "两"), "three": ("trois", "三"), "four": ("quatre", "四")}
ADVERBS = {"often": ("souvent", "经常"), "always": ("toujours", "总是")}
# French words ("de" and "à" contract with an article), and the Chinese word after the place, which follows 在.
PREPOSITIONS = {
    "in": (("dans",), "里"),
    "on": (("sur",), "上"),
    "under": (("sous",), "下面"),
    "near": (("près", "de"), "附近"),
    "behind": (("derrière",), "后面"),
    "in front of": (("devant",), "前面"),
    "next to": (("à", "côté", "de"), "旁边"),
}
