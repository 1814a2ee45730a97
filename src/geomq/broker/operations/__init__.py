"""For those who run a broker: admin API, metrics, logs, traces, `$SYS`.

Reads what the other rooms hold, and changes nothing but through their calls.
"""
