"""Train the digits networks and write their files beside this one.

    python -m recipes.models.train_digits            # all of them, about two minutes
    python -m recipes.models.train_digits a1w1 int8  # some

Needs torch and scikit-learn, and no network. Each network is trained from scratch, from one seed,
so that two of the same name are equal on one machine. What the trainer itself predicts for the
digits it did not train on is kept beside the files: a package has to say the same.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Sequence

import numpy as np
import torch
from torch.nn import functional

from recipes.models.digits_data import (
    LOGITS,
    NAMES,
    RATES,
    SEED,
    TEST,
    TEST_IMAGES,
    Array,
    load_digits,
    model_file,
)
from recipes.models.digits_files import onnx_file
from recipes.models.digits_net import FLOAT, INT8, DigitsNet, Precision, few_bits

EPOCHS, RATE = 40, 0.004
FINE_EPOCHS, FINE_RATE = 10, 0.0005
"""Of 8 bits, which start from the float network with its gains in the weights."""
BATCH = 48


def precision(name: str) -> Precision:
    """What a network's name says: `a2w1` has activations of 2 bits and weights of 1."""
    named = {"int8": INT8, "float": FLOAT}
    return named[name] if name in named else few_bits(int(name[1]), int(name[3]))


def shifted(generator: torch.Generator, images: torch.Tensor) -> torch.Tensor:
    """Each image [N, 1, 8, 8] moved by up to one pixel in each direction."""
    padded = functional.pad(images, (1, 1, 1, 1))
    moves = torch.randint(0, 3, (len(images), 2), generator=generator).tolist()
    return torch.stack(
        [p[:, y : y + 8, x : x + 8] for p, (y, x) in zip(padded, moves, strict=True)]
    )


def fit(
    net: DigitsNet,
    data: tuple[torch.Tensor, torch.Tensor],
    generator: torch.Generator,
    epochs: int,
    rate: float,
) -> None:
    """Adam on the cross entropy, at a rate that falls to 0 as a cosine."""
    images, labels = data
    optimizer = torch.optim.Adam([each for layer in net.layers for each in layer.trained], rate)
    steps = epochs * (len(images) // BATCH)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(epochs):
        order = torch.randperm(len(images), generator=generator)
        for chosen in order[: len(order) // BATCH * BATCH].split(BATCH):
            logits = net.logits(shifted(generator, images[chosen]), training=True)
            optimizer.zero_grad()
            functional.cross_entropy(logits, labels[chosen]).backward()
            optimizer.step()
            schedule.step()
            for layer in net.layers:
                layer.clip()


def train(name: str, images: Array, labels: Array) -> DigitsNet:
    """The trained network; equal arguments give an equal network on one machine."""
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)  # sums of several threads come in any order
    generator = torch.Generator().manual_seed(SEED)
    data = torch.from_numpy(images), torch.from_numpy(labels)
    wanted = precision(name)
    net = DigitsNet(FLOAT if wanted.folds else wanted, generator)
    fit(net, data, generator, EPOCHS, RATE)
    net.freeze(wanted)
    if wanted is INT8:
        fit(net, data, generator, FINE_EPOCHS, FINE_RATE)
    return net


def predicted(net: DigitsNet, images: Array) -> Array:
    """Logits float32 [N, 10] of the network as its file has it."""
    with torch.no_grad():
        logits = net.logits(torch.from_numpy(images))
        if net.precision is not FLOAT:
            exact = net.logits(torch.from_numpy(images).double())
            assert torch.equal(logits.double(), exact), "a sum was rounded"
    return np.asarray(logits.numpy())


def keep(logits: dict[str, Array], labels: Array) -> None:
    """Write predictions and rates of these networks beside those that are there."""
    kept = dict(np.load(LOGITS)) if LOGITS.is_file() else {}
    kept = {name: (kept | logits)[name] for name in NAMES if name in kept | logits}
    file = io.BytesIO()
    np.savez_compressed(file, **kept)
    LOGITS.write_bytes(file.getvalue())
    right = {name: int((found.argmax(axis=1) == labels).sum()) for name, found in kept.items()}
    rates = {"seed": SEED, "torch": torch.__version__, "of": len(labels), "right": right}
    RATES.write_text(json.dumps(rates, indent=2) + "\n")


def main(names: Sequence[str]) -> None:
    """Train, report, and write the files."""
    if unknown := sorted(set(names) - set(NAMES)):
        sys.exit(f"no digits network is called {unknown[0]}; there are {', '.join(NAMES)}")
    images, labels = load_digits()
    held_out, held_labels = images[:TEST_IMAGES], labels[:TEST_IMAGES]
    file = io.BytesIO()
    np.savez_compressed(file, images=held_out, labels=held_labels)
    TEST.write_bytes(file.getvalue())
    logits = {}
    for name in names or NAMES:
        net = train(name, images[TEST_IMAGES:], labels[TEST_IMAGES:])
        logits[name] = predicted(net, held_out)
        model_file(name).write_bytes(onnx_file(net))
        right = (logits[name].argmax(axis=1) == held_labels).sum()
        print(f"{name:6} {right / len(held_labels):8.2%}  {right} of {len(held_labels)}")
    keep(logits, held_labels)


if __name__ == "__main__":
    main(sys.argv[1:])
