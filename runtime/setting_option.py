"""A command-line option for a field of a role's settings."""

from typing import Any

import click


class SettingOption(click.Option):
    """An option whose help shows the default and the environment variable of a setting.

    The option does not read the variable: `read_settings` does, and reports all problems together.
    """

    def __init__(self, *args: Any, prefix: str = "TRADEWIND_", shows: str = "", **attributes: Any) -> None:
        attributes["show_envvar"] = True
        super().__init__(*args, **attributes)
        self.envvar = f"{prefix}{(self.name or '').upper()}"
        self._shows = shows

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        return None

    def get_help_extra(self, ctx: click.Context) -> Any:
        extra = super().get_help_extra(ctx)
        if self._shows:
            extra["required" if self._shows == "required" else "default"] = self._shows
        return extra
