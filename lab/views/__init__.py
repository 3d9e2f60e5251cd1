"""What is looked at: figures, the canvas timeline, the report and exports. Each is built once, for every host.

It may import `store`, `analysis` and the engine, and takes runs as data. Start with `figures`, then `timeline`.
"""
