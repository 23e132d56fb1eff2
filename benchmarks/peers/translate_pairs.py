"""Peer of translation: a GRU encoder and decoder with attention in plain torch, as a tutorial has it.

Called by benchmarks/peers/__main__.py with a folder that has train and test.jsonl and limits.json ("minutes",
"threads"). Prints a line of JSON: BLEU of greedy translations of the test sentences. Subwords by `tokenizers`, packed
source sentences, teacher forcing, Adam with a linear decay that ends with the time.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import sacrebleu
import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

PAD, BEGIN, END = 0, 1, 2
VOCABULARY, SIZE, BATCH, RATE = 8000, 256, 64, 1e-3
MOST_TOKENS = 60
NAME = f"GRU encoder-decoder of {SIZE} units with attention (plain torch)"
Pair = tuple[list[int], list[int]]


class Translator(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.embedding, self.dropout = nn.Embedding(size, SIZE, padding_idx=PAD), nn.Dropout(0.2)
        self.encoder = nn.GRU(SIZE, SIZE // 2, batch_first=True, bidirectional=True)
        self.decoder = nn.GRU(SIZE, SIZE, batch_first=True)
        self.combine, self.output = nn.Linear(2 * SIZE, SIZE), nn.Linear(SIZE, size)

    def encode(self, source: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        packed = pack_padded_sequence(
            self.dropout(self.embedding(source)), lengths, batch_first=True, enforce_sorted=False
        )
        outputs, last = self.encoder(packed)
        memory, _ = pad_packed_sequence(outputs, batch_first=True)
        return memory, torch.cat([last[0], last[1]], dim=-1)[None]

    def decode(self, ids: Tensor, state: Tensor, memory: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        outputs, state = self.decoder(self.dropout(self.embedding(ids)), state)
        scores = (outputs @ memory.mT).masked_fill(~mask[:, None], -torch.inf)
        attended = torch.cat([outputs, scores.softmax(-1) @ memory], dim=-1)
        return self.output(self.dropout(torch.tanh(self.combine(attended)))), state


def batches(pairs: list[Pair], order: random.Random) -> Iterator[list[Pair]]:
    """Batches of pairs with similar lengths, in random order, without end."""
    while True:
        order.shuffle(pairs)
        for begin in range(0, len(pairs), 50 * BATCH):
            block = sorted(pairs[begin : begin + 50 * BATCH], key=lambda pair: (len(pair[0]), len(pair[1])))
            cut = [block[at : at + BATCH] for at in range(0, len(block), BATCH)]
            order.shuffle(cut)
            yield from cut


def padded(rows: list[list[int]]) -> Tensor:
    return pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=PAD)


def train(model: Translator, pairs: list[Pair], seconds: float) -> int:
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    began, steps, stream = time.perf_counter(), 0, batches(pairs, random.Random(1))
    while (spent := time.perf_counter() - began) < seconds:
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1.0, 2 * (1 - spent / seconds))  # falls in the second half
        batch = next(stream)
        source, target = padded([one for one, _ in batch]), padded([[BEGIN, *two, END] for _, two in batch])
        memory, state = model.encode(source, torch.tensor([len(one) for one, _ in batch]))
        logits, _ = model.decode(target[:, :-1], state, memory, source != PAD)
        loss = F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=PAD, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        steps += 1
    return steps


@torch.no_grad()
def translate(model: Translator, sources: list[list[int]]) -> list[list[int]]:
    """Greedy search."""
    source = padded(sources)
    memory, state = model.encode(source, torch.tensor([len(one) for one in sources]))
    ids, found = torch.full((len(sources), 1), BEGIN), []
    for _ in range(MOST_TOKENS):
        logits, state = model.decode(ids, state, memory, source != PAD)
        ids = logits[:, -1:].argmax(-1)
        found.append(ids)
    rows = torch.cat(found, dim=1).tolist()
    return [row[: row.index(END)] if END in row else row for row in rows]


def make_tokenizer(texts: list[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    special = ["<pad>", "<bos>", "<eos>", "<unk>"]
    tokenizer.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=special, show_progress=False)
    )
    return tokenizer


def read(folder: str, name: str) -> list[list[str]]:
    content = (Path(folder) / f"{name}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in content.split("\n") if line]


def main(folder: str) -> None:
    rows, test = read(folder, "train"), read(folder, "test")
    limits = json.loads((Path(folder) / "limits.json").read_text(encoding="utf-8"))
    torch.set_num_threads(limits["threads"])
    tokenizer = make_tokenizer([text for row in rows for text in row])
    sides = [[one.ids for one in tokenizer.encode_batch([row[side] for row in rows])] for side in (0, 1)]
    torch.manual_seed(1)
    model = Translator(tokenizer.get_vocab_size())
    began = time.process_time()
    steps = train(model, list(zip(*sides, strict=True)), 60 * limits["minutes"])
    seconds = time.process_time() - began
    model.eval()
    sources = [one.ids for one in tokenizer.encode_batch([source for source, _ in test])]
    order, found = sorted(range(len(sources)), key=lambda row: len(sources[row])), [""] * len(sources)
    for begin in range(0, len(order), 256):
        chosen = order[begin : begin + 256]
        ids = translate(model, [sources[row] for row in chosen])
        for row, text in zip(chosen, tokenizer.decode_batch(ids), strict=True):
            found[row] = text
    bleu = sacrebleu.corpus_bleu(found, [[target for _, target in test]]).score
    record = {"model": NAME, "score": round(bleu, 2), "seconds": round(seconds, 1)}
    print(json.dumps({**record, "settings": f"{steps:,} steps of {BATCH} pairs, {VOCABULARY:,} subwords"}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
