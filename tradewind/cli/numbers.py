"""Numbers between bounds that are called so where one is asked for or refused: click would call them ranges."""

import click


class Whole(click.IntRange):
    name = "integer"


class Number(click.FloatRange):
    name = "number"
