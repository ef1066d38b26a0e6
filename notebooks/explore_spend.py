# %% [markdown]
# # Explore spend
#
# Where did the money go, who grew, what has no price, whom would a cap touch, and what did a new price list change?
#
# It starts on the bundled month: November 2026 of an invented company. Give it exports of your own in the next cell.
# The last cell asserts that everything above adds up to the ledger, to the nano-dollar.

# %% tags=["parameters"]
sources = []  # export files, folders or a gateway's export URL; none: the bundled month
cap = "customer:* day 20"  # SCOPE:SUBJECT WINDOW USD [ADMISSION]
other_limits = [2, 5, 10, 15, 20, 25, 40, 80]
top = 8

# %%
from dataclasses import replace
from datetime import date, timedelta

import plotly.io as pio
import polars as pl

import toolkit as tk
from toolkit.captext import parse_cap_text

pio.renderers.default = "plotly_mimetype"  # a few kilobytes a figure; JupyterLab draws it
pl.Config.set_tbl_hide_dataframe_shape(True)
pl.Config.set_tbl_rows(20)
pl.Config.set_fmt_str_lengths(60)
pl.Config.set_tbl_width_chars(160)

receipts = tk.load(*sources) if sources else tk.datasets.load_sample()
receipts

# %% [markdown]
# ## Where did the money go?
#
# One row per receipt, one receipt per request. `cost_usd` is what list prices make of the tokens. A cost that is not known is
# null, never zero: look at `unpriced_requests` beside every total.

# %%
by_day = tk.spend(receipts, by=("day",))
through = receipts.frame.select(pl.col("settled_at").max()).collect().item()
tk.figures.spend_by_day(by_day, data_through=through)

# %%
shown = ["requests", "refused_requests", "unpriced_requests", "cost_usd"]
by_customer = tk.spend(receipts, by=("customer",))
by_customer.sort("cost_nano_usd", descending=True, nulls_last=True).select("customer", *shown).head(top)

# %%
by_model = tk.spend(receipts, by=("model",))
by_model.sort("cost_nano_usd", descending=True, nulls_last=True).select(
    "model", *shown, "input_tokens", "cache_read_tokens", "output_tokens"
).head(top)

# %% [markdown]
# ## Who grew?
#
# The last seven days against the seven before. A customer of one of the two weeks alone has 0 in the other.

# %%
last_day = date.fromisoformat(by_day["day"].max())
last_week = [f"{last_day - timedelta(days=back)}" for back in range(7)]
week_before = [f"{last_day - timedelta(days=back)}" for back in range(7, 14)]


def spent_in(days: list[str], name: str) -> pl.DataFrame:
    """What each customer cost on these days."""
    chosen = by_customer_and_day.filter(pl.col("day").is_in(days))
    return chosen.group_by("customer").agg(pl.col("cost_usd").sum().alias(name))


by_customer_and_day = tk.spend(receipts, by=("customer", "day"))
growth = (
    spent_in(week_before, "week_before_usd")
    .join(spent_in(last_week, "last_week_usd"), on="customer", how="full", coalesce=True, nulls_equal=True)
    .with_columns(pl.col("week_before_usd", "last_week_usd").fill_null(0))
    .with_columns(change_usd=pl.col("last_week_usd") - pl.col("week_before_usd"))
)
growth.sort("change_usd", descending=True).head(top)

# %% [markdown]
# ## What has no price?
#
# Served or abandoned requests without a cost, by model and reason. `model_unknown` waits for a newer price list;
# `outcome_unknown` broke off, so its hold stays counted under the caps; `usage_missing` came without figures.

# %%
unpriced = tk.unpriced(receipts)
by_reason = unpriced.group_by("reason").agg(pl.col("requests").sum(), models=pl.len())
by_reason.sort("requests", descending=True)

# %%
unpriced.head(top)

# %% [markdown]
# ## A month under two price lists
#
# A list is fixed at admission, so a month can span two. Its total then names none. Rows without a list were refused before
# a price was looked for.

