"""The recipe that `doit import` writes: what a model file tells, and what its kind suggests.

Whatever is guessed stands below a comment that says so and why; what nothing tells is left out, and
a comment says what to write.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from stages.importing.image_preprocessing import IMAGENET, image_layout, pixels_of
from stages.kinds import Table

_MOST_CLASSES = 100_000
_PROBABILITIES = ("softmax", "sigmoid", "logistic")
_SCORES = ("matmul", "dense", "conv", "mean", "avg_pool", "pool2d")
"""Parts of names of operators that give probabilities, and of those that give scores."""
_CURVES = ("logistic", "sigmoid", "tanh")
_BACKGROUND = "background"


def starter_recipe(
    description: Table, model_path: str, name: str, labels: Mapping[str, str] | None = None
) -> str:
    """A recipe, as YAML text, that builds the described file for this machine.

    Its `ends`, of `boundary_operators`, may be missing where the file is not supported.
    `labels` are files of class names by output.
    """
    widths = sorted(
        {
            f"A{layer['activations']['bits']}W{layer['weights']['bits']}"
            for layer in description["layers"]
            if layer["activations"] and layer["weights"]
        }
    )
    precision = ", ".join(widths) or "no quantized layers"
    title = f"{name}: {description['format']}, {precision}"
    lines = [
        f"description: {_quoted(title)}",
        f"model: {{file: {_quoted(model_path)}}}",
        *_section("inputs", _inputs(description)),
        *_section("outputs", _outputs(description, labels or {})),
        "hardware: host",
        *_evaluation(description),
    ]
    layers = description["layers"]
    if layers and not any(layer["activations"] or layer["weights"] for layer in layers):
        lines.append("# it computes in float32; for int8, name samples of its input:")
        lines.append("# calibration: {data: FOLDER_OF_IMAGES_OR_FILE.npz}")
    for item in description["unsupported"]:
        at = f" at {', '.join(item['layers'][:3])}" if item["layers"] else ""
        lines.append(_comment(f"not supported yet: {item['op']}{at}: {item['why']}"))
    return "\n".join(lines) + "\n"


def takes_images(description: Table) -> bool:
    """Whether the file's one input can be an image."""
    inputs = description["inputs"]
    return len(inputs) == 1 and image_layout(inputs[0]) is not None


def _section(name: str, lines: Iterator[str]) -> list[str]:
    """A mapping of the recipe; comments alone where there is nothing in it."""
    found = list(lines)
    if any(not line.startswith("#") for line in found):
        return [f"{name}:", *(f"  {line}" for line in found)]
    return found


def _inputs(description: Table) -> Iterator[str]:
    firsts = description.get("ends", {}).get("inputs", {})
    for item in description["inputs"]:
        shape, fields = item["shape"], {}
        if None in shape[1:]:
            yield _comment(f"state the shape: {_quoted(item['name'])}: {{shape: [1, ...]}}")
        elif None in shape:
            fields["shape"] = str([1, *shape[1:]])
        first = firsts.get(item["name"], {})
        found = pixels_of(item, first, _classes(description), description["format"])
        if found.known:
            yield _comment(f"{item['name']}: {found.known}")
        yield from map(_guess, found.guessed)
        fields |= found.fields
        if not found.fields and None not in shape[1:]:
            yield from _numbers(item)
            if item["dtype"] == "float32" and item["smallest"] == 0 and item["largest"] > 1:
                fields["scale"] = "1.0"
        if fields:
            yield _fields(item["name"], fields)


def _numbers(item: Table) -> Iterator[str]:
    """What an input that is no image takes."""
    shape = [1 if extent is None else extent for extent in item["shape"]]
    yield _comment(f"{item['name']} is no image: doit run takes a .npy or .npz of {shape}")


def _outputs(description: Table, labels: Mapping[str, str]) -> Iterator[str]:
    endings = {item["op"] for item in description["left_to_caller"]}
    for item in description["outputs"]:
        fields = {}
        if endings:
            is_softmax = bool(endings & {"Softmax", "LogSoftmax"})
            fields["postprocess"] = "softmax" if is_softmax else "argmax"
        elif _is_scores(description, item):
            yield _guess("outputs are scores, one a class, which softmax makes probabilities")
            fields["postprocess"] = "softmax"
        if item["name"] in labels:
            yield _comment("labels are those of the file's metadata")
            fields["labels"] = _quoted(labels[item["name"]])
        elif classes := _classes(description):
            yield _comment(f"to show names add labels: FILE.txt, of {classes} lines, one a class")
        if fields:
            yield _fields(item["name"], fields)


def _evaluation(description: Table) -> Iterator[str]:
    classes = _classes(description)
    if not classes or len(description["inputs"]) != 1:
        return
    folder = "a folder of images with labels.csv, or " if takes_images(description) else ""
    yield _comment(f"for `doit accuracy` name labelled data: {folder}a .npz of images and labels")
    first = ""
    names = description["outputs"][0].get("labels") or [""]
    if names[0].strip().lower() == _BACKGROUND:
        yield _comment("its first class is the background, and labels count from the second")
        first = ", first_class: 1"
    elif classes == max(IMAGENET):
        yield _guess("of 1001 classes the first is the background")
        first = ", first_class: 1"
    yield f"# evaluation: {{data: FOLDER_OR_FILE.npz{first}}}"


def _classes(description: Table) -> int | None:
    """How many classes a network tells apart, as far as its one output lets one think so."""
    outputs = description["outputs"]
    shape = outputs[0]["shape"] if len(outputs) == 1 else None
    if not shape or None in shape or prod(shape) != max(shape):
        return None
    if len(outputs[0].get("labels", ())) == max(shape):
        return max(shape)
    made_by = _maker(description, outputs[0])
    is_classifier = not made_by or any(part in made_by for part in (*_PROBABILITIES, *_SCORES))
    # What has as many outputs as inputs, as autoencoders have, gives no classes.
    sizes = {prod(1 if e is None else e for e in each["shape"]) for each in description["inputs"]}
    is_classifier &= prod(shape) not in sizes
    return max(shape) if is_classifier and 1 < max(shape) <= _MOST_CLASSES else None


def _is_scores(description: Table, item: Table) -> bool:
    """Whether an output is what a softmax would follow, and none of the graph's curves made it."""
    made_by = _maker(description, item)
    curves = {kind.rpartition(".")[2].lower() for kind in description["operators"]}
    return (
        _classes(description) is not None
        and any(part in made_by for part in _SCORES)
        and not curves & set(_CURVES)
    )


def _maker(description: Table, item: Table) -> str:
    outputs = description.get("ends", {}).get("outputs", {})
    return str(outputs.get(item["name"], {}).get("made_by", ""))


def _guess(text: str) -> str:
    return _comment(f"guessed: {text}; check it against how the model was trained")


def _comment(text: str) -> str:
    """One comment of one line, whatever the file put into it."""
    return f"# {' '.join(''.join(c if c.isprintable() else ' ' for c in text).split())}"


def _fields(name: str, fields: Mapping[str, str]) -> str:
    return f"{_quoted(name)}: {{{', '.join(f'{key}: {value}' for key, value in fields.items())}}}"


def _quoted(text: str) -> str:
    """A text in double quotes, as YAML reads it, whatever the file put into it."""
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(char: str) -> str:
    if char in '"\\':
        return f"\\{char}"
    return char if char.isprintable() else f"\\U{ord(char):08x}"
