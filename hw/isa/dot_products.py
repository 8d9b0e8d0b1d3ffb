"""Dot products of integers: what an instruction adds to lanes of 32 bits."""

from __future__ import annotations

from hw.isa.instruction import Meaning
from hw.isa.lane import Lane, Lanes


def dot_product(group: int, *, signed: bool = False) -> Meaning:
    """`total + sum over a group of x * y` per 32-bit lane; x is unsigned unless `signed`."""

    def meaning(total: Lanes, x: Lanes, y: Lanes) -> list[Lane]:
        products = [p.extend(32, signed) * q.extend(32, True) for p, q in zip(x, y, strict=True)]
        sums = list(total)
        for position, product in enumerate(products):
            sums[position // group] = sums[position // group] + product
        return sums

    return meaning


def matrix_product(group: int, *, signed: bool = False) -> Meaning:
    """What `dot_product` is, of every row of x with every row of y, each of `group` bytes.

    Lane `rows * i + j` of the total gains row i of x times row j of y.
    """

    def meaning(total: Lanes, x: Lanes, y: Lanes) -> list[Lane]:
        rows = len(x) // group
        sums = list(total)
        for i in range(rows):
            for j in range(rows):
                for k in range(group):
                    p, q = x[group * i + k], y[group * j + k]
                    product = p.extend(32, signed) * q.extend(32, True)
                    sums[rows * i + j] = sums[rows * i + j] + product
        return sums

    return meaning
