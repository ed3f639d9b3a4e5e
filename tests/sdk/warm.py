"""Imported once by the process that trainers are forked from: importing torch takes seconds."""

import torch

import tests.sdk.trainee  # noqa: F401

torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))])
