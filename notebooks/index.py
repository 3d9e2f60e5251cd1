# %% [markdown]
# # Shardlab: learn distributed training by running it
#
# Every picture in these notebooks is of real processes that train a real model on this machine, and every result is
# compared with that of one process. Begin at the top: a notebook needs only those before it. Run a cell with
# **Shift + Enter**, or all of them with **Run → Run All Cells**. Where a question is asked, answer before you look.
#
# You work on a copy. Change what you like: `lab notebooks` never writes over it, and `lab notebooks --fresh` gives
# you the originals again.

# %% [markdown]
# To experiment freely, open a new notebook and run `import lab; lab.explore()`: it has a slider for every way to
# split the work, and each move of one starts real processes.
