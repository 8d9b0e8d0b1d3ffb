"""Results as a file of JUnit's form, which GitHub, GitLab, Jenkins and others read."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree

from pipelines import exit_status
from pipelines.builds.ci_builds import Built


def text(results: Sequence[Built]) -> bytes:
    """The file, UTF-8: a case for each recipe, by its board.

    A check that said no is a failure, all else that stopped a build an error; what was built and
    not run is skipped.
    """
    suite = ElementTree.Element("testsuite", name="bitkiln")
    for result in results:
        board = _clean(result.board or "unknown")
        case = ElementTree.SubElement(
            suite,
            "testcase",
            classname=board,
            name=_clean(result.recipe),
            time=f"{result.seconds:.3f}",
        )
        kind = _kind(result)
        if kind is not None:
            found = ElementTree.SubElement(case, kind, message=_clean(result.why))
            found.text = _clean(result.output) if kind != "skipped" else None
        else:
            ElementTree.SubElement(case, "system-out").text = _clean(result.verified or "")
    kinds = [_kind(result) for result in results]
    counts = {
        "tests": str(len(results)),
        "failures": str(kinds.count("failure")),
        "errors": str(kinds.count("error")),
        "skipped": str(kinds.count("skipped")),
        "time": f"{sum(result.seconds for result in results):.3f}",
    }
    suite.attrib.update(counts)
    root = ElementTree.Element("testsuites", counts)
    root.append(suite)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="utf-8", xml_declaration=True) + b"\n"


def _kind(result: Built) -> str | None:
    if not result.is_fine:
        return "failure" if result.status == exit_status.NO else "error"
    return "skipped" if result.verified is None else None


def _clean(said: str) -> str:
    """A text without what XML 1.0 cannot hold."""
    return "".join(
        c if c in "\t\n" or _is_allowed(ord(c)) else "\N{REPLACEMENT CHARACTER}" for c in said
    )


def _is_allowed(code: int) -> bool:
    return 0x20 <= code <= 0xD7FF or 0xE000 <= code <= 0xFFFD or code >= 0x10000
