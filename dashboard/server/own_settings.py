"""The settings of the dashboard's server: its own, and nobody else's.

Streamlit would also read its settings from the user's home, from the folder where the command is started, from the
environment, and secrets from files beside them. There a base address makes the printed address dead, a foreign host
name lets that host's pages in, and a certificate that is gone ends the server. None is of use here: the settings that
are listed in `.streamlit/config.toml` and below are all there are.
"""

from __future__ import annotations

import os
from pathlib import Path

from lab.cli.ports import LOOPBACK

_OWN = Path(__file__).parents[1] / ".streamlit" / "config.toml"

SAFE = {
    "server.address": LOOPBACK,
    "server.allowedHosts": [LOOPBACK, "localhost"],
    "server.enableCORS": True,
    "server.corsAllowedOrigins": [f"http://{LOOPBACK}"],
    "client.allowedOrigins": [f"http://{LOOPBACK}"],  # whose pages may send it messages; by default those of a hoster
    "server.enableXsrfProtection": True,
    "server.enableAgentApi": False,
    "server.headless": True,
    "server.fileWatcherType": "none",
    "browser.gatherUsageStats": False,
    "client.showErrorDetails": "none",
    "logger.hideWelcomeMessage": True,
    "logger.level": "error",
    "global.developmentMode": False,
}
"""What differs from `.streamlit/config.toml`, or is about safety and said once more."""

_OF_THE_SERVER_BELOW = ("FORWARDED_ALLOW_IPS", "WEB_CONCURRENCY")  # uvicorn reads these


def ignore_those_of_others() -> None:
    """To be called before Streamlit first looks at its settings: from then on it finds those of the dashboard alone."""
    from streamlit import config

    for name in [*os.environ]:
        if name.startswith("STREAMLIT_") or name in _OF_THE_SERVER_BELOW:
            del os.environ[name]
    assert hasattr(config, "get_config_files")
    config.get_config_files = _files


def _files(file_name: str) -> list[str]:
    return [str(_OWN)] if file_name == _OWN.name else []
