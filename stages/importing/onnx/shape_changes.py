"""Converters of ONNX nodes that give a tensor another shape, or the same values as they are."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tvm import relax

from stages.importing.onnx.onnx_builder import OnnxBuilder
from stages.importing.onnx.onnx_reader import Node
from stages.importing.unsupported import UnsupportedError
from stages.nodes import Var


def identity(builder: OnnxBuilder, node: Node) -> Var:
    """Identity and, at inference, Dropout."""
    if any(node.outputs[1:]):
        raise UnsupportedError("gives a mask; export the model for inference")
    if node.has(2) and builder.constant(node.inputs[2]).any():
        raise UnsupportedError("is in training mode; export the model for inference")
    return builder.read(node.inputs[0])


def transpose(builder: OnnxBuilder, node: Node) -> Var:
    """Transpose; without a permutation the axes are reversed."""
    rank = len(builder.shape(node.inputs[0]))
    order = [int(axis) for axis in node.attributes.get("perm") or range(rank)[::-1]]
    return builder.emit(relax.op.permute_dims(builder.read(node.inputs[0]), order), node.layer)


def flatten(builder: OnnxBuilder, node: Node) -> Var:
    """Flatten to two dimensions."""
    shape = builder.shape(node.inputs[0])
    axis = int(node.attributes.get("axis", 1))
    axis += len(shape) if axis < 0 else 0
    if not 0 <= axis <= len(shape):
        raise UnsupportedError(f"flattens at axis {axis} of a rank-{len(shape)} tensor")
    return _reshape(builder, node, (prod(shape[:axis]), prod(shape[axis:])))


def reshape(builder: OnnxBuilder, node: Node) -> Var:
    """Reshape to a constant shape, with ONNX's 0 (keep) and -1 (the rest)."""
    old = builder.shape(node.inputs[0])
    new = [int(extent) for extent in builder.constant(node.inputs[1]).ravel()]
    if not node.attributes.get("allowzero"):
        new = [old[i] if e == 0 and i < len(old) else e for i, e in enumerate(new)]
    if new.count(-1) == 1:
        known = -prod(new)
        if known > 0:
            new[new.index(-1)] = prod(old) // known
    return _reshape(builder, node, new)


def squeeze(builder: OnnxBuilder, node: Node) -> Var:
    """Squeeze; without axes, every extent of 1 goes."""
    shape = builder.shape(node.inputs[0])
    axes = _axes(builder, node, len(shape))
    gone = {i for i, extent in enumerate(shape) if extent == 1} if axes is None else set(axes)
    return _reshape(builder, node, [e for i, e in enumerate(shape) if i not in gone])


def unsqueeze(builder: OnnxBuilder, node: Node) -> Var:
    """Unsqueeze at the given axes of the result."""
    shape = list(builder.shape(node.inputs[0]))
    axes = _axes(builder, node, None) or []
    rank = len(shape) + len(axes)
    added = {axis % rank for axis in axes}
    return _reshape(builder, node, [1 if i in added else shape.pop(0) for i in range(rank)])


def _axes(builder: OnnxBuilder, node: Node, rank: int | None) -> list[int] | None:
    axes = node.attributes.get("axes")
    if node.has(1):
        axes = builder.constant(node.inputs[1]).ravel().tolist()
    if axes is None:
        return None
    return [int(axis) if rank is None else int(axis) % rank for axis in axes]


def _reshape(builder: OnnxBuilder, node: Node, shape: Sequence[int]) -> Var:
    old = builder.shape(node.inputs[0])
    if any(extent < 1 for extent in shape) or prod(shape) != prod(old):
        raise UnsupportedError(f"reshapes {list(old)} to {list(shape)}")
    if tuple(shape) == old:
        return builder.read(node.inputs[0])
    call = relax.op.reshape(builder.read(node.inputs[0]), tuple(shape))
    return builder.emit(call, node.layer)
