"""Home of the Streamlit dashboard, which will stand on `lab` alone; today, reports and `lab show` compare runs."""
