"""How the processes of a run are started in milliseconds, watched, ended and never left behind; see
`engine.processes.launch`.
"""
