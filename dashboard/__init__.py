"""Home of the Streamlit dashboard, which will stand on `lab` alone; today runs are compared through reports and `lab`."""
