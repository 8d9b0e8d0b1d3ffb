"""The one error a stage raises when the user's model or recipe cannot be built."""


class StageError(Exception):
    """A problem the user can act on: what was found, in which layer, and the next step."""

    def __init__(self, message: str, *, layer: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.layer = layer
        self.hint = hint

    def __str__(self) -> str:
        where = f"{self.layer}: " if self.layer else ""
        hint = f"; {self.hint}" if self.hint else ""
        return f"{where}{self.message}{hint}"


class NoIntegerFormError(StageError):
    """A layer of a network with quantizers that can only be computed in float."""
