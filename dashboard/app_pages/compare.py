"""Not built yet."""

import streamlit as st

st.title("Compare")
