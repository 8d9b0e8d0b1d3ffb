"""A float network that others trained, quantized after training, on the images it is for."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from stages.calibrating import run
from stages.graph import interpret
from stages.importing import run as import_file
from stages.kinds import Array, Golden, Model
from stages.options import ActivationScheme, CalibrateOptions, ImportOptions, WeightScheme
from tests.stages.importing.graphs import real_data

RESNET8 = (
    "mlcommons+tiny/benchmark/training/image_classification/trained_models/pretrainedResnet.tflite"
)
IMAGES = 120
SCHEMES = {
    "uint8": CalibrateOptions(),
    "int8, squared error": CalibrateOptions(
        activations=ActivationScheme(encoding="symmetric"), method="mse"
    ),
    "uint8, entropy, asymmetric weights": CalibrateOptions(
        weights=WeightScheme(encoding="asymmetric", granularity="per_tensor"), method="entropy"
    ),
}


@cache
def imported() -> Model:
    return import_file(source=real_data(RESNET8).read_bytes(), options=ImportOptions())


@cache
def data() -> tuple[Array, Array]:
    """Images and labels."""
    found = np.load(real_data("data/cifar10_test_jpeg_2000.npz"))
    return found["x"].astype(np.float32)[:, np.newaxis], found["y"]


@cache
def expected() -> Array:
    """The classes that the network sees in float."""
    return classes(imported(), data()[0][:IMAGES])


def classes(model: Model, images: Array) -> Array:
    name = str(model.module["main"].params[0].name)
    results = [interpret.run(model, {name: image}) for image in images]
    return np.array([next(iter(result.values())).argmax() for result in results])


@pytest.mark.slow
@pytest.mark.parametrize("scheme", SCHEMES)
def test_resnet8_sees_in_8_bits_what_it_sees_in_float(scheme: str) -> None:
    """Images near a boundary between classes change sides; few do."""
    (images, labels), model = data(), imported()
    name = str(model.module["main"].params[0].name)
    samples = Golden({name: images[1000:1030]}, {})
    made = run(model=model, samples=samples, options=SCHEMES[scheme])
    found = classes(made, images[:IMAGES])
    assert (expected() == found).mean() >= 0.9
    rates = [(answers == labels[:IMAGES]).mean() for answers in (expected(), found)]
    assert rates[1] >= rates[0] - 0.05
