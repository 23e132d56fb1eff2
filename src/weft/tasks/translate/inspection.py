"""What the probes may look at in a translator."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from weft.data.buckets import Padded, pad
from weft.decoding.beam_search import beam_tree
from weft.errors import WeftError
from weft.tasks.inspection import AttentionWeights, Inspection, NamedBeamTree, Network, StackUse
from weft.tasks.mixture import first_member
from weft.tasks.translate.encoder import Encoded
from weft.tasks.translate.model import BOS_ID, TranslationBatch, Translator
from weft.tasks.translate.predictor import END, LENGTH_PENALTY, TranslatePredictor, most_tokens
from weft.text.vocabulary import BOS, EOS, RESERVED

SHOWN_BEAM = 5


def inspect_translate(predictor: TranslatePredictor, text: str) -> Inspection:
    """The source and its best translation, read by encoder and decoder with teacher forcing."""
    predictor = first_member(predictor)
    model = predictor.model.eval()
    assert isinstance(model, Translator)
    if not text.strip():
        raise WeftError("the text is blank", expected="a sentence to translate")
    source = predictor._read(text)
    names = predictor.fields.target.vocabulary.tokens
    banned = [RESERVED.index(name) for name in RESERVED if name != EOS]

    @torch.no_grad()
    def search(width: int, alpha: float | None, prefix: Sequence[str]) -> NamedBeamTree:
        penalty = LENGTH_PENALTY if alpha is None else alpha
        tree = beam_tree(
            model.stepper(pad([source.ids])),
            [BOS_ID, *predictor.fields.target.vocabulary.encode_known(prefix)],
            width=width,
            tokens=most_tokens(len(source.ids)),
            end=END,
            alpha=penalty,
            banned=banned,
        )
        return NamedBeamTree(tree, names)

    @cache
    def best() -> tuple[int, ...]:
        found = search(SHOWN_BEAM, None, ()).tree.results[0]
        return (*found.ids, END) if found.ended else tuple(found.ids)

    def logits(x: Tensor) -> Tensor:
        lengths = torch.full((len(x),), x.shape[1])
        outputs, state = model.encoder.stack(x, lengths=lengths)
        encoded = Encoded(outputs, state, lengths.to(outputs.device))
        target = pad([best()])
        targets = Padded(target.ids.expand(len(x), -1), target.lengths.expand(len(x)))
        return model.readout(model.decode(encoded, targets).outputs)

    def attention() -> AttentionWeights:
        weights = model.attention_weights(TranslationBatch(pad([source.ids]), pad([best()])))
        return AttentionWeights(tuple(names[one] for one in best()), source.tokens, weights[0])

    def network() -> Network:
        tokens = tuple(names[one] for one in best())
        with torch.no_grad():
            embeddings = model.encoder.embedding(torch.tensor([source.ids], device=model.bias.device))
        stacks = {
            "encoder": StackUse(model.encoder.stack, source.tokens),
            "decoder": StackUse(model.decoder.stack, (BOS, *tokens[:-1])),
        }
        return Network(source.tokens, embeddings, logits, tokens, best(), names, stacks)

    missing = {"attention": f"has no attention: it was trained with model.decoder={predictor.config.model.decoder}"}
    return Inspection(
        network=network, search=search, attention=attention if model.has_attention else None, missing=missing
    )
