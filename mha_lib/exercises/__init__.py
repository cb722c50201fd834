"""Exercises that check themselves: a check that names the fault, hints, a folded solution."""

from mha_lib.exercises.catalogue import CATALOGUE, check, require
from mha_lib.exercises.help import hints

__all__ = ["CATALOGUE", "check", "hints", "require"]
