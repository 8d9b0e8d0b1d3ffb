"""The way of every graph into Relax: node by node, faults collected, nothing built twice.

A format subclasses `Importer` and answers what is particular to it: which nodes are needed, what
they read and give, which converter takes one. The walk, the order of checks and the sentences are
the same for all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from stages.importing.graph_inputs import GraphInput, input_shapes
from stages.importing.relax_builder import Array, Key, RelaxBuilder, Value
from stages.importing.unsupported import (
    CONSTANT_OUTPUT,
    MISFIT,
    MISFITS,
    MISSING_OUTPUT,
    Problems,
    Unsupported,
    UnsupportedError,
    refusal,
)
from stages.kinds import Model
from stages.options import ImportOptions

Builder = TypeVar("Builder", bound=RelaxBuilder[Any])
Node = TypeVar("Node")
Results = Value | Sequence[Value]
"""What a node gives: its one value, or a value for each of its outputs in order."""


@dataclass(frozen=True)
class Imported:
    """A graph walked to its end: the model, unless something was unsupported."""

    model: Model | None
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Shapes of the outputs that could be converted, by name."""
    unsupported: tuple[Unsupported, ...] = ()

    def required(self) -> Model:
        """The model; one StageError lists everything unsupported."""
        if self.model is None:
            raise refusal(self.unsupported)
        return self.model


class Importer(ABC, Generic[Builder, Node, Key]):
    """One graph on its way into Relax.

    `inputs` and `outputs` are the graph's, in its order: the keys of tensors, with what the file
    says of an input, and with the name of an output. `accepts` lists the element types that inputs
    may have; without it the builder checks them.
    """

    def __init__(
        self,
        builder: Builder,
        inputs: Mapping[Key, GraphInput],
        outputs: Mapping[Key, str],
        accepts: Sequence[str] = (),
    ) -> None:
        self.builder = builder
        self.inputs = inputs
        self.outputs = outputs
        self.accepts = accepts

    @abstractmethod
    def nodes(self) -> Iterable[Node]:
        """The nodes that the outputs depend on, in an order in which they can run."""

    @abstractmethod
    def title(self, node: Node) -> tuple[str, str]:
        """How errors call a node: its operator, and its layer."""

    @abstractmethod
    def operands(self, node: Node) -> Iterable[Key]:
        """The tensors that a node reads, those left out excluded."""

    @abstractmethod
    def results(self, node: Node, count: int) -> Sequence[Key]:
        """The tensors that a node gives; its converter makes `count` of them."""

    @abstractmethod
    def converter(self, node: Node) -> Callable[[Builder, Node], Results]:
        """What makes a node Relax; UnsupportedError says why nothing does."""

    @abstractmethod
    def attributes(self) -> dict[str, Any]:
        """The attributes of `main`: whose rounding it keeps, what inputs and outputs mean."""

    def folded(self, node: Node) -> Mapping[Key, Array] | None:
        """What a node gives whose operands are constants, or None if it is converted."""
        return None

    def define(self, node: Node, values: Sequence[Value]) -> None:
        """Note what a node gives."""
        for key, value in zip(self.results(node, len(values)), values, strict=False):
            self.builder.define(key, value)

    def prepare_outputs(self) -> None:
        """Give outputs the form that the framework gives them in."""

    def check_output(self, key: Key) -> None:
        """UnsupportedError for an output that no package can give."""
        if self.builder.is_constant(key):
            raise UnsupportedError(CONSTANT_OUTPUT)
        if not self.builder.is_defined(key):
            raise UnsupportedError(MISSING_OUTPUT)

    def completed(self, model: Model) -> Model:
        """The model after what is done to it as a whole."""
        return model

    def run(self, options: ImportOptions) -> Imported:
        """Convert what can be converted, and collect what cannot."""
        problems = Problems()
        shapes = input_shapes([*self.inputs.values()], options, self.accepts)
        for key, item in self.inputs.items():
            with problems.noted("input", item.name):
                self.builder.add_input(key, shapes[item.name], item.dtype)
        for node in self.nodes():
            with problems.noted(*self.title(node)):
                self._convert(node)
        self.prepare_outputs()
        if not problems:  # an output behind an unsupported node is not another problem
            for key, name in self.outputs.items():
                with problems.noted("output", name):
                    self.check_output(key)
        known = {
            name: self.builder.shape(key)
            for key, name in self.outputs.items()
            if self.builder.is_defined(key)
        }
        if problems:
            return Imported(None, known, problems.listed())
        model = self.builder.finish(self.outputs, self.attributes())
        return Imported(self.completed(model), known)

    def _convert(self, node: Node) -> None:
        is_ready = all(self.builder.is_defined(key) for key in self.operands(node))
        if is_ready and (folded := self.folded(node)) is not None:
            for key, value in folded.items():
                self.builder.define(key, value)
            return
        converter = self.converter(node)
        if is_ready:  # else something before it is unsupported, and has been noted
            self.define(node, converted(converter, self.builder, node))


def converted(
    converter: Callable[[Builder, Node], Results], builder: Builder, node: Node
) -> list[Value]:
    """The values that a converter makes of a node, one for each output it knows.

    A converter may trip over operands or attributes that nobody would write; that is
    an UnsupportedError, too.
    """
    try:
        found = converter(builder, node)
    except MISFITS as error:
        raise UnsupportedError(MISFIT) from error
    return list(found) if isinstance(found, (list, tuple)) else [found]  # type: ignore[list-item]


def needed_nodes(
    nodes: Sequence[Node],
    outputs: Iterable[Key],
    operands: Callable[[Node], Iterable[Key]],
    results: Callable[[Node], Iterable[Key]],
    is_kept: Callable[[Node], bool] = lambda node: False,
) -> list[Node]:
    """The nodes that outputs depend on, in order, and those that `is_kept` says have effects."""
    needed = set(outputs)
    kept = []
    for node in reversed(nodes):
        if is_kept(node) or not needed.isdisjoint(results(node)):
            kept.append(node)
            needed.update(operands(node))
    return kept[::-1]
