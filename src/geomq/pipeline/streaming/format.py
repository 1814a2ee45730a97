"""The `geomq` format of Spark: source and sink under one name.

Spark finds it by itself where GeoMQ is installed, through the package `pyspark_geomq`; elsewhere register it with
`spark.dataSource.register(GeomqFormat)`.
"""

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from geomq.errors import UsageError
from geomq.pipeline.streaming.archived import ArchiveReader
from geomq.pipeline.streaming.decode import DDL
from geomq.pipeline.streaming.options import archive_options, sink_options, source_options
from geomq.pipeline.streaming.plainly import plainly
from geomq.pipeline.streaming.sink import EventStreamWriter, EventWriter, check_columns
from geomq.pipeline.streaming.source import EventStreamReader


class GeomqFormat(DataSource):
    """Checks options as early as Spark lets it."""

    @classmethod
    def name(cls) -> str:
        return "geomq"

    @plainly
    def schema(self) -> str:
        # The first thing Spark asks, in `load()`: the place to refuse what makes no sense.
        if "path" in self.options:
            archive_options(self.options)
        else:
            source_options(self.options)
        return DDL

    @plainly
    def streamReader(self, schema: StructType) -> EventStreamReader:  # noqa: N802
        return EventStreamReader(source_options(self.options))

    @plainly
    def reader(self, schema: StructType) -> ArchiveReader:
        return ArchiveReader(archive_options(self.options))

    @plainly
    def writer(self, schema: StructType, overwrite: bool) -> EventWriter:
        if overwrite:
            raise UsageError('events are published and cannot be overwritten; use .mode("append")')
        check_columns(schema)
        return EventWriter(sink_options(self.options))

    @plainly
    def streamWriter(self, schema: StructType, overwrite: bool) -> EventStreamWriter:  # noqa: N802
        check_columns(schema)
        return EventStreamWriter(sink_options(self.options))
