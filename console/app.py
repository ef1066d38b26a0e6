"""The console: watch what customers spend, model a cap on the past, arm it.

Run it with `capline console`, or `streamlit run console/app.py`. The armed bar comes first, before anything that can
raise, so that Disarm is on every page whatever happens below it.
"""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from console import wording
from console.components import armed_bar

HERE = Path(__file__).resolve().parent

# A local picture: an icon from a font would be fetched from elsewhere.
st.set_page_config(
    page_title=wording.PRODUCT,
    page_icon=str(HERE / "assets" / "icon.png"),
    layout="wide",
    initial_sidebar_state="auto",
)

st.logo(str(HERE / "assets" / "icon.png"), size="large")

armed_bar.draw()


def _page(file: str, title: str, icon: str, *, default: bool = False) -> st.Page:
    return st.Page(
        HERE / "app_pages" / f"{file}.py",
        title=title,
        icon=f":material/{icon}:",
        url_path=file.replace("_", "-"),
        default=default,
        help=wording.PAGE_HELP[title],
    )


chosen = st.navigation(
    {
        wording.WATCH: [
            _page("overview", wording.OVERVIEW, "monitoring", default=True),
            _page("customers", wording.CUSTOMERS, "groups"),
        ],
        wording.CONTROL: [
            _page("model_cap", wording.MODEL, "experiment"),
            _page("caps", wording.CAPS, "verified_user"),
        ],
        wording.EVIDENCE: [
            _page("audit", wording.AUDIT, "history"),
            _page("data_health", wording.HEALTH, "rule"),
        ],
    },
    expanded=True,
)
chosen.run()
