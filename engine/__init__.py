"""The engine: a job is compiled to a program, real processes execute it, and a recording says what they did."""
