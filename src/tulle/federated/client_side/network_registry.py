"""The networks that a client has installed, by the names that studies call them by."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from tulle.files.install_hints import install_hint

try:
    import torch
except ImportError as error:  # pragma: no cover
    raise ImportError(f"networks need PyTorch: {install_hint('torch')}", name=error.name) from error

from torch import Tensor, nn


@dataclass(frozen=True)
class RowLoss:
    """The loss of one row.

    Attributes
    ----------
    value : callable
        value(outputs, target): a scalar tensor, from the network's outputs for the row, of shape (n_classes,), and its
        target, a scalar.
    of_labels : bool
        Whether targets are classes 0 to n_classes - 1, and integers; otherwise they are numbers.
    """

    value: Callable[[Tensor, Tensor], Tensor]
    of_labels: bool


def _nll(outputs: Tensor, target: Tensor) -> Tensor:
    return -outputs.gather(0, target[None])[0]


def _squared(outputs: Tensor, target: Tensor) -> Tensor:
    return ((outputs - target) ** 2).sum() / 2


# Minus the log-probability of the row's class: for networks that end in a log-softmax.
NLL = RowLoss(_nll, of_labels=True)

# Half the squared error, for regressions.
SQUARED_ERROR = RowLoss(_squared, of_labels=False)


@dataclass(frozen=True)
class Network:
    """An architecture that terms may name.

    Attributes
    ----------
    make : callable
        Makes the module, with its random start.
    loss : RowLoss
    in_layers : bool, default=False
        Whether it is an `nn.Sequential` of which no layer mixes rows, and whose layers with weights are `nn.Linear` and
        `nn.Conv2d` without padding, dilation or groups: gradients of single rows then take a few products. Known of the
        networks of this module alone.
    """

    make: Callable[[], nn.Module]
    loss: RowLoss
    in_layers: bool = False


def mnist_cnn() -> nn.Module:
    """The paper's network for images of 28 × 28 pixels in rows of 784 numbers: 44,426 weights."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 28, 28)),
        nn.Conv2d(1, 6, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(256, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, 10),
        nn.LogSoftmax(1),
    )


NETWORKS: dict[str, Network] = {"mnist_cnn": Network(mnist_cnn, NLL, in_layers=True)}


def register_network(name: str, make: Callable[[], nn.Module], loss: RowLoss = NLL) -> None:
    """Give an architecture a name. Server and clients register the same code under the same name.

    Parameters
    ----------
    name : str
        Not taken yet.
    make : callable
        Makes the module. It takes rows of shape (n, d) and gives outputs of shape (n, n_classes), each from its own
        row: modules with batch normalisation are refused. It is used as in evaluation, so that dropout does nothing,
        and all of its parameters are weights of the model. Its constants (buffers) stay as they were made.
    loss : RowLoss, default=NLL

    Raises
    ------
    ValueError
        Where the name is taken by another architecture or the module is none that a row's gradient is defined for.
    """
    new = Network(make, loss)
    if NETWORKS.get(name, new) != new:
        raise ValueError(f"{name!r} is the name of another network already")
    make_network(new, name, 0)  # checks it
    NETWORKS[name] = new


def _check(name: str, module: nn.Module) -> None:
    """Raise where a row's gradient depends on other rows by construction, or there is nothing to fit."""
    mixing = [type(part).__name__ for part in module.modules() if isinstance(part, nn.modules.batchnorm._BatchNorm)]
    if mixing:
        raise ValueError(
            f"{name!r} has {mixing[0]}: it mixes the rows of a batch, and no row has a gradient of its own to be "
            "clipped; use GroupNorm or LayerNorm instead"
        )
    if not any(True for _ in module.parameters()):
        raise ValueError(f"{name!r} has no parameters")


_making = threading.Lock()


@lru_cache(maxsize=16)
def make_network(network: Network, name: str, seed: int) -> nn.Module:
    """The module as it starts, in float64, in evaluation mode. Not to be changed: `copy.deepcopy` it."""
    # The lock: torch has one generator for all threads, which is put back as it was.
    with _making, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        module = network.make()
    _check(name, module)
    return module.to(torch.float64).eval().requires_grad_(False)
