"""Events between brokers and Spark: the source, the sink, and the archive's columns.

options.py         what a user may say, checked
connection.py      one blocking MQTT connection
packet_spooler.py  PUBLISH packets into the spool, without repeats
spool.py           what arrived, on disk, numbered
receiver.py        receives into the spool, acknowledges
decode.py          spooled packets to Arrow columns
source.py          readStream and read
publisher.py       publishes and waits for acknowledgements
sink.py            writeStream and write
archived.py        the archive: compacted, read
landing.py         the stream that fills it
jobs.py            rates, density and latency of events
plainly.py         errors as one line, without a traceback
format.py          the `geomq` format of Spark: source and sink under one name
"""
