"""The names in CIFAR-10's official binary archive."""

from __future__ import annotations

FOLDER = "cifar-10-batches-bin"
TRAIN_FILES = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
TEST_FILE = "test_batch.bin"
LABELS_FILE = "batches.meta.txt"
LABELS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
RECORD_BYTES = 1 + 3 * 32 * 32
