"""How RocksDB is opened: its buffers, what it looks at, and how it reads its logs.

The logs are read up to the first record that is not whole, because a power failure may leave any tail; what was synced
and is missing then shows in the numbers of batches (`synced.py`). Complete logs are listed in the manifest with their
sizes, so that one which is missing or cut is refused. The binding has no setter for that; RocksDB takes it from a file
of options.
"""

import os
import tempfile
from pathlib import Path

from rocksdict import DBRecoveryMode, Options

from geomq.broker.sockets.descriptors import descriptors

BUFFER_BYTES = 16 * 1_048_576
BUFFERS_MAX = 6
_FILE = """[Version]
  rocksdb_version=10.4.2
  options_file_version=1.1
[DBOptions]
  track_and_verify_wals_in_manifest={track}
[CFOptions "default"]
"""
_RAW = '{"raw_mode":true,"prefix_extractors":{}}'


def rocks_options(*, salvage: bool = False) -> Options:
    """The options of a broker's store; with `salvage`, those that read whatever can be read."""
    with tempfile.TemporaryDirectory(prefix="geomq-") as folder:
        Path(folder, "OPTIONS-000001").write_text(_FILE.format(track="false" if salvage else "true"))
        Path(folder, "rocksdict-config.json").write_text(_RAW)
        options, _ = Options.load_latest(os.fspath(folder))
    options.create_if_missing(not salvage)
    options.set_write_buffer_size(BUFFER_BYTES)
    options.set_max_write_buffer_number(BUFFERS_MAX)
    options.set_keep_log_file_num(2)
    options.set_max_log_file_size(1_048_576)
    options.set_max_open_files(descriptors().store_files)
    if salvage:
        options.set_paranoid_checks(False)
        options.set_wal_recovery_mode(DBRecoveryMode.skip_any_corrupted_record())
    return options
