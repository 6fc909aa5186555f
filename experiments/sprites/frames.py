"""The frames of characters: which are for what, and minibatches that hold whole characters."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from gpflow_bae.data import StreamedObservations
from gpflow_bae.data.streams.shards import Chunk, Shards
from gpflow_bae.datasets.sprites import Frames, Sprites

_SHUFFLED = 2000  # frames, where minibatches are of any


class Task(NamedTuple):
    """The frames that a run is trained on, and those that it is asked for.

    - train, context, test: frames as :class:`~gpflow_bae.datasets.sprites.Sprites` has them.
    - num_characters: ids run below it.
    - num_poses: the same of poses.
    """

    train: Frames
    context: Frames
    test: Frames
    num_characters: int
    num_poses: int


def task(data: Sprites, num_train: int, num_test: int | None, holdout: int) -> Task:
    """The published task, or a part of it, or one made of training characters alone.

    :param num_train: training characters that are kept, the first ones.
    :param num_test: test characters that are kept, the first ones; None for all.
    :param holdout: so many of the last training characters that are kept are tested on in the
        place of the test characters: half of the poses of each is context, the others are asked
        for. 0 for the test characters.
    :raises ValueError: where that leaves no characters.
    """
    ids = np.unique(data.train.X[:, 0])[:num_train]
    if not 0 <= holdout < len(ids):
        raise ValueError(f"holdout is {holdout}; of {len(ids)} training characters some must stay.")
    num_poses = int(max(frames.X[:, 1].max() for frames in data[:3])) + 1
    if holdout:
        train, held = np.split(ids, [len(ids) - holdout])
        seen = of_characters(data.train, held)
        rank = np.arange(len(seen.X)) - np.searchsorted(seen.X[:, 0], seen.X[:, 0])
        # Poses are sorted: every other one is context.
        context, test = (Frames(seen.X[rank % 2 == i], seen.Y[rank % 2 == i]) for i in (0, 1))
        return Task(of_characters(data.train, train), context, test, int(ids[-1]) + 1, num_poses)
    asked = np.unique(data.test.X[:, 0])[:num_test]
    parts = zip((data.train, data.context, data.test), (ids, asked, asked), strict=True)
    return Task(*(of_characters(*part) for part in parts), int(asked[-1]) + 1, num_poses)


def of_characters(frames: Frames, ids: np.ndarray) -> Frames:
    """The frames of some characters."""
    kept = np.isin(frames.X[:, 0], ids)
    return frames if kept.all() else Frames(frames.X[kept], frames.Y[kept])


def first_poses(frames: Frames, number: int, seed: int = 0) -> Frames:
    """So many frames of each character, drawn at random; more hold all that fewer do."""
    keys = np.random.default_rng([seed, 0xF0]).random(len(frames.X))
    order = np.lexsort((keys, frames.X[:, 0]))
    ids = frames.X[order, 0]
    rank = np.arange(len(ids)) - np.searchsorted(ids, ids)
    kept = np.sort(order[rank < number])
    return Frames(frames.X[kept], frames.Y[kept])


def pooled(*parts: Frames) -> Frames:
    """All frames of some parts."""
    return Frames(*(np.concatenate(values) for values in zip(*parts, strict=True)))


class FrameShards(Shards):
    """Frames in memory as bytes, in groups that stay together; floats are made of them in passing.

    A minibatch of floats takes four times the memory of its bytes, and all frames would take 2.5
    GB.
    """

    def __init__(self, X: np.ndarray, Y: np.ndarray, groups: list[np.ndarray]):
        """
        :param X: inputs [N, D].
        :param Y: colours [N, P], uint8.
        :param groups: rows of each part.
        """
        self.names = tuple(f"group {i}" for i in range(len(groups)))
        self.input_dim, self.num_outputs = int(X.shape[1]), int(Y.shape[1])
        with tf.device("CPU"):
            self._X, self._Y = tf.constant(X), tf.constant(Y)
            self._order = tf.constant(np.concatenate(groups), tf.int32)
            self._ends = tf.constant(np.cumsum([0, *map(len, groups)]), tf.int64)

    def chunks(self, number: tf.Tensor) -> tf.data.Dataset:
        """A group as one chunk."""
        numbers = tf.data.Dataset.from_tensors(number)
        return numbers.map(self._chunk)

    @tf.autograph.experimental.do_not_convert
    def _chunk(self, number: tf.Tensor) -> Chunk:
        rows = self._order[self._ends[number] : self._ends[number + 1]]
        # Exactly as sprites.as_float divides.
        return tf.gather(self._X, rows), tf.cast(tf.gather(self._Y, rows), tf.float32) / 256.0


def stream(
    frames: Frames, per_character: int | None, seed: int = 0, X: np.ndarray | None = None
) -> StreamedObservations:
    """Minibatches of frames, of which those of a character come together.

    Shards are groups of a character's frames, and rows are shuffled within one group only: so
    they follow each other in random order, each whole, and a minibatch whose size is a multiple of
    ``per_character`` holds whole groups, in every epoch.

    :param per_character: frames of a group, which divides the number of each character's; None for
        frames in random order, in groups of fifty.
    :param seed: of which frames form a group, where they are not all of a character's.
    :param X: inputs in the place of ids.
    :raises ValueError: if characters have other numbers of frames.
    """
    rng = np.random.default_rng([seed, 0x6E])
    number = len(frames.X)
    if per_character is None:
        groups = np.array_split(rng.permutation(number), max(1, number // 50))
    else:
        ids = frames.X[:, 0]
        order = np.lexsort((rng.random(number), ids))
        counts = np.unique(ids, return_counts=True)[1]
        if (counts % per_character).any():
            raise ValueError(
                f"frames_per_character is {per_character}, which does not divide the "
                f"{counts[counts % per_character > 0][0]} frames of a character."
            )
        groups = np.split(order, number // per_character)
    shards = FrameShards(frames.X if X is None else X, frames.Y, groups)
    found = StreamedObservations(shards, number, per_character or _SHUFFLED)
    found.has_missing = False  # known without reading all of them: bytes have no NaN
    return found
