"""Integers of an epilogue: words of 16 bits where they fit, bytes in the end.

A register has twice as many words as integers of 32 bits.
"""

from __future__ import annotations

from dataclasses import dataclass

from stages.packaging.vectors import LONGEST_WORD, Vectors, packing


@dataclass
class Value:
    """A part of a tensor: integers or floats, or the masks of a level."""

    kind: str
    """Its type in LLVM IR; of a level, the type of what was compared."""
    name: str = ""
    masks: tuple[str, ...] = ()
    reach: int = 1 << 31
    """No integer is larger in size."""
    bounds: tuple[int, int] | None = None
    """What integers are yet to be clipped to: narrowing may do that on the way."""


class Integers(Vectors):
    """LLVM IR over integers, whatever kind of vectors they are."""

    def _level(self, value: Value) -> Value:
        """A level as integers: the number of its set masks.

        They are set from the first to the last, so that the last set one tells: where masks have
        registers of their own, a move under a mask is cheaper than to make a number of it.
        """
        total = "zeroinitializer"
        kind = self.bytes if self.packs else value.kind
        for number, mask in enumerate(value.masks, 1):
            if self.packs:
                level = self.constant(kind, number)
                total = self.let(f"select {self.bits} {mask}, {kind} {level}, {kind} {total}")
            else:
                one = self.let(f"zext {self.bits} {mask} to {kind}")
                total = self.let(f"add {kind} {total}, {one}")
        return Value(kind, total)

    def _converted(self, kind: str, name: str, wanted: str) -> str:
        """Integers of one kind as those of another, which holds them; bytes are unsigned."""
        if kind == wanted:
            return name
        sizes = {self.bytes: 8, self.words: 16, self.ints: 32}
        longer = "zext" if kind == self.bytes else "sext"
        op = longer if sizes[kind] < sizes[wanted] else "trunc"
        return self.let(f"{op} {kind} {name} to {wanted}")

    def integer(self, value: Value, wanted: str) -> str:
        """A value as integers of a kind, which hold it."""
        found = self._level(value) if value.masks else value
        kind, name, bounds = found.kind, found.name, found.bounds
        if bounds is not None:
            if wanted == self.bytes and self.packs and packing(bounds):
                return self.packed(name, kind, bounds)
            if kind == self.ints and self.shortest(value.reach) == self.words:
                kind, name = self.words, self.saturated(name)
            name = self.clip_integers(kind, name, *bounds)
        return self._converted(kind, name, wanted)

    def shortest(self, reach: int) -> str:
        """The kind of words if they hold integers of at most this size, else int32."""
        return self.words if reach <= LONGEST_WORD else self.ints
