"""The commands there are: what each does, what it heeds, and examples. All else reads this table.

`doit_tasks` makes tasks of it, `command_words` refuses what a command does not heed, and `help`
prints it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Command:
    """A command, and where it is not made of stages the module that it runs:
    `pipelines.commands.<module>.run(**arguments)`."""

    name: str
    doc: str
    module: str
    after: tuple[str, ...] = ()
    """Tasks that must have run."""
    recipe: bool = True
    """Whether it works on one recipe, handed in as `resolved` and `plan`."""
    positional: str | None = None
    """Name of the argument that takes what stands behind the task's name."""
    operand: str = "FILE ..."
    """How help writes what stands there."""
    operand_is: str = "what it works on"
    """What help says of it."""
    has_check: bool = False
    """Whether its module's `check(resolved, variables)` refuses what cannot be, before those
    tasks."""
    takes: tuple[str, ...] = ()
    """The variables that it heeds, besides `recipe` and a recipe's fields where it works on one."""
    instead: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Variables that make it something else → those that it then heeds besides."""
    examples: tuple[str, ...] = ()
    """Command lines behind `doit`."""

    @property
    def heeds(self) -> tuple[str, ...]:
        """All variables of commands that it heeds in one form or another, each once."""
        return tuple(dict.fromkeys(self._heeds()))

    def _heeds(self) -> Iterator[str]:
        yield from ("recipe",) if self.recipe else ()
        yield from self.takes
        for name, more in self.instead.items():
            yield from (name, *more)


_BUILT = ("build:publishing",)

BUILD = Command(
    "build", "build a recipe's package, stage by stage: recipe=NAME [field=value ...]", "",
    takes=("board", "executor", "scheduler"),
    examples=("build recipe=digits_a2w2_host", "build recipe=digits_a2w2_host hardware=rpi4"),
)  # fmt: skip
CLEAN = Command(
    "clean", "removes what a recipe's builds left and no other recipe uses", "",
    examples=("clean recipe=digits_a2w2_host", "clean --dry-run recipe=digits_a2w2_host"),
)  # fmt: skip

COMMANDS: tuple[Command, ...] = (
    Command("import", "what a model file contains; writes a starter recipe", "importing",
            recipe=False, positional="files", operand="FILE", takes=("file", "json"),
            examples=("import path/to/model.onnx", "import model.tflite json=found.json")),
    Command("new", "a folder of one's own for recipes, models and boards: FOLDER", "new",
            recipe=False, positional="files", operand="FOLDER",
            examples=("new ~/networks", "new ../networks")),
    Command("run", "run one input through the package: input=FILE [out=FILE.npz profile=FILE.json]",
            "run", after=_BUILT, has_check=True,
            takes=("input", "board", "out", "threads", "profile", "repeat", "json"),
            examples=("run recipe=digits_a2w2_host input=sample.npy",
                      "run recipe=digits_a2w2_host input=picture.png out=outputs.npz")),
    Command("verify", "golden vectors after every stage and in the package: [layer=PATTERN]",
            "verify", after=_BUILT, takes=("layer", "passes", "board", "threads", "json"),
            examples=("verify recipe=digits_a2w2_host layer=all passes=all",
                      "verify recipe=resnet18_a2w1_rpi3 board=pi@raspberrypi")),
    Command("accuracy",
            "right answers of package and source model; [layer=PATTERN]: what each layer costs",
            "accuracy", after=_BUILT, takes=("reference", "samples", "threads", "json"),
            instead={"layer": ("samples", "json")},
            examples=("accuracy recipe=digits_a2w2_host",
                      "accuracy recipe=digits_a2w2_host samples=100 reference=framework")),
    Command("tune",
            "tries the kernels of every layer: [schedule.trials=N board=user@host,... out=FILE]",
            "tune", takes=("board", "repeat", "out", "json"),
            examples=("tune recipe=digits_a2w2_host schedule.trials=16",
                      "tune recipe=resnet18_a2w1_rpi3 board=pi@raspberrypi")),
    Command("bench",
            "times beside other engines, or emulates a board: [peers=NAME,... layer=all grow=all]",
            "bench", after=_BUILT, has_check=True,
            takes=("peers", "peers.larq", "own", "repeat", "threads", "json"),
            instead={"board": ("peers", "repeat", "threads", "json"), "layer": ("json",),
                     "primitives": ("threads", "json"),
                     "grow": ("repeat", "threads", "json"), "pin": ()},
            examples=("bench recipe=digits_a2w2_host peers=none",
                      "bench recipe=resnet18_a2w1_rpi3 board=pi@raspberrypi")),
    Command("conformance", "model files beside their frameworks' own runtimes: FOLDER ...",
            "conformance", recipe=False, positional="files", operand="FOLDER ...",
            takes=("samples", "pictures", "packages", "json"),
            examples=("conformance models/", "conformance models/ packages=yes samples=4")),
    Command("show",
            "every value with its origin, stages; [layer=PATTERN]: kernels; [passes=all]",
            "show", takes=("json",), instead={"layer": ("json",), "passes": ("json",)},
            examples=("show recipe=digits_a2w2_host layer=conv2",
                      "show recipe=digits_a2w2_host passes=all")),
    Command("report",
            "one HTML page about a built recipe: [bench=FILE accuracy=FILE,... out=FILE]", "report",
            after=_BUILT, takes=("bench", "accuracy", "out", "json"),
            examples=("report recipe=digits_a2w2_host out=digits.html",
                      "report recipe=digits_a2w2_host bench=bench.json accuracy=rate.json")),
    Command("compare", "built recipes beside each other, on a page: recipes=NAME,NAME,...",
            "compare", recipe=False, takes=("recipes", "accuracy", "out"),
            examples=("compare recipes=digits_a2w2_host,resnet18_a2w1_rpi3",
                      "compare recipes=digits_a2w2_host,resnet18_a2w1_rpi3 out=both.html")),
    Command("ci", "builds and verifies many recipes, on after a fault: [recipes=PATTERN,...]", "ci",
            recipe=False, takes=("recipes", "jobs", "json", "junit", "executor", "scheduler"),
            examples=("ci recipes='ci/*_rpi3,digits_*' jobs=2 junit=ci.xml",
                      "ci executor=dask scheduler=tcp://HOST:8786")),
    Command("paper",
            "the sources' tables and figures, beside ours, on a page: [figure=NAME,... or all]",
            "paper", recipe=False, takes=("figure", "out", "json"),
            examples=("paper", "paper figure=cgo-figure-7,alios-figure-10")),
    Command("recipes", "the recipes there are", "recipes", recipe=False, takes=("json",),
            examples=("recipes", "recipes json=recipes.json")),
    Command("doctor",
            "what is installed, what is missing and what to do about it; of boards: [board=NAME]",
            "doctor", recipe=False, takes=("json",),
            instead={"board": ("recipe", "hardware", "json")},
            examples=("doctor", "doctor board=pi@raspberrypi hardware=rpi4")),
    Command("cache", "a store that several share: push, pull, verify, gc, stats, keygen", "cache",
            recipe=False, positional="files", operand="WORD",
            operand_is="push, pull, verify, gc, stats or keygen", takes=("recipe", "out", "json"),
            examples=("cache keygen out=cache.key", "cache push recipe=digits_a2w2_host")),
    Command("kernels", "all kernels with proofs, costs and times: [isa=NAME core=NAME repeat=N]",
            "kernels", recipe=False, takes=("isa", "core", "repeat", "json"),
            examples=("kernels", "kernels core=cortex-a53")),
    Command("explain", "one kernel, why it is right and what it runs: kernel=NAME [core=NAME]",
            "explain", recipe=False, takes=("kernel", "isa", "core"),
            examples=("explain kernel=NAME", "explain kernel=NAME core=cortex-a72")),
    Command("measure", "what instructions cost: timed here, or by llvm-mca: core=NAME [out=FILE]",
            "measure", recipe=False, takes=("core", "out"),
            examples=("measure", "measure core=cortex-a72 out=a72.yaml")),
    Command("completion", "a script by which a shell completes command lines: shell=NAME",
            "completion", recipe=False, takes=("shell",),
            examples=("completion shell=bash", "completion shell=fish")),
    Command("check", "lint, types and tests", "check", recipe=False, takes=("json",),
            examples=("check", "check json=tests.json")),
)  # fmt: skip

ALL = (BUILD, *COMMANDS, CLEAN)
BY_NAME = {command.name: command for command in ALL}
COMMAND_NAMES = tuple(BY_NAME)

MEANINGS: Mapping[str, str] = {
    "recipe": "a recipe by its name, or its file by path",
    "file": "the model file, as the word behind `import`",
    "input": "a picture, .npy, or .npz with an array by each input's name",
    "out": "the file to write",
    "json": "the result, also as JSON to this file",
    "threads": "how many threads the package runs with",
    "layer": "a pattern of layer names, or all",
    "passes": "all: the passes that rewrite the graph, or a pattern of their names",
    "board": "user@host,... to reach over ssh, or names of a boards file",
    "reference": "what the package is compared with: source or framework",
    "samples": "how many samples are taken",
    "repeat": "how often each is timed",
    "profile": "prints what time each layer takes, and writes a trace for ui.perfetto.dev here",
    "peers": "the other engines, separated by commas; all or none",
    "peers.larq": "a Python that has larq-compute-engine",
    "own": "our own package of the network in int8 or float32, beside it",
    "primitives": "a layer of few bits, as plain loops and step by step better",
    "grow": "channels or picture sizes doubled: an axis, or all",
    "pin": "why counts of instructions may rise",
    "pictures": "a folder of pictures to run models on",
    "packages": "yes: builds and runs a package of each file",
    "bench": "what `doit bench … layer=all json=FILE` or `board=… json=FILE` wrote",
    "recipes": "recipes, separated by commas; of ci also patterns",
    "figure": "tables and figures to measure, by name, separated by commas; or all",
    "jobs": "how many recipes are built at a time",
    "executor": "who builds: processes of this machine, or the workers of a dask cluster",
    "scheduler": "the address of the cluster's scheduler: tcp://HOST:PORT or tls://HOST:PORT",
    "junit": "the result, also to this file, as GitHub and others read it",
    "accuracy": "what `doit accuracy … json=FILE` wrote, separated by commas",
    "hardware": "the board by its name, or its file by path",
    "shell": "bash, zsh or fish",
    "isa": "an instruction set",
    "core": "a processor core of hw/cores",
    "kernel": "a kernel's name, as `doit kernels` prints it",
}
"""What the value of each variable of a command is."""

FIELDS: Mapping[str, str] = {
    "hardware": "the board: rpi3, rpi4, rpi5, ...; host is this machine",
    "model.file": "another model file",
    "model.batch": "inputs at a time, of a network of the zoo",
    "schedule.trials": "kernels to measure for each layer",
    "floats": "how layers left in float multiply: float32, bfloat16, float16",
    "package.formats": "what a package holds: [shared, static, executable, source, wheel]",
    "package.profile": "true: the package can tell the time of each layer",
    "golden.samples": "random inputs that the package is checked with",
}
"""The fields of a recipe that a command line changes most; recipes/README.md has all."""
VARIABLES = tuple(dict.fromkeys(name for each in COMMANDS for name in (*each.takes, *each.instead)))
"""All variables of commands, but `recipe`."""
