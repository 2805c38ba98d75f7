"""A price has one form and one meaning: in a profile, in a budget, and in the file of ``deedbook stats``."""

from math import ceil

from hypothesis import given
from hypothesis import strategies as st

from deedbook.format.schema import Schemas, data_folder
from deedbook_inspect.observing.prices import Prices
from deedbook_policy_standard.accounts import Terms
from deedbook_policy_standard.budgets import PRICE
from deedbook_provider_http.reply import usage_of
from deedbook_provider_http.settings import settings_schema

DOLLARS = st.none() | st.floats(0, 100)
ROWS = st.fixed_dictionaries({"input_per_million": DOLLARS, "output_per_million": DOLLARS})
TOKENS = st.integers(0, 10_000_000)
AGREEING = 2
"""Billionths of a dollar: each of the three rounds in its own direction."""


def form(member):
    return {name: value for name, value in member.items() if name in ("type", "minimum", "pattern")}


def test_members_of_a_price_are_the_same_in_all_three_places():
    profile = settings_schema(structured=("none",), reserved=())["properties"]["prices"]
    file = Schemas.load(data_folder("schemas")).document("prices_v2")["properties"]
    row = file["models"]["additionalProperties"]
    stated = {**row["properties"], "date": file["date"], "source": file["source"]}
    for each in (profile, PRICE):
        assert {name: form(member) for name, member in each["properties"].items()} == {
            name: form(member) for name, member in stated.items()
        }
        assert each["required"] == row["required"]


@given(ROWS, TOKENS, TOKENS)
def test_cost_of_the_same_tokens_is_the_same_in_all_three_places(row, read, written):
    usage = usage_of({}, "", read=read, written=written, prices=row)
    profile = round(usage["cost_usd"] * 1e9) if "cost_usd" in usage else None
    file = Prices({"m": row}).compute_cost("p", "m", (read, written, 0))
    settings = {"per": "workspace", "account": "a", "limits": {"cost_usd": 1}, "prices": {"model/*": row}}
    answer = {"usage": {"input_tokens": read, "output_tokens": written}}
    reserved = {"nano_usd": -1, "input_tokens": 0, "output_tokens": 0}
    budget = Terms.of(settings).settle_answer("model/m", reserved, answer)["nano_usd"]
    if None in (profile, file) or budget == -1:
        assert (profile, file, budget) == (None, None, -1)
    else:
        assert max(profile, file, budget) - min(profile, file, budget) <= AGREEING + ceil(file * 1e-12)
