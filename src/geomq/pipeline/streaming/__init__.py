"""Events between brokers and Spark: the source, the sink, and the archive's columns.

options.py      what a user may say, checked
connection.py   one blocking MQTT connection
spool.py        what arrived, on disk, numbered
inlet.py        receives into the spool, acknowledges
decode.py       spooled packets to Arrow columns
source.py       readStream and read
outlet.py       publishes and waits for acknowledgements
sink.py         writeStream and write
archived.py     the archive: compacted, read
landing.py      the stream that fills it
jobs.py         rates, density and latency of events
plainly.py      errors without the way they came
format.py       the `geomq` format of Spark: source and sink under one name
"""
