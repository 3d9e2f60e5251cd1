"""The Streamlit dashboard: launch, watch and compare runs. It stands on `lab` alone; `lab dashboard` opens it."""
