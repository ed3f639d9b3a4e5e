"""Imported once by the process that trainers are forked from: importing torch takes seconds."""

import torch

from tests.sdk import trainee

__all__ = ["trainee"]

torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))])
