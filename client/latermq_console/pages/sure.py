"""What is asked before something is gone for good."""

from latermq_console.serving.console import FormError, View


def is_sure(view: View) -> bool:
    """Tell whether the form was sent by who said to be sure."""
    return view.field("sure") == "yes"


def check_name(view: View, name: str) -> None:
    """Want the name to be typed: a click may be a mistake. Raises FormError."""
    if view.field("typed") != name:
        raise FormError(f"nothing was changed: type {name} to say that you are sure")
