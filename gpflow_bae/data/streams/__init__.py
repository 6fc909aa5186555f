"""Streams: observations that are read from the shards of a folder, a minibatch at a time."""

from .observations import BatchReader, StreamedObservations
from .tfrecords import write_tfrecords

__all__ = ["BatchReader", "StreamedObservations", "write_tfrecords"]
