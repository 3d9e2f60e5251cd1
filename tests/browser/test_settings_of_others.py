"""Settings of Streamlit and Jupyter that others have made: the printed address works all the same, none leaks in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
from streamlit import config

from dashboard.server import own_settings
from tests.browser.dashboard import Server, end
from tests.browser.test_dashboard_safety import UPGRADE, answer

EVIL = "http://evil.example"
STREAMLIT = f"""
[server]
address = "0.0.0.0"
port = 1234
baseUrlPath = "elsewhere"
sslCertFile = "/gone/cert.pem"
sslKeyFile = "/gone/key.pem"
enableCORS = false
enableXsrfProtection = false
corsAllowedOrigins = ["{EVIL}"]
allowedHosts = ["evil.example"]
enableAgentApi = true
enableStaticServing = true
scriptHealthCheckEnabled = true
cookieSecret = "known"
trustedUserHeaders = '{{"X-User": "email"}}'
[browser]
serverAddress = "evil.example"
serverPort = 1234
gatherUsageStats = true
[client]
allowedOrigins = ["{EVIL}"]
[global]
developmentMode = true
[theme.light.dark]
primaryColor = "red"
"""
SECRETS = '[auth]\ncookie_secret = "known"\nredirect_uri = "http://evil.example/oauth2callback"\n'
JUPYTER = f"""
c.ServerApp.base_url = "/elsewhere/"
c.ServerApp.certfile = "/gone/cert.pem"
c.ServerApp.keyfile = "/gone/key.pem"
c.ServerApp.ip = "0.0.0.0"
c.ServerApp.port = 1234
c.ServerApp.allow_origin = "{EVIL}"
c.ServerApp.allow_remote_access = True
c.ServerApp.disable_check_xsrf = True
c.ServerApp.password_required = True
c.ServerApp.jpserver_extensions = {{"no_such_extension": True}}
c.ServerApp.tornado_settings = {{"headers": {{"X-Leaked": "yes"}}}}
c.IdentityProvider.token = "known"
"""


def settings(folder: Path) -> dict[str, str]:
    """Writes settings of Streamlit in a home and in `folder`; the environment, which has more of them."""
    home = folder / "home"
    for place in (home, folder):
        (place / ".streamlit").mkdir(parents=True)
        (place / ".streamlit" / "config.toml").write_text(STREAMLIT)
        (place / ".streamlit" / "secrets.toml").write_text(SECRETS)
        (place / ".streamlit" / "credentials.toml").write_text("[damaged")
    flags = {one.env_var: "1" for one in config._config_options_template.values()}
    return {
        "HOME": str(home),
        "FORWARDED_ALLOW_IPS": "*",
        "WEB_CONCURRENCY": "many",
        "STREAMLIT_LOG_LEVEL": "x",
    } | flags


@pytest.fixture(scope="module")
def beset(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A dashboard among settings of others."""
    folder = tmp_path_factory.mktemp("beset")
    server = Server.start(folder / "runs", **settings(folder))
    yield server
    end(server)


def test_the_printed_address_of_the_dashboard_works_whatever_others_have_set(beset: Server) -> None:
    with urllib.request.build_opener(urllib.request.HTTPCookieProcessor()).open(beset.printed) as page:
        assert page.status == 200 and b"<title>Streamlit</title>" in page.read()
        assert page.url == beset.url


def test_nothing_that_others_have_set_widens_who_gets_into_the_dashboard(beset: Server) -> None:
    own = f"127.0.0.1:{beset.port}"
    assert answer(beset, "/_stcore/stream", Host=own, Origin=f"http://{own}", **UPGRADE)[0] == 101
    assert answer(beset, "/_stcore/stream", Host=own, Origin=EVIL, **UPGRADE)[0] == 403
    assert answer(beset, "/", Host="evil.example")[0] == 400
    status, said = answer(beset, "/_stcore/host-config", Host=own)
    assert status == 200 and "evil" not in said
    _, said = answer(beset, "/_stcore/script-health-check", Host=own)
    assert "content-type: text/html" in said, "a page as for any address, and nothing that was switched on"


EVERY_OPTION = """
import json
from dashboard.server.own_settings import ignore_those_of_others
ignore_those_of_others()
import os
from streamlit import config
from streamlit.runtime.secrets import secrets_singleton
found = config.get_config_options(force_reparse=True).values()
where = sorted({one.where_defined for one in found})
print(json.dumps([where, secrets_singleton.load_if_toml_exists(), [n for n in os.environ if "STREAMLIT" in n]]))
"""


def test_no_option_of_streamlit_at_all_comes_from_elsewhere_than_the_dashboard_itself(tmp_path: Path) -> None:
    surroundings = os.environ | settings(tmp_path)
    done = subprocess.check_output([sys.executable, "-c", EVERY_OPTION], cwd=tmp_path, env=surroundings, text=True)
    where, secrets, left = json.loads(done)
    own = str(Path(own_settings.__file__).parents[1] / ".streamlit" / "config.toml")
    assert set(where) == {"<default>", "<streamlit>", own} or set(where) == {"<default>", own}
    assert (secrets, left) == (False, [])


@pytest.fixture(scope="module")
def notebooks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What `lab notebooks` says of itself among settings of others."""
    folder = tmp_path_factory.mktemp("jupyter")
    places = [folder / "home/.jupyter", folder / "path", folder / "home/.local/etc/jupyter", folder]
    for place in places:
        place.mkdir(parents=True, exist_ok=True)
        for name in ("jupyter_config.py", "jupyter_server_config.py", "jupyter_lab_config.py"):
            (place / name).write_text(JUPYTER)
    known = dict.fromkeys(("JUPYTER_TOKEN", "JUPYTER_TOKEN_FILE", "JUPYTER_PORT", "JUPYTERHUB_API_TOKEN"), "known")
    away = {"JUPYTER_GATEWAY_URL": EVIL, "JUPYTER_CONFIG_PATH": str(folder / "path"), "JUPYTER_NO_CONFIG": "1"}
    surroundings = os.environ | known | away | {"HOME": str(folder / "home")}
    command = [sys.executable, "-m", "lab.cli", "notebooks", "--no-browser", "--json"]
    process = subprocess.Popen(command, cwd=folder, env=surroundings, text=True, stdout=subprocess.PIPE)
    assert process.stdout is not None
    yield json.loads(process.stdout.readline())
    process.kill()
    process.communicate()


def asked(facts: dict[str, Any], path: str, **headers: str) -> Any:
    return urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{facts['port']}{path}", None, headers))


def test_the_printed_address_of_jupyterlab_works_whatever_others_have_set(notebooks: dict[str, Any]) -> None:
    with urllib.request.urlopen(notebooks["url"]) as page:
        assert page.status == 200 and b"JupyterLab" in page.read()
    with asked(notebooks, "/api/kernelspecs", Authorization=f"token {notebooks['token']}") as specs:
        assert "python3" in json.load(specs)["kernelspecs"], "kernels of this machine, and of no gateway"
        assert "X-Leaked" not in specs.headers


def test_nothing_that_others_have_set_widens_who_gets_into_jupyterlab(notebooks: dict[str, Any]) -> None:
    token = f"token {notebooks['token']}"
    refused = [{}, {"Authorization": "token known"}, {"Authorization": token, "Host": "evil.example"}]
    for headers in refused:
        with pytest.raises(HTTPError, match="403"):
            asked(notebooks, "/api/contents", **headers)
