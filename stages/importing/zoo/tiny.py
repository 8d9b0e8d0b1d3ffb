"""The four networks of the MLPerf Tiny benchmark (Banbury et al., 2021, section 4), seeded weights.

A vector, as the autoencoder reads one, is an image of one pixel, on which a 1x1 convolution is a
dense layer.
"""

from __future__ import annotations

from stages.importing.zoo.network import Network, NetworkBuilder

_SEPARABLE = ((16, 1), (32, 2), (32, 1), (64, 2), (64, 1), (128, 2), *((128, 1),) * 5, (256, 2),
              (256, 1))  # fmt: skip
"""Output channels and stride of each depthwise separable convolution, a quarter of MobileNet's."""


def resnet8(image_size: int) -> Network:
    """Image classification: three residual blocks, for CIFAR-10's 32 x 32 pixels."""
    net = NetworkBuilder(image_size)
    x = net.conv("conv1", "data", 16, 3)
    for stage, (channels, stride) in enumerate(((16, 1), (32, 2), (64, 2)), start=1):
        y = net.conv(f"stack{stage}.conv1", x, channels, 3, stride)
        y = net.conv(f"stack{stage}.conv2", y, channels, 3, activation="none")
        if stride > 1:
            x = net.conv(f"stack{stage}.shortcut", x, channels, 1, stride, activation="none")
        x = net.add(f"stack{stage}.add", x, y, activation="relu")
    return net.finish(x, classes=10)


def mobilenet_v1_025(image_size: int) -> Network:
    """Visual wake words: MobileNet v1 of width 1/4, two classes."""
    net = NetworkBuilder(image_size)
    x = net.conv("conv1", "data", 8, 3, 2)
    for index, (channels, stride) in enumerate(_SEPARABLE, start=1):
        x = net.depthwise(f"block{index}.depthwise", x, stride, "relu")
        x = net.conv(f"block{index}.pointwise", x, channels)
    return net.finish(x, classes=2)


def ds_cnn(_image_size: int) -> Network:
    """Keyword spotting: 49 frames of 10 MFCC, twelve words."""
    net = NetworkBuilder(49, image=(1, 49, 10))
    x = net.conv("conv1", "data", 64, (10, 4), 2)
    for index in range(1, 5):
        x = net.depthwise(f"block{index}.depthwise", x, 1, "relu")
        x = net.conv(f"block{index}.pointwise", x, 64)
    return net.finish(x, classes=12)


def autoencoder(_image_size: int) -> Network:
    """Anomaly detection: 640 values of a spectrogram, through 8, to 640."""
    net = NetworkBuilder(1, image=(640, 1, 1))
    x = "data"
    for index, width in enumerate((128,) * 4 + (8,) + (128,) * 4, start=1):
        x = net.conv(f"dense{index}", x, width)
    return net.finish(x, classes=640)