# %%
months = tk.months(receipts)
no_list = pl.lit("(none: refused before pricing, or priced elsewhere)")
label = pl.when("total").then(pl.lit("total")).otherwise(pl.coalesce("price_list", no_list))
months.select("period", label.alias("list"), *shown, "price_list_count")

# %% [markdown]
# What each list made of the same model. Cost per million billed tokens also moves with the mix of input, cache and output.

# %%
billed = [
    "input_tokens",
    "cache_read_tokens",
    "cache_write_5m_tokens",
    "cache_write_1h_tokens",
    "output_tokens",
]
usd_per_million = (
    pl.col("cost_nano_usd") / pl.sum_horizontal(billed) / 1000
)  # nano-USD a token is $0.001 a million
by_model_and_list = tk.spend(receipts, by=("model", "price_list"))
(
    by_model_and_list.filter(pl.col("cost_nano_usd") > 0)
    .sort("cost_nano_usd", descending=True)
    .with_columns(usd_per_million=usd_per_million.round(3))
    .pivot("price_list", index="model", values="usd_per_million", sort_columns=True)
    .drop_nulls()
    .head(top)
)

# %% [markdown]
# ## Whom would a cap touch?
#
# The gateway's own decision function, replayed on these receipts in the order in which its counters saw them. History is fixed
# here: in life a refused customer would have retried, fallen back or left. Read it as spend above the cap, not as savings.

# %%
draft = parse_cap_text(cap)
strict = tk.what_if(receipts, [draft])
served = strict.with_caps([replace(draft, unpriced="serve")])
served

# %% [markdown]
# That cap serves calls without a price and counts nothing for them. The default refuses them, whatever was spent:

# %%
f"{strict.summary.unpriced:,} calls refused for want of a price, {strict.summary.customers_refused} customers touched"

# %%
served.figure()

# %%
touched = served.by_customer.filter(pl.col("refused_requests") > 0)
refused_usd = (pl.col("refused_nano_usd") / 1_000_000_000).round(2).alias("refused_usd")
touched.select("customer", "requests", "refused_requests", "first_refused_at", refused_usd).head(top)

# %% [markdown]
# The customer with the most dollars stopped, call by call, and what other limits would do.

# %%
if touched.height and touched["customer"][0] is not None:
    tk.figures.customer_curve(served.explain(touched["customer"][0])).show()

# %%
tk.figures.sweep_curve(served.sweep(other_limits))

# %% [markdown]
# ## It adds up
#
# Days, customers, models and price lists are four cuts of one ledger, so each sums to the whole. So do the parts of the
# what-if. Exports of ours also carry the gateway's own sums in their last line.

# %%
money = ["cost_nano_usd", "counted_nano_usd"]
ledger = receipts.frame.select(pl.col(money).sum()).collect().row(0)
cuts = {
    "days": by_day,
    "customers": by_customer,
    "customers and days": by_customer_and_day,
    "models": by_model,
    "models and lists": by_model_and_list,
    "price lists": months.filter(~pl.col("total")),
    "months": months.filter("total"),
}
for name, cut in cuts.items():
    assert cut.select(pl.col(money).sum()).row(0) == ledger, f"{name} do not sum to the ledger"
    assert cut["requests"].sum() == receipts.frame.filter(pl.col("corrects").is_null()).collect().height, name

for found in (strict, served):
    days = found.by_day.select("admitted_nano_usd", "refused_nano_usd", "not_judged_nano_usd")
    assert sum(days.sum().row(0)) == ledger[0], "the days of the what-if do not sum to the ledger"

footers = [file.footer for file in receipts.manifest.files if file.footer]
if len(footers) == len(receipts.manifest.files):  # the sample is no export, and has none
    assert tuple(sum(footer[name] for footer in footers) for name in money) == ledger

unknown = (
    receipts.frame.filter(pl.col("cost_nano_usd").is_null(), pl.col("status") != "refused").collect().height
)
assert unpriced["requests"].sum() == unknown, "the unpriced requests are not all told"

print(f"{by_day['cost_usd'].sum():,} USD: {', '.join(cuts)} and the what-if agree with the ledger.")
