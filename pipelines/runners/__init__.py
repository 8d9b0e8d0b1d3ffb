"""Runs finished packages: natively, in an emulator, or as programs."""

from pipelines.runners.choose import Runner, choose
from pipelines.runners.package import Package, open_package

__all__ = ["Package", "Runner", "choose", "open_package"]
