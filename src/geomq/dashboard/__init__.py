"""The dashboard: one page with a globe, and the server that feeds it.

`feed.py` says what a broker must tell; brokers of this process and brokers behind their admin APIs both do. `live.py`
turns what they tell into four messages a second, `hub.py` hands those to pages without ever waiting for one, `app.py`
is the HTTP side and `guard.py` decides who may ask for what. `recorded*.py` makes views of set-ups, results and traces.

Routes no event and keeps nothing on disk.
"""
